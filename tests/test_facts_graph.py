"""How the entities of a fact source hang together: ways, neighbours, degrees, counts; the same of every
store.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example import CommandLine
from support.postgres_server import open_store, run

from contextrouter import ContextRouter, Interpreter, InterpreterContext
from contextrouter.builtin.facts import graph_walk
from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry, SupportsFacets, SupportsGraph, SupportsNeighbours
from contextrouter.model import Document, Fact, Intent, Period, Query
from contextrouter.scope import Scope

Graph = SqliteFacts | PostgresFacts
EVERYTHING = Query(text="")


def fact(text: str, **fields: Any) -> Fact:
    subject, predicate, object = text.split()
    return Fact(subject=subject, predicate=predicate, object=object, **fields)


def said(facts: Sequence[Fact]) -> list[str]:
    return [f"{each.subject} {each.predicate} {each.object}" for each in facts]


@pytest.fixture(params=["sqlite", "postgres"])
async def graph(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Any, Graph]]:
    """A store, and its facts."""
    if request.param == "postgres":
        async with open_store(embedder=None) as server:
            facts = PostgresFacts(store=server)
            await facts.open()
            yield server, facts
            await facts.aclose()
        return
    file = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await file.open()
    source = SqliteFacts(store=file)
    await source.open()
    yield file, source
    await source.aclose()
    await file.aclose()


async def fill(store: Any, *facts: Fact, id: str = "d", **fields: Any) -> None:
    document = Document(id=id, content="text", **fields)
    await store.upsert([Entry(document=document, chunks=[document], facts=facts)])


@pytest.mark.case("K54")
async def test_the_way_between_two_entities_is_a_shortest_one_in_order(graph: tuple[Any, Graph]) -> None:
    store, source = graph
    assert isinstance(source, SupportsGraph)
    await fill(
        store,
        fact("Ada wrote_to Babbage"),
        fact("Babbage born_in London"),
        fact("London in England"),
        fact("Ada far1 x"),
        fact("x far2 y"),
        fact("y far3 London"),
        fact("lone is island"),
        fact("Charles knows Ada", confidence=0.4),
        fact("Charles is_in London", confidence=0.9),
    )
    way = [
        "Ada wrote_to Babbage",
        "Babbage born_in London",
        "London in England",
    ]  # the other one of three facts is less sure
    assert said(await source.path("ADA", "england", EVERYTHING)) == way
    assert said(await source.path("England", "Ada", EVERYTHING, hops=3)) == way[::-1]
    assert said(await source.path("Ada", "Babbage", EVERYTHING, hops=1)) == ["Ada wrote_to Babbage"]
    for start, goal, hops in [
        ("Ada", "England", 2),
        ("Ada", "island", 10),
        ("Ada", "Ada", 4),
        ("Ada", "", 4),
        ("no", "one", 4),
    ]:
        assert await source.path(start, goal, EVERYTHING, hops=hops) == []
    for hops in (0, 11):
        with pytest.raises(ValueError, match=f"hops {hops} is out of range; give 1 to 10"):
            await source.path("Ada", "London", EVERYTHING, hops=hops)


@pytest.mark.case("SEC-05")
async def test_neighbours_and_counts_say_which_strangers_wrote(graph: tuple[Any, Graph]) -> None:
    store, source = graph
    await fill(store, fact("Ada knows Bob"), fact("Ada knows Cyd"))
    await fill(store, fact("Ada knows Cyd", untrusted=True), fact("Ada met Dan", untrusted=True), id="web")
    neighbours = await source.related("Ada", EVERYTHING)
    assert {e.name: e.untrusted for e in neighbours} == {"Bob": False, "Cyd": True, "Dan": True}
    counts = await source.facets(EVERYTHING, ["object", "predicate"])
    untrusted = {"Bob": False, "Cyd": True, "Dan": True, "knows": True, "met": True}
    assert {facet.value: facet.untrusted for facet in counts} == untrusted


@pytest.mark.case("K53", "K54", "M27")
async def test_ways_and_neighbours_keep_to_scope_and_time(graph: tuple[Any, Graph]) -> None:
    store, source = graph
    old = {"valid_from": datetime(2019, 1, 1, tzinfo=UTC), "valid_to": datetime(2020, 1, 1, tzinfo=UTC)}
    await fill(
        store,
        fact("Ada p Bob"),
        fact("Bob p Cyd", sensitivity="restricted"),
        fact("Bob was Dan", **old),
        tenant="a",
    )
    await fill(store, fact("Ada p Eve"), fact("Bob p Eve"), id="e", tenant="b")
    mine, all_of_it = (
        Query(text="", scope=Scope(tenant="a")),
        Query(text="", scope=Scope(tenant="a", ceiling="restricted")),
    )
    then = Query(text="", period=Period(start=date(2019, 6, 1), end=date(2019, 6, 2)))
    assert await source.path("Ada", "Cyd", mine) == []
    assert said(await source.path("Ada", "Cyd", all_of_it)) == ["Ada p Bob", "Bob p Cyd"]
    assert await source.path("Ada", "Dan", EVERYTHING) == []
    assert said(await source.path("Ada", "Dan", then)) == ["Ada p Bob", "Bob was Dan"]
    for query, expected in ((mine, [("Ada", 1)]), (all_of_it, [("Ada", 1), ("Cyd", 1)])):
        assert [(e.name, e.attributes["degree"]) for e in await source.related("Bob", query)] == expected
    assert [(e.name, e.attributes["degree"]) for e in await source.related("Bob", then)] == [
        ("Ada", 2),
        ("Cyd", 1),
        ("Dan", 1),
        ("Eve", 2),
    ]
    assert [(f.value, f.count) for f in await source.facets(mine, ["entity"])] == [("Ada", 1), ("Bob", 1)]


@pytest.mark.case("K54")
async def test_neighbours_come_with_what_links_them_and_their_degree(graph: tuple[Any, Graph]) -> None:
    store, source = graph
    await fill(
        store,
        fact("Hub knows Ann"),
        fact("Ann knows hub"),
        fact("Hub likes Ann"),
        fact("Hub knows Bob"),
        fact("Bob knows Cyd"),
        fact("Bob knows Dan"),
        fact("Bob sees Dan"),
        fact("Hub is Hub"),
    )
    await fill(store, fact("Hub knows Bob"), id="again")
    found = await source.related("HUB", EVERYTHING)
    assert [(e.name, dict(e.attributes)) for e in found] == [
        ("Ann", {"predicates": ["knows", "likes"], "facts": 3, "degree": 1}),
        ("Bob", {"predicates": ["knows"], "facts": 1, "degree": 3}),
    ]
    assert [e.name for e in await source.related("Hub", Query(text="", limit=1))] == ["Ann"]
    assert [
        await source.related(name, Query(text="", limit=limit))
        for name, limit in (("Hub", 0), ("", 9), ("no", 9))
    ] == [[]] * 3
    assert not isinstance(source, SupportsNeighbours)  # those are of documents


@pytest.mark.case("M09")
async def test_statements_are_counted_before_any_limit_each_once(graph: tuple[Any, Graph]) -> None:
    store, source = graph
    assert isinstance(source, SupportsFacets)
    twice = {"valid_from": datetime(2020, 1, 1, tzinfo=UTC)}
    await fill(
        store, *(fact(f"Ada reads book{n}") for n in range(60)), fact("Bob reads book1"), fact("Ada met Ada")
    )
    await fill(store, fact("ada reads book1"), fact("Ada reads book2", **twice), id="again")
    few = Query(text="", limit=2)
    assert [
        (f.dimension, f.value, f.count) for f in await source.facets(few, ["predicate", "kind", "subject"])
    ] == [("predicate", "reads", 62), ("predicate", "met", 1), ("subject", "Ada", 62), ("subject", "Bob", 1)]
    entities = await source.facets(few, ["entity"])
    assert [(f.value, f.count) for f in entities] == [("Ada", 62), ("book1", 2)]
    assert len(await source.facets(few.replace(limit=100), ["entity"])) == 62
    about = await source.facets(Query(text="Ada", entities=("BOB",)), ["object"])
    assert [(f.value, f.count) for f in about] == [("book1", 1)]


@pytest.mark.case("M11")
async def test_of_a_question_with_two_names_the_facts_that_link_them_come_first(
    graph: tuple[Any, Graph],
) -> None:
    store, source = graph
    await fill(
        store,
        fact("Ada likes tea"),
        fact("Rome has hills"),
        fact("Ada knows Bob", confidence=0.2),
        fact("Bob lives_in Rome", confidence=0.1),
    )
    found = await source.facts(Query(text="How is Ada connected with Rome?"))
    assert said(found) == ["Ada knows Bob", "Bob lives_in Rome", "Ada likes tea", "Rome has hills"]
    assert said(await source.facts(Query(text="Ada")))[0] == "Ada likes tea"


async def test_a_name_that_others_alone_know_does_not_hide_a_shorter_one(graph: tuple[Any, Graph]) -> None:
    store, source = graph
    await fill(store, Fact(subject="New York", predicate="in", object="USA"), tenant="a")
    await fill(store, Fact(subject="New York Times", predicate="is", object="paper"), id="b", tenant="b")
    assert said(await source.facts(Query(text="the New York Times", scope=Scope(tenant="a")))) == [
        "New York in USA"
    ]


_EDGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=14)


@given(edges=_EDGES, start=st.integers(0, 8), goal=st.integers(0, 8), hops=st.integers(1, 5))
@settings(max_examples=200, deadline=None)
@pytest.mark.case("K53")
def test_walks_find_what_a_plain_search_finds(
    edges: list[tuple[int, int]], start: int, goal: int, hops: int
) -> None:
    """A way is as short as one found by trying all, joins up, and is there whenever there is one within the
    hops.
    """
    facts = [(n, fact(f"{a} p {b}"), {str(a), str(b)}) for n, (a, b) in enumerate(edges)]

    def about(names: Sequence[str]) -> list[Any]:
        return [each for each in facts if each[2] & set(names)]

    level, far = {str(start)}, {str(start): 0}
    while level:
        level = {key for _, _, keys in about(sorted(level)) for key in keys if key not in far}
        far.update(dict.fromkeys(level, max(far.values()) + 1))
    way = graph_walk.run_walk(graph_walk.path(str(start), str(goal), hops), about)
    length = far.get(str(goal), 99)
    assert len(way) == (length if 0 < length <= hops else 0)
    at = str(start)
    for each in way:
        at = each.object if each.subject == at else each.subject if each.object == at else "nowhere"
    assert at == (str(goal) if way else str(start))
    found = {
        said([each.fact])[0] for each in graph_walk.run_walk(graph_walk.spread({str(start)}, hops), about)
    }
    assert found == {said([f])[0] for _, f, keys in facts if min(far.get(key, 99) for key in keys) < hops}
    linking = graph_walk.find_linking(sorted({str(start), str(goal)}), {n: keys for n, _, keys in facts})
    assert bool(linking) == (0 < length < 99)
    assert {facts[n][0] for n in linking} >= {n for n, f, _ in facts if any(f is each for each in way)}


class Counting(Interpreter):
    """Asks for counts of entities."""

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Facets by entity."""
        return intent.replace(facets=("entity", "kind"))


@pytest.mark.case("M09")
async def test_facets_of_facts_stand_beside_those_of_documents_in_an_answer(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await store.open()
    await fill(store, fact("Ada knows Bob"))
    await store.aclose()
    router = ContextRouter(
        settings={"rag": {"interpreters": ["counting"]}},
        providers={"docs": store},
        facts={"graph": SqliteFacts(store=store)},
        interpreters={"counting": Counting()},
    )
    async with router:
        context = await router.route("text")
    counted = {(f.dimension, f.value, f.count) for f in context.facets}
    assert counted == {("kind", "document", 1), ("entity", "Ada", 1), ("entity", "Bob", 1)}


def test_graph_commands_show_ways_neighbours_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def filled() -> None:
        store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
        await store.open()
        await fill(
            store,
            fact("Ada knows Bob"),
            fact("Bob lives_in Rome"),
            fact("Bob hides gold", sensitivity="restricted"),
        )
        await store.aclose()

    asyncio.run(filled())
    (tmp_path / "settings.toml").write_text('[facts.graph]\nuse = "sqlite"\npath = "store.db"\n')
    cli = CommandLine(monkeypatch, capsys)
    way = json.loads(cli("graph", "path", "Ada", "Rome", "--json", cwd=tmp_path).out)["graph"]
    assert [(each["subject"], each["object"]) for each in way] == [("Ada", "Bob"), ("Bob", "Rome")]
    assert (
        "no way of at most 1 fact from 'Ada' to 'Rome'"
        in cli("graph", "path", "Ada", "Rome", "--hops", "1").err
    )
    assert "--hops 11 is out of range" in cli("graph", "path", "Ada", "Rome", "--hops", "11").err
    table = cli("graph", "related", "Bob").out
    assert all(word in table for word in ("Ada", "Rome", "gold", "lives_in", "degree"))
    assert "gold" not in cli("graph", "related", "Bob", "--ceiling", "internal").out
    counted = json.loads(cli("graph", "facets", "entity", "--about", "Ada", "--json").out)["graph"]
    assert [(each["value"], each["count"]) for each in counted] == [("Ada", 1), ("Bob", 1)]
    assert "lives_in" in cli("graph", "facets").out
    refused = cli("graph", "path", "Ada", "Rome", "--source", "other")
    assert refused.code != 0
    assert "Those that do: graph." in " ".join(refused.err.split())


# Stores that are shared, and what a crash leaves of them.


def another(store: Any) -> Graph:
    """The facts of the same store, reached as another process would."""
    if isinstance(store, Sqlite):
        return SqliteFacts(path=store.path)
    return PostgresFacts(dsn=store.pool.dsn, schema=store.pool.schema, pool_size=2)


@pytest.mark.case("GRA-09")
async def test_many_ask_one_graph_at_once_while_it_is_written(graph: tuple[Any, Graph]) -> None:
    """No reader waits for a lock, in one process or several; each sees the facts of before or of after,
    whole.
    """
    store, source = graph
    whole = [{f"Ada knows {name}{n}" for n in range(3)} for name in ("Old", "New")]
    await fill(store, *map(fact, sorted(whole[0])))
    other = another(store)
    await other.open()

    async def asked(of: Graph) -> set[str]:
        return set(said(await of.facts(Query(text="Ada"))))

    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(asked(of)) for _ in range(15) for of in (source, other)]
        tasks.create_task(fill(store, *map(fact, sorted(whole[1]))))
    assert all(each.result() in whole for each in readers)
    assert await asked(other) == await asked(source) == whole[1]
    await other.aclose()


@pytest.mark.case("GRA-10")
async def test_a_writer_that_dies_leaves_no_lock_and_no_half_of_its_work(graph: tuple[Any, Graph]) -> None:
    store, source = graph
    await fill(store, fact("Ada knows Bob"))
    if isinstance(store, Sqlite):
        script = "BEGIN IMMEDIATE; DELETE FROM facts"
        code = (
            f"import os, sqlite3; c = sqlite3.connect({store.path!r}); c.executescript({script!r});"
            " os._exit(9)"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code)
        assert await process.wait() == 9
    else:
        connection = await asyncpg.connect(store.pool.dsn)
        await connection.execute(
            f'BEGIN; LOCK TABLE "{store.pool.schema}".facts; DELETE FROM "{store.pool.schema}".facts'
        )
        connection.terminate()  # the socket is shut without a word, as of a process that was killed
    assert said(await source.facts(Query(text="Ada"))) == ["Ada knows Bob"]
    await fill(store, fact("Ada knows Cyd"))
    assert said(await source.facts(Query(text="Ada"))) == ["Ada knows Cyd"]


@pytest.mark.case("GRA-10")
async def test_a_graph_that_cannot_be_asked_degrades_the_answer(tmp_path: Path) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    (tmp_path / "graph.db").write_bytes(b"no database" * 500)
    await store.open()
    await fill(store)
    await store.aclose()
    router = ContextRouter(
        providers={"docs": store}, facts={"graph": SqliteFacts(path=str(tmp_path / "graph.db"))}
    )
    async with router:
        context = await router.route("text")
    assert [envelope.document.id for envelope in context.envelopes] == ["d"]
    assert context.degraded
    (report,) = [report for report in context.coverage if report.source == "graph"]
    assert report.status == "error"
    assert "graph.db" in report.error


@pytest.mark.case("GRA-11")
def test_the_graph_of_the_embedded_store_needs_nothing_but_the_standard_library() -> None:
    code = """
import asyncio, sys
for name in ("numpy", "simsimd", "asyncpg", "networkx", "kuzu", "pydantic"):
    sys.modules[name] = None
from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.model import Query
async def main():
    source = SqliteFacts.example()
    await source.open()
    everything = Query(text="Who founded OpenAI?")
    (fact,) = await source.facts(everything)
    assert [fact] == list(await source.path("Sam Altman", "OpenAI", everything))
    await source.aclose()
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.case("GRA-12")
async def test_nothing_points_to_what_was_deleted_or_replaced(graph: tuple[Any, Graph]) -> None:
    """Facts, links and chunks go in the transaction of their document: none is left behind, whichever way it
    went.
    """
    store, source = graph
    for round in range(3):
        await fill(store, fact(f"Ada knows Bob{round}"), fact("Bob knows Cyd"), links=("e", f"f{round}"))
        await fill(store, fact("Bob knows Cyd"), id="e", links=("d",))
    assert [(await store.stats())[key] for key in ("documents", "chunks", "links", "facts")] == [2, 2, 3, 3]
    assert [f.count for f in await source.facets(EVERYTHING, ["predicate"])] == [2]
    assert await store.delete(["d"]) == 1
    assert [(await store.stats())[key] for key in ("documents", "chunks", "links", "facts")] == [1, 1, 1, 1]
    assert said(await source.path("Bob", "Cyd", EVERYTHING)) == ["Bob knows Cyd"]
    assert await source.related("Ada", EVERYTHING) == []
    assert await store.delete(["e"]) == 1
    assert [(await store.stats())[key] for key in ("documents", "chunks", "links", "facts")] == [0] * 4
    if not isinstance(store, Sqlite):
        orphan = f"INSERT INTO \"{store.pool.schema}\".links VALUES ('', 'nobody', 'd')"
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await run(orphan)
