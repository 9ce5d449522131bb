"""Facts kept in a store: which a question names, in what order, within what scope and time; the same of every
store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.postgres_server import open_store

from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry, SupportsEntities, SupportsVersion
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Document, Entity, Fact, Period, Query
from contextrouter.scope import SHARED, Scope

Store = Sqlite | Postgres


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with _opened(request.param, tmp_path) as store:
        yield store


@asynccontextmanager
async def _opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    if kind == "postgres":
        async with open_store(embedder=None) as store:
            yield store
        return
    file = Sqlite(path=str(folder / "store.db"), embedder=None)
    await file.open()
    yield file
    await file.aclose()


def _source(store: Store, hops: int = 1) -> SqliteFacts | PostgresFacts:
    """The facts of a store, reached on their own."""
    if isinstance(store, Sqlite):
        return SqliteFacts(path=store.path, hops=hops)
    return PostgresFacts(dsn=store.pool.dsn, schema=store.pool.schema, hops=hops, pool_size=2)


async def _fill(store: Store, *facts: Fact, id: str = "d", **fields: Any) -> None:
    document = Document(id=id, content="text", **fields)
    await store.upsert([Entry(document=document, chunks=[document], facts=facts)])


async def _ask(store: Store, text: str, *, hops: int = 1, **query: Any) -> list[Fact]:
    source = _source(store, hops)
    await source.open()
    found = list(await source.facts(Query(text=text, **query)))
    await source.aclose()
    return found


def _triples(facts: Sequence[Fact]) -> list[tuple[str, str, str]]:
    return [(fact.subject, fact.predicate, fact.object) for fact in facts]


OPENAI = Fact(subject="OpenAI", predicate="founded_by", object="Sam Altman")


@pytest.mark.case("R13")
async def test_facts_are_found_by_subject_or_object_in_the_text(store: Store) -> None:
    await _fill(store, OPENAI, Fact(subject="DeepMind", predicate="founded_by", object="Demis Hassabis"))
    assert await _ask(store, "Who founded OpenAI?") == [OPENAI]
    assert await _ask(store, "what did sam altman's friends found") == [OPENAI]
    assert await _ask(store, "Who founded Anthropic?") == []


async def test_given_entities_and_concepts_are_names_too(store: Store) -> None:
    who = Fact(subject="The Who", predicate="is_a", object="band")
    await _fill(store, OPENAI, who)
    assert await _ask(store, "", entities=("openai",)) == [OPENAI]
    assert await _ask(store, "", concepts=("SAM  ALTMAN",)) == [OPENAI]
    assert await _ask(store, "who is the one?") == []  # stop words alone name nothing
    assert await _ask(store, "who is it?", entities=("The Who",)) == [who]


async def test_names_match_whole_words_in_any_case_and_script_longest_first(store: Store) -> None:
    york = Fact(subject="York", predicate="in", object="England")
    new_york = Fact(subject="New York", predicate="in", object="USA")
    times = Fact(subject="New York Times", predicate="is_a", object="newspaper")
    tokyo = Fact(subject="東京タワー", predicate="高さ", object="333 m")
    seoul = Fact(subject="서울", predicate="in", object="Korea")
    zurich = Fact(subject="Zürich", predicate="in", object="Schweiz")
    moscow = Fact(subject="Москва", predicate="in", object="Россия")
    await _fill(store, york, new_york, times, tokyo, seoul, zurich, moscow)
    for text, found in [
        ("the NEW YORK TIMES today", [times]),
        ("a new-york minute", [new_york]),
        ("Yorkshire", []),
        ("york?", [york]),
        ("東京タワーはどこですか", [tokyo]),
        ("서울은 어디", [seoul]),
        ("hotels in zurich", [zurich]),
        ("МОСКВА!", [moscow]),
        ("New York Times and New York", [times, new_york]),
    ]:
        assert sorted(_triples(await _ask(store, text))) == sorted(_triples(found)), text


async def test_order_is_names_matched_then_confidence_then_the_triple(store: Store) -> None:
    facts = [
        Fact(subject="Ada", predicate="knows", object="Bob", confidence=0.1),
        Fact(subject="Ada", predicate="likes", object="tea", confidence=0.9),
        Fact(subject="Ada", predicate="born", object="1815", confidence=0.5),
        Fact(subject="Ada", predicate="aged", object="36", confidence=0.5),
        Fact(subject="Ada", predicate="aged", object="27", confidence=0.5),
    ]
    await _fill(store, *reversed(facts))
    found = await _ask(store, "Does Ada know Bob?")
    assert [(f.predicate, f.object) for f in found] == [
        ("knows", "Bob"),
        ("likes", "tea"),
        ("aged", "27"),
        ("aged", "36"),
        ("born", "1815"),
    ]
    assert await _ask(store, "Does Ada know Bob?", limit=2) == found[:2]
    assert await _ask(store, "Ada", limit=0) == []


async def test_acl_facts_are_held_to_the_scope_before_the_limit(store: Store) -> None:
    hidden = [Fact(subject="Ada", predicate="p", object=f"b{n}", tenant="b") for n in range(50)]
    await _fill(
        store,
        *hidden,
        Fact(subject="Ada", predicate="p", object="all", tenant=SHARED),
        tenant="a",
        sensitivity="internal",
    )
    await _fill(store, Fact(subject="Ada", predicate="p", object="own"), id="own", tenant="a")
    await _fill(store, Fact(subject="Ada", predicate="p", object="none"), id="none")
    await _fill(store, Fact(subject="Ada", predicate="p", object="hr", compartment="hr"), id="hr", tenant="a")

    async def seen(scope: Scope | None) -> list[str]:
        return [
            fact.object
            for fact in await _ask(store, "Ada", scope=scope, limit=3)
            if not fact.object.startswith("b")
        ]

    assert await seen(Scope(tenant="a")) == ["own"]
    assert await seen(Scope(tenant="a", ceiling="internal")) == ["all", "own"]
    assert await seen(Scope(tenant="a", compartments=frozenset({"hr"}))) == ["hr", "own"]
    assert await seen(Scope()) == ["none"]
    assert len(await _ask(store, "Ada", limit=100)) == 54


async def test_facts_take_the_labels_of_their_document(store: Store) -> None:
    await _fill(store, OPENAI, tenant="a", compartment="c", sensitivity="internal")
    (fact,) = await _ask(store, "OpenAI")
    assert (fact.tenant, fact.compartment, fact.sensitivity) == ("a", "c", "internal")


@pytest.mark.case("M27")
async def test_what_holds_now_is_the_default_and_a_period_asks_for_another_time(store: Store) -> None:
    now = datetime.now(UTC)
    old = Fact(
        subject="Ada",
        predicate="lives_in",
        object="Paris",
        valid_from=datetime(2019, 1, 1),
        valid_to=datetime(2020, 1, 1),
    )
    current = Fact(subject="Ada", predicate="lives_in", object="Rome", valid_from=now - timedelta(days=1))
    future = Fact(subject="Ada", predicate="lives_in", object="Oslo", valid_from=now + timedelta(days=1))
    await _fill(store, old, current, future)
    assert [f.object for f in await _ask(store, "Ada")] == ["Rome"]
    year = Period(start=date(2019, 6, 1), end=date(2019, 6, 30))
    assert [f.object for f in await _ask(store, "Ada", period=year)] == ["Paris"]
    assert [
        f.object
        for f in await _ask(store, "Ada", period=Period(start=date(2020, 1, 1), end=date(2020, 1, 1)))
    ] == []
    assert [f.object for f in await _ask(store, "Ada", period=Period(end=date(2019, 1, 1)))] == ["Paris"]
    assert [f.object for f in await _ask(store, "Ada", period=Period())] == ["Oslo", "Paris", "Rome"]


@pytest.mark.case("GRA-01")
async def test_naive_datetimes_are_utc(store: Store) -> None:
    await _fill(
        store, OPENAI.replace(valid_from=datetime(2020, 1, 1), valid_to=datetime(2999, 1, 1, tzinfo=UTC))
    )
    (fact,) = await _ask(store, "OpenAI")
    assert (fact.valid_from, fact.valid_to) == (
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2999, 1, 1, tzinfo=UTC),
    )


@pytest.mark.case("GRA-03", "GRA-04")
async def test_one_fact_in_two_periods_stays_two_and_retires_nothing(store: Store) -> None:
    first = OPENAI.replace(
        valid_from=datetime(2020, 1, 1, tzinfo=UTC), valid_to=datetime(2020, 3, 1, tzinfo=UTC)
    )
    second = OPENAI.replace(valid_from=datetime(2020, 5, 1, tzinfo=UTC))
    other = Fact(subject="OpenAI", predicate="based_in", object="San Francisco")
    await _fill(store, first, second)
    await _fill(store, other, id="e")
    found = await _ask(store, "OpenAI", period=Period(start=date(2020, 1, 1)))
    assert found == [other, first, second]


async def test_one_fact_of_two_documents_comes_once_at_its_best(store: Store) -> None:
    await _fill(store, OPENAI.replace(confidence=0.4))
    await _fill(store, OPENAI.replace(confidence=0.8), id="e")
    assert [fact.confidence for fact in await _ask(store, "OpenAI")] == [0.8]


async def test_facts_are_replaced_with_their_document(store: Store) -> None:
    await _fill(store, OPENAI)
    await _fill(store, Fact(subject="OpenAI", predicate="led_by", object="Sam Altman"))
    assert [fact.predicate for fact in await _ask(store, "OpenAI")] == ["led_by"]
    await store.delete(["d"])
    assert await _ask(store, "OpenAI") == []


async def test_everything_of_a_fact_comes_back(store: Store) -> None:
    fact = OPENAI.replace(source="crunch", confidence=0.25, tenant="t", attributes={"page": 3, "quote": "…"})
    await _fill(store, fact)
    assert await _ask(store, "OpenAI") == [fact]


@pytest.mark.case("K53")
async def test_hops_follow_facts_from_entity_to_entity_and_end_in_circles(store: Store) -> None:
    chain = [Fact(subject=f"node{n}", predicate="next", object=f"node{(n + 1) % 6}") for n in range(6)]
    await _fill(store, *chain)
    for hops, reached in [(1, {0, 5}), (2, {0, 1, 4, 5}), (3, {0, 1, 2, 3, 4, 5}), (10, {0, 1, 2, 3, 4, 5})]:
        found = await _ask(store, "node0", hops=hops)
        assert {int(fact.subject[4:]) for fact in found} == reached
        assert len(found) == len(reached)
        assert {fact.subject for fact in found[:2]} == {"node0", "node5"}  # nearest first
    assert len(await _ask(store, "node0", hops=3, limit=3)) == 3


async def test_hops_do_not_pass_through_what_the_scope_hides(store: Store) -> None:
    await _fill(store, Fact(subject="a1", predicate="p", object="b1", sensitivity="restricted"))
    await _fill(store, Fact(subject="b1", predicate="p", object="c1"), id="e")
    assert await _ask(store, "a1", hops=5, scope=Scope()) == []


@pytest.mark.case("M07")
async def test_entities_bring_what_facts_say_of_them(store: Store) -> None:
    await _fill(
        store,
        Fact(subject="Ada", predicate="email", object="ada@x.org", source="s"),
        Fact(subject="Ada", predicate="child", object="Byron"),
        Fact(subject="Ada", predicate="child", object="Anne"),
        Fact(subject="Bob", predicate="knows", object="Ada"),
        Fact(subject="Ada", predicate="salary", object="9", sensitivity="restricted"),
    )
    source = _source(store)
    assert isinstance(source, SupportsEntities)
    await source.open()
    assert await source.entities(Query(text="What is Ada's email?", scope=Scope())) == [
        Entity(id="ada", name="Ada", attributes={"child": ["Anne", "Byron"], "email": "ada@x.org"}, source="")
    ]
    assert [e.sensitivity for e in await source.entities(Query(text="Ada"))] == [None, "restricted"]
    await source.aclose()


async def test_a_provider_s_file_or_pool_is_shared(store: Store) -> None:
    await _fill(store, OPENAI)
    source = SqliteFacts(store=store) if isinstance(store, Sqlite) else PostgresFacts(store=store)
    await source.open()
    assert await source.facts(Query(text="OpenAI")) == [OPENAI]
    await source.aclose()
    assert await store.version()
    for cls, name in ((SqliteFacts, "sqlite"), (PostgresFacts, "postgres")):
        with pytest.raises(ValueError, match=f"store is a Memory; name a provider that uses '{name}'"):
            cls(store=Memory())


@pytest.mark.parametrize(
    ("cls", "keywords", "said"),
    [
        (SqliteFacts, {"path": "a", "store": Sqlite(path="b")}, "both given"),
        (SqliteFacts, {"path": "a", "hops": 0}, "hops 0 is out of range; give 1 to 10"),
        (SqliteFacts, {"path": "a", "hops": 11}, "hops 11"),
        (SqliteFacts, {"path": ":memory:"}, "no plain file"),
        (PostgresFacts, {"dsn": "a", "store": Postgres(dsn="b")}, "both given"),
        (PostgresFacts, {"hops": 0}, "hops 0 is out of range; give 1 to 10"),
        (PostgresFacts, {"hops": 11}, "hops 11"),
        (PostgresFacts, {"pool_size": 0}, "pool_size 0"),
        (PostgresFacts, {"schema": "A b"}, "no plain name"),
    ],
)
def test_settings_out_of_range_are_refused(
    cls: type[SqliteFacts | PostgresFacts], keywords: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        cls(**keywords)


async def test_a_store_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Neither path nor store"):
        await SqliteFacts().open()
    source = SqliteFacts(path=str(tmp_path / "none.db"))
    with pytest.raises(ValueError, match="not open"):
        await source.facts(Query(text="x"))
    await source.open()
    with pytest.raises(SourceError, match="fill it with `contextrouter ingest`"):
        await source.facts(Query(text="x"))
    with pytest.raises(SourceError, match="does not exist"):
        await source.ping()
    assert await source.version() == ""
    await source.aclose()


async def test_a_database_without_a_store_is_said() -> None:
    async with open_store(embedder=None) as store:
        source = PostgresFacts(dsn=store.pool.dsn, schema=store.pool.schema)
        with pytest.raises(SourceError, match="not open"):
            await source.facts(Query(text="x"))
        await source.open()
        for asked in (source.facts(Query(text="x")), source.entities(Query(text="x")), source.ping()):
            with pytest.raises(
                SourceError, match=r"No store is in schema 'test_\w+' of the database; ingest into it"
            ):
                await asked
        assert await source.version() == ""
        await source.aclose()


async def test_version_follows_the_store_and_a_deadline_is_kept(store: Store) -> None:
    source = _source(store)
    assert isinstance(source, SupportsVersion)
    await source.open()
    await _fill(store, OPENAI)
    first = await source.version()
    assert await source.version() == first
    await _fill(store)
    assert await source.version() != first
    with pytest.raises(SourceTimeout):
        await source.facts(Query(text="OpenAI", deadline=0.0))
    await source.aclose()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_any_text_can_be_asked(kind: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        context = _opened(kind, tmp_path)
        store = runner.run(context.__aenter__())
        runner.run(_fill(store, OPENAI))

        @settings(max_examples=30, deadline=None)
        @given(st.text(max_size=80))
        def ask(text: str) -> None:
            assert runner.run(_ask(store, text + " OpenAI")) == [OPENAI]

        ask()
        runner.run(context.__aexit__(None, None, None))


async def test_long_texts_are_asked_in_time(store: Store) -> None:
    await _fill(store, OPENAI)
    for text in ("word " * 20_000, "東" * 50_000, "OpenAI " * 3_000):
        assert await _ask(store, text) == ([OPENAI] if "OpenAI" in text else [])


@pytest.mark.parametrize("cls", [SqliteFacts, PostgresFacts])
async def test_the_example_works(cls: type[SqliteFacts | PostgresFacts]) -> None:
    source = cls.example()
    await source.open()
    assert _triples(await source.facts(Query(text="Who founded OpenAI?"))) == [
        ("OpenAI", "founded_by", "Sam Altman")
    ]
    await source.aclose()
