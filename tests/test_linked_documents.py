"""The stages that use links, through the router, over real stores: `centrality` and `neighbours`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.postgres_server import open_store as open_postgres
from support.stores import entry, open_memory, open_sqlite

from contextrouter import Context, ContextRouter, Embedder, Request, Scope, Vector
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.stages.centrality import Centrality
from contextrouter.builtin.stages.neighbours import Neighbours
from contextrouter.contracts import Entry
from contextrouter.testing import Fixed, envelope, stage_context

QUESTION = "quantum physics"


class Plane(Embedder):
    """Every question points to the right."""

    dimensions, model = 2, "plane-1"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        return [[1.0, 0.0] for _ in texts]


def at(similarity: float) -> list[float]:
    """A unit vector of that cosine with the question."""
    return [similarity, (1 - similarity**2) ** 0.5]


def physics(*, dense: bool = True) -> list[Entry]:
    """Bohr links to Quantum_mechanics, which links to nine pages: degrees 1 and 10. Dense: each page links to
    the next two, 28 links of 11 articles; otherwise 10 of 11.
    """
    pages = [f"page {n}" for n in range(9)]
    return [
        entry("Bohr", "x", vector=at(0.9), links=("Quantum_mechanics",)),
        entry("Quantum_mechanics", "x", vector=at(0.8), links=tuple(pages)),
        *(
            entry(page, "x", vector=at(0.0), links=(pages[(n + 1) % 9], pages[(n + 2) % 9]) if dense else ())
            for n, page in enumerate(pages)
        ),
    ]


async def ask(
    stores: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]], limit: int = 30, **request: Any
) -> tuple[Context, dict[str, str]]:
    """Return the answer, and the note of each step."""
    settings = {
        "rag": {"stages": list(stages), "interpreters": [], "general_retrieval_final_count": 50},
        "providers": {name: {"legs": ["vector"], "limit": limit} for name in stores},
        "stages": stages,
    }
    async with ContextRouter(settings, providers=stores, embedders={"default": Plane()}) as router:
        context = await router.route(Request(question=QUESTION, **request))
    return context, {step.name: step.note for step in context.trace.steps}


def scores(context: Context) -> dict[str, float]:
    return {e.document.id: round(e.score, 6) for e in context.envelopes}


KINDS = {"memory": open_memory, "sqlite": open_sqlite, "postgres": open_postgres}


@pytest.fixture(params=list(KINDS))
async def wiki(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """An empty store of each kind."""
    async with KINDS[request.param]() as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
async def lasting(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """An empty store of each kind that knows neighbours."""
    async with KINDS[request.param]() as store:
        yield store


LINEAR = {"mode": "linear", "weight": 0.4, "over": "graph", "reads": "similarity"}


@pytest.mark.case("K18", "K20")
async def test_the_hub_of_the_whole_graph_overtakes_a_nearer_document(wiki: Any):
    """0.6 × 0.8 + 0.4 × 10/10 = 0.88; 0.6 × 0.9 + 0.4 × 1/10 = 0.58; a page: 0.4 × 5/10."""
    await wiki.upsert(physics())
    context, notes = await ask({"wiki": wiki}, {"centrality": LINEAR})
    assert list(scores(context).items())[:3] == [("Quantum_mechanics", 0.88), ("Bohr", 0.58), ("page 0", 0.2)]
    assert context.envelopes[0].signals["centrality"] == 1.0
    assert notes["centrality"] == ""


@pytest.mark.case("K19")
async def test_by_ranks_the_hub_of_the_whole_graph_does_not_overtake(wiki: Any):
    """1/61 + 0.5/62 = 0.024458; 1/62 + 0.5/61 = 0.024326."""
    await wiki.upsert(physics())
    context, _ = await ask({"wiki": wiki}, {"centrality": {"over": "graph"}}, limit=2)
    assert list(scores(context).items()) == [("Bohr", 0.024458), ("Quantum_mechanics", 0.024326)]


@pytest.mark.case("K21")
async def test_fewer_than_two_links_an_article_over_the_graph_switch_it_off(wiki: Any):
    await wiki.upsert(physics(dense=False))
    context, notes = await ask({"wiki": wiki}, {"centrality": LINEAR})
    assert list(scores(context))[:2] == ["Bohr", "Quantum_mechanics"]
    assert "centrality" not in context.envelopes[0].signals
    assert notes["centrality"] == "off: 0.9 links per document in 'wiki', fewer than 2"
    assert not context.degraded


@pytest.mark.case("K21")
async def test_exactly_two_links_an_article_switch_it_on():
    ring = [f"d{n}" for n in range(5)]
    async with open_memory() as store:
        await store.upsert(
            [
                entry(id, "x", vector=at(0.5), links=(ring[(n + 1) % 5], ring[(n + 2) % 5]))
                for n, id in enumerate(ring)
            ]
        )
        context, notes = await ask({"wiki": store}, {"centrality": LINEAR})
        assert [e.signals["centrality"] for e in context.envelopes] == [1.0] * 5
        await store.upsert([entry("d5", "x", vector=at(0.4), links=("d0",))])
        _, notes = await ask({"wiki": store}, {"centrality": LINEAR})
    assert notes["centrality"] == "off: 1.83 links per document in 'wiki', fewer than 2"


async def test_links_that_the_caller_may_not_see_do_not_count():
    """For the public, Quantum_mechanics has one link; the others lead to secret pages."""
    async with open_sqlite() as store:
        secret = [
            each
            if each.document.id in ("Bohr", "Quantum_mechanics")
            else entry(each.document.id, "x", links=each.document.links, sensitivity="restricted")
            for each in physics()
        ]
        await store.upsert(secret)
        open_to_all = {**LINEAR, "least_links": 0.0}
        context, _ = await ask({"wiki": store}, {"centrality": open_to_all}, scope=Scope())
        assert {e.document.id: e.signals["centrality"] for e in context.envelopes} == {
            "Bohr": 1.0,
            "Quantum_mechanics": 1.0,
        }
        context, _ = await ask(
            {"wiki": store}, {"centrality": open_to_all}, scope=Scope(ceiling="restricted")
        )
        assert context.envelopes[0].document.id == "Quantum_mechanics"


async def test_another_store_may_hold_the_graph_and_says_which_documents_it_does_not_know():
    async with open_memory() as texts, open_memory() as graph:
        await texts.upsert([*physics(), entry("stranger", "x", vector=at(0.7))])
        await graph.upsert([entry(e.document.id, "", links=e.document.links) for e in physics()])
        stage = {**LINEAR, "over": "graph_store"}
        context, notes = await ask({"texts": texts, "graph_store": graph}, {"centrality": stage})
        assert list(scores(context))[:3] == ["Quantum_mechanics", "Bohr", "stranger"]
        assert scores(context)["stranger"] == 0.42
        assert notes["centrality"] == "'graph_store' does not know 1 of 12 documents"
        _, notes = await ask({"texts": texts}, {"centrality": {**LINEAR, "over": "grph"}})
    assert notes["centrality"] == "failed: ValueError: over 'grph' is no source that counts links."


async def test_without_a_source_that_counts_links_the_order_stays_and_the_note_says_why():
    given_, notes = [envelope("a"), envelope("b", 2)], []
    context = stage_context(sources={"docs": Fixed([])}, notes=notes)
    assert await Centrality(over="graph").apply(given_, context) == given_
    assert notes == ["off: no source of the documents counts links"]


@pytest.mark.parametrize("keys", [{"over": ""}, {"reads": "", "mode": "linear"}, {"reads": "similarity"}])
def test_keys_of_centrality_that_make_no_sense_are_refused_by_name(keys: dict[str, Any]):
    with pytest.raises(ValueError, match=f"^{next(iter(keys))} "):
        Centrality(**keys)


@given(
    cosines=st.lists(st.floats(-1, 1), min_size=1, max_size=8),
    links=st.lists(st.lists(st.integers(0, 7), max_size=6), min_size=8, max_size=8),
    weight=st.floats(0, 1),
)
async def test_linear_scores_are_the_weighted_mean_and_lie_in_their_range(
    cosines: list[float], links: list[list[int]], weight: float
):
    store = Memory()
    entries = [entry(f"d{n}", "x", links=tuple(f"d{to}" for to in links[n])) for n in range(len(cosines))]
    await store.upsert(entries)
    candidates = [envelope(e.document, 1, cosine) for e, cosine in zip(entries, cosines, strict=True)]
    stage = Centrality(
        mode="linear", over="graph", reads="similarity", legs=["default"], weight=weight, least_links=0.0
    )
    result = await stage.apply(candidates, stage_context(sources={"docs": store}))
    degrees = (await store.degrees([e.document.id for e in candidates])).degrees
    assert sorted(e.document.id for e in result) == sorted(e.document.id for e in candidates)
    if largest := max(degrees.values()):
        for each in result:
            share = degrees[each.document.id] / largest
            expected = (1 - weight) * each.provenance[0].score + weight * share
            assert each.score == pytest.approx(expected)
            assert 0 <= each.normalized <= 1
        assert [e.score for e in result] == sorted((e.score for e in result), reverse=True)
    else:
        assert result == candidates


# Neighbours.

CHAIN = [
    entry(f"d{n}", f"text {n}", vector=at(0.9 if n == 0 else 0.0), links=(f"d{n + 1}",)) for n in range(13)
]


@pytest.mark.parametrize(
    ("keys", "ids", "note"),
    [
        ({}, ["d0", "d1"], "1 added: 1 at 1 hop"),
        ({"hops": 2}, ["d0", "d1", "d2"], "2 added: 1 at 1 hop, 1 at 2 hops"),
        ({"hops": 3}, ["d0", "d1", "d2"], "2 added: 1 at 1 hop, 1 at 2 hops"),
        ({"hops": 3, "add": 4}, ["d0", "d1", "d2", "d3"], "3 added: 1 at 1 hop, 1 at 2 hops, 1 at 3 hops"),
        ({"hops": 10, "add": 20, "most": 30}, [f"d{n}" for n in range(11)], None),
    ],
)
@pytest.mark.case("K53")
async def test_neighbours_are_followed_over_hops_the_nearer_first(
    lasting: Any, keys: dict[str, Any], ids: list[str], note: str | None
):
    await lasting.upsert(CHAIN)
    context, notes = await ask({"wiki": lasting}, {"neighbours": keys}, limit=1)
    assert [e.document.id for e in context.envelopes] == ids
    assert note is None or notes["neighbours"] == note
    assert [e.signals["neighbour"] for e in context.envelopes[1:]] == [1 / n for n in range(1, len(ids))]


async def test_circles_end_and_a_document_comes_in_once():
    """The start links to a and b; both link to c, and c back to the start."""
    async with open_sqlite() as store:
        await store.upsert(
            [
                entry("start", "s", vector=at(0.9), links=("a", "b")),
                entry("a", "1", vector=at(0.0), links=("c", "b")),
                entry("b", "2", vector=at(0.0), links=("c",)),
                entry("c", "3", vector=at(0.0), links=("start",)),
            ]
        )
        stage = {"hops": 10, "add": 6}
        context, notes = await ask({"wiki": store}, {"neighbours": stage}, limit=1)
    # c is a hop away as well: it links to the start
    assert [e.document.id for e in context.envelopes] == ["start", "a", "b", "c"]
    assert notes["neighbours"] == "3 added: 3 at 1 hop"


async def test_the_way_does_not_lead_through_hidden_or_filtered_documents():
    """start → secret → d, start → book → e, start → web → f. Only books are asked for."""
    async with open_sqlite() as store:
        await store.upsert(
            [
                entry("start", "s", vector=at(0.9), links=("secret", "book", "web"), kind="book"),
                entry("secret", "1", sensitivity="restricted", links=("d",), kind="book"),
                entry("book", "2", links=("e",), kind="book"),
                entry("web", "3", links=("f",), kind="web"),
                *(entry(id, id, kind="book") for id in "def"),
            ]
        )
        stage = {"hops": 2, "add": 6}
        context, _ = await ask(
            {"wiki": store}, {"neighbours": stage}, limit=1, scope=Scope(), kinds=("book",)
        )
    assert [e.document.id for e in context.envelopes] == ["start", "book", "e"]


async def test_documents_that_are_there_already_are_ways_to_others():
    """a is among the results; b is behind it."""
    async with open_memory() as plain, open_sqlite() as store:
        await store.upsert(
            [
                entry("start", "s", vector=at(0.9), links=("a",)),
                entry("a", "1", vector=at(0.8), links=("b",)),
                entry("b", "2"),
            ]
        )
        context, notes = await ask({"wiki": store, "plain": plain}, {"neighbours": {"hops": 2}}, limit=2)
    assert [e.document.id for e in context.envelopes] == ["start", "a", "b"]
    assert notes["neighbours"] == "1 added: 1 at 2 hops"


@pytest.mark.parametrize("hops", [0, 11, -1])
@pytest.mark.case("K53")
def test_hops_are_1_to_10(hops: int):
    with pytest.raises(ValueError, match=f"^hops {hops} is not between 1 and 10"):
        Neighbours(hops=hops)
