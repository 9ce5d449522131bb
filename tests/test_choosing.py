"""`[selection] sources`: who cannot help is not asked, and what finds exact words always is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contextrouter import Context, ContextRouter, Hit, Query, Scope
from contextrouter.contracts import TermStatistics
from contextrouter.pipeline.source_selection import NOTHING, promises, unpromising
from contextrouter.settings import Selection
from contextrouter.testing import Legs, Ones, hits


def said(moon: int, tides: int, documents: int = 100) -> TermStatistics:
    return TermStatistics(documents=documents, average_length=9.0, frequencies={"moon": moon, "tides": tides})


def test_a_source_promises_by_rarity_and_by_the_first_documents_most():
    """Of 200 documents 4 have moon, 2 tides: idf ln(1 + 196.5 / 4.5) = 3.7993 and ln(1 + 198.5 / 2.5) =
    4.3869.

    a: (3.7993² × 2 / 4 + 4.3869² × 2 / 4)² = 283.60; b: (3.7993² × 2 / 4)² = 52.09.
    """
    promised = promises({"a": said(2, 2), "b": said(2, 0)})
    assert promised == {"a": pytest.approx(283.6, abs=0.05), "b": pytest.approx(52.09, abs=0.01)}


def test_those_that_hold_the_recall_are_kept_and_the_rest_has_a_reason():
    told = {"a": said(2, 2), "b": said(2, 0), "c": said(0, 0)}
    one = Selection(sources="promising", recall=0.8, fewest=1)
    reasons = unpromising(told, one, ["moon tides"])
    assert list(reasons) == ["b", "c"]
    assert reasons["c"] == NOTHING
    assert reasons["b"].startswith("unlikely to help: 15.")
    assert list(unpromising(told, Selection(sources="promising", recall=0.95, fewest=1), ["moon tides"])) == [
        "c"
    ]
    assert list(unpromising(told, Selection(sources="promising", recall=0.8, fewest=2), ["moon tides"])) == [
        "c"
    ]
    assert unpromising({"a": said(0, 0), "b": said(0, 0)}, one, ["moon"]) == {}
    uncertain = unpromising({"a": said(2, 2), "c": said(0, 0)}, one, ["moon tides \u4eac"])
    assert uncertain["c"].startswith("unlikely")


class Store(Legs):
    """Two legs, and terms of which it reports how often they occur."""

    def __init__(self, name: str, moon: int, wait: bool = False) -> None:
        super().__init__({"text": hits(f"{name}t"), "vector": hits(f"{name}v")}, embedder="e")
        self.moon, self.calls = moon, list[str]()

    async def search(self, query: Query) -> Sequence[Hit]:
        self.calls.append(query.leg)
        return await super().search(query)

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        return TermStatistics(documents=100, average_length=9.0, frequencies=dict.fromkeys(terms, self.moon))


async def routed(selection: dict[str, object]) -> tuple[Context, dict[str, list[str]]]:
    stores = {"much": Store("m", 40), "some": Store("s", 1), "none": Store("n", 0)}
    settings = {"rag": {"interpreters": []}, "selection": {"recall": 0.5, "fewest": 1, **selection}}
    silent = Legs({"text": hits("x"), "vector": hits("y")}, embedder="e")
    async with ContextRouter(
        settings, providers={**stores, "silent": silent}, embedders={"e": Ones()}
    ) as router:
        context = await router.route("moon")
        plan = await router.plan("moon")
    asked = {name: sorted(store.calls) for name, store in stores.items()}
    assert sorted((c.source, c.query.leg) for c in plan.calls) == sorted(
        (r.source, r.leg) for r in context.coverage if r.status == "ok"
    )
    return context, asked


@pytest.mark.case("M31")
async def test_the_leg_of_exact_words_is_left_out_only_where_none_occurs():
    context, asked = await routed({"sources": "promising"})
    assert asked == {"much": ["text", "vector"], "some": ["text"], "none": []}
    skipped = {(r.source, r.leg): r.error for r in context.coverage if r.status == "skipped"}
    assert (
        skipped["none", "text"]
        == skipped["none", "vector"]
        == "no word of the question occurs in it ([selection] sources)"
    )
    assert skipped["some", "vector"].startswith("unlikely to help: 10.9%")
    assert ("silent", "vector") not in skipped
    assert not context.degraded


async def test_all_are_asked_unless_said_otherwise():
    _, asked = await routed({})
    assert asked == {name: ["text", "vector"] for name in ("much", "some", "none")}
