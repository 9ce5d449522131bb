"""What the contracts give to a plugin beside its one method."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from contextrouter import ContextRouter, Document, Hit, Reranker
from contextrouter.testing import Fixed


class Scores(Reranker):
    def __init__(self, *scores: float) -> None:
        self.scores = scores

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        return self.scores


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
async def test_a_reranker_whose_scores_are_not_finite_has_failed(wrong: float):
    """The order before it stands."""
    source = Fixed([Hit(document=Document(id=name, content=f"alpha {name}")) for name in "abc"])
    async with ContextRouter(connectors={"s": source}, stages={"r": Scores(0.1, wrong, 0.9)}) as router:
        context = await router.route("alpha")
    assert [e.document.id for e in context.envelopes] == ["a", "b", "c"]
    note = next(step.note for step in context.trace.steps if step.name == "r")
    assert note == f"failed: ValueError: score() returned {wrong!r}, which is no rank; return finite scores."
    assert context.degraded
