"""Selection (step 9): keeps the top documents, or a quota of each kind. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.model import Envelope
from contextrouter.pipeline.candidates import ScoredCandidates
from contextrouter.pipeline.envelopes import Dropped, Ranking, split
from contextrouter.settings import Rag


def select(ranked: Sequence[Envelope], rag: Rag) -> Ranking:
    """Return `ranked` with what exceeds the limits dropped; those dropped, now or before, stand behind the
    live ones.

    With `general_retrieval_enabled` the best `general_retrieval_final_count` go on. Without, each kind has
    its quota: `max_books`, `max_videos`, `max_qa`, `max_web`, those in `quotas`, and one that all other kinds
    share, `quotas.other`.
    """
    live, dropped = split(ranked)
    if rag.general_retrieval_enabled:
        count = rag.general_retrieval_final_count
        beyond, reason = live[count:], f"selection: not among the best {count}"
        cut = beyond.dropped(reason) if isinstance(beyond, ScoredCandidates) else Dropped(beyond, reason)
        return Ranking(live[:count], [*cut, *dropped] if dropped else cut)
    taken: dict[str, int] = {}
    selected, over = [], []
    for envelope in live:
        name, quota = rag.quota(envelope.document.kind)
        if taken.get(name, 0) < quota:
            taken[name] = taken.get(name, 0) + 1
            selected.append(envelope)
        else:
            over.append(envelope.drop(f"selection: quota of {quota} for {name!r} is used up"))
    return Ranking(selected, [*over, *dropped])
