"""What a ranking stage is told, and the one door through which it may let a new document in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from contextrouter.cache import ScoreCache
from contextrouter.contracts import FactSource, Source, StageContext
from contextrouter.errors import ContractError
from contextrouter.filters import wanted
from contextrouter.model import Envelope, Fact, Hit, Intent, Provenance, Query, Request
from contextrouter.pipeline.admission import Arrival
from contextrouter.pipeline.hit_validation import flaw
from contextrouter.settings import Settings


def stage_context(
    request: Request,
    intent: Intent,
    facts: Sequence[Fact],
    settings: Settings,
    sources: Mapping[str, Source | FactSource],
    scores: ScoreCache | None = None,
) -> StageContext:
    """Return the context of one request's stages. `scores` keeps what rerankers say.

    Its `seal` labels and checks a hit as if its source had returned it. `seal` gives None for what the scope,
    the kinds, the filters or the period keep out; it raises ContractError for a source that does not exist,
    or a hit that is not what its types say.
    """
    documents = {name: source for name, source in sources.items() if isinstance(source, Source)}
    filters = wanted(request)
    asked = Query(
        text=intent.question,
        leg="stage",
        scope=request.scope,
        labels=intent.labels,
        period=intent.period,
        filters=filters,
    )

    def seal(hit: Hit, *, source: str) -> Envelope | None:
        if source not in documents:
            raise ContractError(
                f"seal() names the source {source!r}, which does not exist",
                law="documents enter from a source",
            )
        if found := flaw(hit.document):
            raise ContractError(f"seal() was given a hit that is none: {found}", law="documents enter whole")
        kept = Arrival(asked, settings.sources[source].keys).hits([hit])
        if not kept:
            return None
        now = datetime.now(UTC)
        stamp = Provenance(
            source=source, leg="stage", query=intent.question, rank=1, score=hit.score, retrieved_at=now
        )
        return Envelope(
            document=kept[0].document, provenance=(stamp,), highlights=hit.highlights, vector=hit.vector
        )

    return StageContext(
        intent=intent,
        scope=request.scope,
        profile=request.profile,
        sources=documents,
        facts=facts,
        now=datetime.now(UTC),
        seal=seal,
        scores=scores.score if scores else None,
    )
