"""Selection (step 9): keeps the top documents, or a quota of each kind, and of each source. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from contextrouter.model import Envelope
from contextrouter.pipeline.candidates import ScoredCandidates
from contextrouter.pipeline.envelopes import Dropped, Ranking, split
from contextrouter.settings import Rag


def select(ranked: Sequence[Envelope], rag: Rag, limit: int | None = None) -> Ranking:
    """Return `ranked` with what exceeds the limits dropped; those dropped, now or before, stand behind the
    live ones.

    With `general_retrieval_enabled` the best `general_retrieval_final_count` go on. Without, each kind has
    its quota: `max_books`, `max_videos`, `max_qa`, `max_web`, those in `quotas`, and one that all other kinds
    share, `quotas.other`. Either way at most `max_per_source` of a source go on, and the next best documents
    take the places that it frees. `limit` stands in place of that count, and bounds the quotas together.
    """
    live, dropped = split(ranked)
    general, count = rag.general_retrieval_enabled, limit or rag.general_retrieval_final_count
    not_among = f"selection: not among the best {count}"
    if general and not rag.max_per_source:
        beyond = live[count:]
        cut = (
            beyond.dropped(not_among) if isinstance(beyond, ScoredCandidates) else Dropped(beyond, not_among)
        )
        return Ranking(live[:count], [*cut, *dropped] if dropped else cut)
    of_source: Counter[str] = Counter()
    of_kind: Counter[str] = Counter()
    selected: list[Envelope] = []
    over: list[Envelope] = []
    for envelope in live:
        source, source_limit = _source_limit(envelope, rag)
        kind, quota = ("", count) if general else rag.quota(envelope.document.kind)
        if source_limit is not None and of_source[source] >= source_limit:
            over.append(
                envelope.drop(f"selection: max_per_source of {source_limit} for {source!r} is used up")
            )
        elif limit is not None and len(selected) >= limit:
            over.append(envelope.drop(not_among))
        elif of_kind[kind] >= quota:
            reason = not_among if general else f"selection: quota of {quota} for {kind!r} is used up"
            over.append(envelope.drop(reason))
        else:
            of_source[source] += 1
            of_kind[kind] += 1
            selected.append(envelope)
    return Ranking(selected, [*over, *dropped])


def _source_limit(envelope: Envelope, rag: Rag) -> tuple[str, int | None]:
    """The source that a citation of the document names, and how many of its documents may go on (None: any
    number).
    """
    source = envelope.provenance[0].source if envelope.provenance else ""
    limit = rag.max_per_source
    return source, limit if isinstance(limit, int) else limit.get(source)
