"""Stage context: the data that a ranking stage receives, and `seal`, which adds a document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from contextrouter.contracts import Source, StageContext
from contextrouter.errors import ContractError
from contextrouter.model import Envelope, Fact, Hit, Plan, Provenance, Query, Request
from contextrouter.pipeline.admission import Admission, flaw_of
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.planning.restrictions import restrictions
from contextrouter.text.query_syntax import parse


def stage_context(
    request: Request, plan: Plan, facts: Sequence[Fact], engine: Engine, now: datetime
) -> StageContext:
    """Return the context of one request's stages.

    Its `seal` labels and checks a hit as if its source had returned it. It returns None for a document that
    the scope, the kinds, the filters, the period or the question exclude. It raises ContractError
    for a source that does not exist, or a hit of other types.
    """
    sources = {name: source for name, source in engine.sources.items() if isinstance(source, Source)}
    intent = plan.intent
    rag, route = engine.settings.for_route(plan.route)
    limits = restrictions(intent, request, rag, route, now)
    query = Query(
        text=intent.text,
        leg="stage",
        scope=request.scope,
        labels=tuple(limits.labels),
        period=limits.period,
        filters=limits.filters,
        excluded=parse(intent.question).excluded,
    )

    def seal(hit: Hit, *, source: str) -> Envelope | None:
        if source not in sources:
            message = f"seal() names the source {source!r}, which does not exist"
            raise ContractError(message, law="documents enter from a source")
        if flaw := flaw_of(hit.document):
            message = f"seal() was given a hit that is none: {flaw}"
            raise ContractError(message, law="documents enter whole")
        admitted = Admission(query, engine.source_keys[source]).hits([hit])
        return _seal(admitted[0], source, intent.text) if admitted else None

    return StageContext(
        intent=intent,
        scope=request.scope,
        profile=request.profile,
        sources=sources,
        facts=facts,
        now=now,
        seal=seal,
        scores=engine.scores.score if engine.scores else None,
    )


def _seal(hit: Hit, source: str, question: str) -> Envelope:
    now = datetime.now(UTC)
    stamp = Provenance(source=source, leg="stage", query=question, rank=1, score=hit.score, retrieved_at=now)
    return Envelope(document=hit.document, provenance=(stamp,), highlights=hit.highlights, vector=hit.vector)
