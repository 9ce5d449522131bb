"""Step 7: how many go on, overall or per kind. Pure; the order is that of the last stage."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.model import Envelope
from contextrouter.pipeline.lanes import Dropped, Lane, split
from contextrouter.settings import Rag


def select(ranked: Sequence[Envelope], rag: Rag) -> Lane:
    """Return `ranked` with what exceeds the limits dropped; those dropped, now or before, stand behind the
    live ones.

    With `general_retrieval_enabled` the best `general_retrieval_final_count` go on. Without, each kind has
    its quota: `max_books`, `max_videos`, `max_qa`, `max_web`, those in `quotas`, and one that all other kinds
    share, `quotas.other`.
    """
    live, before = split(ranked)
    if rag.general_retrieval_enabled:
        count = rag.general_retrieval_final_count
        cut = Dropped(live, count, f"selection: not among the best {count}")
        return Lane(live[:count], [*cut, *before] if before else cut)
    taken: dict[str, int] = {}
    kept, over = [], []
    for envelope in live:
        name, most = rag.quota(envelope.document.kind)
        if taken.get(name, 0) < most:
            taken[name] = taken.get(name, 0) + 1
            kept.append(envelope)
        else:
            over.append(envelope.drop(f"selection: quota of {most} for {name!r} is used up"))
    return Lane(kept, [*over, *before])
