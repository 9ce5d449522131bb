"""Hints at entities that are no exact names: "my wife" finds Anna, of whom a fact says so; the same of every
store.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.postgres_server import open_store, run

from contextrouter import Context, ContextRouter, Interpreter, InterpreterContext, Request
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.facts.postgres import PostgresFacts
from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.builtin.providers.entity_texts import StoredFact, describe_entities
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Embedder, SupportsEntityHints, SupportsEntityVectors, Transform
from contextrouter.ingest import ingest
from contextrouter.model import Call, Document, Fact, Harvest, Intent, Plan, Query, Vector
from contextrouter.pipeline.engine import Engine, OpenPlugins
from contextrouter.pipeline.fan_out import fan_out
from contextrouter.scope import Scope

Store = Sqlite | Postgres
QUESTION = "When is my wife's birthday?"


def fact(text: str, **fields: Any) -> Fact:
    subject, predicate, end = text.split(" | ")
    return Fact(subject=subject, predicate=predicate, object=end, **fields)


FAMILY = (
    fact("Anna | is | wife of the user"),
    fact("Anna | birthday | 5 May"),
    fact("Anna | lives_in | Berlin"),
    fact("Bob | is | colleague of the user"),
    fact("Bob | birthday | 1 June"),
    fact("desk | made_of | wood"),
)


class Pages:
    """Documents with facts."""

    def __init__(self, pages: Mapping[str, Sequence[Fact]], **fields: Any) -> None:
        self.pages, self.fields = pages, fields

    async def crawl(self) -> AsyncIterator[Document]:
        for id, facts in self.pages.items():
            yield Document(id=id, content=f"text of {id}: {facts}", **self.fields)


class AddFacts(Transform):
    """Gives each document its facts."""

    def __init__(self, pages: Mapping[str, Sequence[Fact]]) -> None:
        self.pages = pages

    async def transform(self, document: Document) -> Sequence[Document]:
        """The document with the facts of its page."""
        facts = list(self.pages[document.id.rpartition(":")[2]])
        return [document.replace(metadata={"facts": facts})]


class Hints(Interpreter):
    """Says which words of a question may mean an entity."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """The names, as entities."""
        return intent.replace(entities=self.names)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "postgres":
        async with open_store() as server:
            yield server
        return
    file = Sqlite(path=str(tmp_path / "store.db"))
    await file.open()
    yield file
    await file.aclose()


async def fill(store: Store, *facts: Fact, id: str = "family", **fields: Any) -> Any:
    """Run an ingestion job that stores a document with facts."""
    return await bring(store, {id: facts}, origin=id, **fields)


async def bring(
    store: Store, pages: Mapping[str, Sequence[Fact]], origin: str = "pages", **fields: Any
) -> Any:
    embedder = Static()
    await embedder.open()
    report = await ingest(Pages(pages, **fields), store, [AddFacts(pages)], embedder, origin=origin)
    await embedder.aclose()
    return report


def tables(store: Store, **options: Any) -> dict[str, Any]:
    """The settings of a router over a store and its facts."""
    if isinstance(store, Sqlite):
        own: dict[str, Any] = {"use": "sqlite", "path": store.path}
    else:
        own = {"use": "postgres", "dsn": store.pool.dsn, "schema": store.pool.schema}
    return {
        "rag": {"interpreters": ["hints"]},
        "providers": {"lib": own},
        "facts": {"g": {"use": own["use"], "store": "lib", **options}},
    }


async def ask(store: Store, *hints: str, scope: Scope | None = None, **options: Any) -> Context:
    router = ContextRouter(tables(store, **options), interpreters={"hints": Hints(*hints)})
    async with router:
        return await router.route(Request(question=QUESTION, scope=scope))


def said(facts: Sequence[Fact]) -> list[str]:
    return [f"{each.subject} {each.predicate} {each.object}" for each in facts]


def note(context: Context | Harvest, leg: str = "facts") -> str:
    reports = context.reports if isinstance(context, Harvest) else context.coverage
    return next(report.note for report in reports if report.leg == leg)


@asynccontextmanager
async def engine(store: Store) -> AsyncIterator[Engine]:
    """An engine over a store, its facts and the shipped embedder, all open."""
    embedder = Static()
    await embedder.open()
    facts: Any = SqliteFacts(store=store) if isinstance(store, Sqlite) else PostgresFacts(store=store)
    await facts.open()
    yield Engine(plugins=OpenPlugins({"lib": store, "g": facts}, {"default": embedder}))
    await facts.aclose()
    await embedder.aclose()


async def call(store: Store, source: str, leg: str, *entities: str, **fields: Any) -> Harvest:
    """Ask one leg for entities."""
    query = Query(text="what of them?", leg=leg, entities=entities, **fields)
    plan = Plan(intent=Intent(question=query.text), calls=(Call(source=source, query=query),))
    async with engine(store) as running:
        return await fan_out(plan, running)


@pytest.mark.case("M33")
async def test_a_hint_finds_the_entity_whose_facts_say_so(store: Store) -> None:
    report = await fill(store, *FAMILY)
    assert report.entities > 0
    context = await ask(store, "wife")
    assert said(context.facts)[0] == "Anna birthday 5 May"
    assert {each.subject for each in context.facts} == {"Anna"}
    assert note(context) == '"wife" → Anna .79'
    assert 'g/facts: "wife" → Anna .79' in [step.note for step in context.trace.steps]


@pytest.mark.case("M33")
async def test_what_is_no_hint_at_anybody_finds_nobody_and_exact_names_need_no_vectors(store: Store) -> None:
    await fill(store, *FAMILY)
    context = await ask(store, "table")
    assert context.facts == ()
    assert note(context) == '"table" is no name, and no entity is near it'
    exact = await ask(store, "bob")
    assert ({each.subject for each in exact.facts}, note(exact)) == ({"Bob"}, "")


@pytest.mark.case("M33")
async def test_acl_a_hint_finds_nobody_outside_the_caller_s_scope(store: Store) -> None:
    await fill(store, *FAMILY, tenant="a")
    await fill(store, fact("Berta | is | wife of the user"), id="other", tenant="b")
    mine, theirs = (
        await ask(store, "wife", scope=Scope(tenant="a")),
        await ask(store, "wife", scope=Scope(tenant="b")),
    )
    assert ({each.subject for each in mine.facts}, note(mine)) == ({"Anna"}, '"wife" → Anna .79')
    assert {each.subject for each in theirs.facts} == {"Berta"}
    nobody = await ask(store, "wife", scope=Scope(tenant="c"))
    assert (nobody.facts, "Anna" in note(nobody) or "Berta" in note(nobody)) == ((), False)


async def test_what_the_caller_may_not_see_describes_nobody_to_him(store: Store) -> None:
    """The fact that Anna is the wife is restricted: no hint leads from it to the name."""
    await fill(
        store, fact("Anna | is | wife of the user", sensitivity="restricted"), fact("Anna | birthday | 5 May")
    )
    assert (await ask(store, "wife", scope=Scope())).facts == ()
    assert (
        said((await ask(store, "wife", scope=Scope(ceiling="restricted"))).facts)[0] == "Anna birthday 5 May"
    )


@pytest.mark.case("M33")
async def test_the_threshold_is_a_setting_and_three_entities_at_most_match(store: Store) -> None:
    names = ("Anna", "Berta", "Clara", "Dora")
    await fill(store, *(fact(f"{name} | is | wife of the user") for name in names))
    assert note(await ask(store, "wife")) == '"wife" → Anna .79, Berta .79, Clara .79'
    assert (await ask(store, "wife", entity_threshold=0.8)).facts == ()


@pytest.mark.case("M33")
async def test_hints_hold_on_every_leg_that_asks_for_entities(store: Store) -> None:
    await fill(store, *FAMILY, fact("user | alias | the boss"), fact("user | works_at | Siemens"))
    await fill(store, fact("Bob | works_at | Siemens"), fact("Bob | knows | Anna"), id="work")
    (anna,) = (await call(store, "g", "entities", "wife", attribute="Birthdays")).entities
    assert (anna.name, anna.attributes) == ("Anna", {"birthday": "5 May"})
    way = await call(store, "g", "path", "wife", "Siemens")
    assert said(way.facts) == ["Bob knows Anna", "Bob works_at Siemens"]
    (mentions,) = (await call(store, "lib", "mentions", "wife")).lists
    assert [hit.document.parent or hit.document.id for hit in mentions.hits] == ["family:family", "work:work"]
    assert (await call(store, "g", "facets", "wife")).facets[0].value == "Anna"


async def test_vectors_follow_the_facts(store: Store) -> None:
    """Changed and deleted facts take their vectors with them; nothing is embedded twice."""
    pages = {"a": FAMILY, "b": (fact("Carla | is | daughter of the user"),)}
    first = await bring(store, pages)
    again = await bring(store, pages)
    assert first.entities > 0
    assert (again.entities, again.embedded) == (0, 0)
    changed = await bring(store, {"a": FAMILY, "b": (fact("Carla | is | sister of the user"),)})
    assert 0 < changed.entities < first.entities
    assert note(await ask(store, "daughter")) == '"daughter" is no name, and no entity is near it'
    await store.delete(["pages:a"])
    assert (await ask(store, "wife")).facts == ()
    await store.clear()
    assert await store.entity_texts() == []


async def test_the_store_says_what_to_do_where_entities_have_no_vectors(store: Store) -> None:
    await fill(store, *FAMILY)
    if isinstance(store, Sqlite):
        with sqlite3.connect(store.path) as connection:
            connection.execute("DROP TABLE entities")
            connection.execute("PRAGMA user_version = 2")
        connection.close()
        remedy = "run `contextrouter ingest`"
    else:
        place = store.pool.schema
        await run(f'DROP TABLE "{place}".entities')
        await run(f'DROP FUNCTION "{place}".frequent_terms CASCADE')
        await run(f"UPDATE \"{place}\".meta SET value = '3' WHERE key = 'schema'")
        remedy = "run `contextrouter db migrate`, then `contextrouter ingest`"
    context = await ask(store, "wife", "Bob")
    assert {each.subject for each in context.facts} == {"Bob"}  # names are found as before
    assert '"wife" not looked for by meaning: ' in note(context)
    assert remedy in note(context)
    if isinstance(store, Postgres):
        assert await store.migrate() == [4, 5]
    assert (await bring(store, {"family": FAMILY}, origin="family")).entities > 0  # of unchanged documents
    assert note(await ask(store, "wife")) == '"wife" → Anna .79'


class Broken(Embedder):
    """An embedder whose server is down, or hangs."""

    dimensions = 256

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """No vector."""
        if self.hangs:
            await asyncio.sleep(3600)
        raise OSError("server is down")


@pytest.mark.parametrize(("hangs", "why"), [(False, "server is down"), (True, "did not answer in time")])
async def test_exact_names_are_found_without_the_embedder(tmp_path: Path, hangs: bool, why: str) -> None:
    store = Sqlite(path=str(tmp_path / "store.db"))
    await store.open()
    await fill(store, *FAMILY)
    query = Query(text="?", leg="facts", entities=("wife", "Bob"))
    plan = Plan(intent=Intent(question="?"), calls=(Call(source="g", query=query, timeout=1.0),))
    facts = SqliteFacts(store=store)
    await facts.open()
    plugins = OpenPlugins({"g": facts}, {"default": Broken(hangs=hangs)})
    harvest = await fan_out(plan, Engine(plugins=plugins))
    assert {each.subject for each in harvest.facts} == {"Bob"}
    assert why in note(harvest)
    await facts.aclose()
    await store.aclose()


def test_stores_have_the_abilities() -> None:
    for plugin in (Sqlite(path="x.db"), Postgres()):
        assert isinstance(plugin, SupportsEntityHints)
        assert isinstance(plugin, SupportsEntityVectors)
        source: Any = SqliteFacts(store=plugin) if isinstance(plugin, Sqlite) else PostgresFacts(store=plugin)
        assert isinstance(source, SupportsEntityHints)
        assert source.embedder == "default"
    every: list[tuple[Any, dict[str, Any]]] = [(Sqlite, {"path": "x"}), (Postgres, {}), (SqliteFacts, {})]
    for cls, keywords in (*every, (PostgresFacts, {})):
        with pytest.raises(
            ValueError, match=r"entity_threshold 2\.0 is no cosine; give a number from -1 to 1"
        ):
            cls(entity_threshold=2.0, **keywords)


def test_texts_about_an_entity_are_name_aliases_and_a_line_of_facts() -> None:
    def stored(text: str, valid_to: int | None = None) -> StoredFact:
        subject, predicate, end = text.split(" | ")
        return StoredFact(subject, predicate, end, subject.lower(), end.lower(), valid_to, "", "", "")

    facts = [
        stored("Anna | also_known_as | Annie"),
        stored("Anna | is | baker"),
        stored("Anna | livesIn | Berlin"),
        stored("user | wife | Anna"),
        stored(
            "Anna | works_at | Old Mill", valid_to=int(datetime(2020, 1, 1, tzinfo=UTC).timestamp() * 1e6)
        ),
    ]
    labels = ("", "", "")
    anna, baker, number = describe_entities(
        [("anna", labels), ("baker", labels), ("5", labels)], [*facts, stored("x | has | 5")]
    )
    assert anna.texts == (
        "Anna",
        "Annie",
        "baker",
        "wife of user",
        "Anna: baker, wife of user, lives in Berlin",
    )
    assert (baker.texts, number.texts) == ((), ())  # what another is, and a number, are nobody
