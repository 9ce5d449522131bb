"""Exclusions and phrases in a question hold for every source of the router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.hostile import ALLOWED, Hostile, send
from support.postgres_server import open_store

from contextrouter import Context, ContextRouter, Document, Source
from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.connectors.rss import Rss
from contextrouter.builtin.connectors.web import Web
from contextrouter.builtin.interpreters.taxonomy import Taxonomy
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry, Provider
from contextrouter.model import Hit
from contextrouter.testing import Fixed

TEXTS = {
    "guide": "The guide lists connections between the cities of the north, and the trains that serve them.",
    "town": "The town is the oldest of the cities, and people of all trades have lived in it for long.",
    "lesson": "This lesson is about machine learning for people who have never written a program before.",
    "age": "In the machine age many workers went to school in the evening for learning by heart.",
}
Sources = Callable[[Path, dict[str, str]], AbstractAsyncContextManager[Source]]


async def fill(store: Provider, texts: dict[str, str], **fields: Any) -> None:
    documents = [Document(id=name, title=name, content=text, **fields) for name, text in texts.items()]
    await store.upsert([Entry(document=document, chunks=[document]) for document in documents])


@asynccontextmanager
async def memory(tmp_path: Path, texts: dict[str, str]) -> AsyncIterator[Source]:
    store = Memory()
    await fill(store, texts)
    yield store


@asynccontextmanager
async def sqlite(tmp_path: Path, texts: dict[str, str]) -> AsyncIterator[Source]:
    store = Sqlite(path=str(tmp_path / "store.db"), embedder=None)
    await store.open()
    await fill(store, texts)
    yield store
    await store.aclose()


@asynccontextmanager
async def postgres(tmp_path: Path, texts: dict[str, str]) -> AsyncIterator[Source]:
    async with open_store(embedder=None) as store:
        await fill(store, texts)
        yield store


@asynccontextmanager
async def files(tmp_path: Path, texts: dict[str, str]) -> AsyncIterator[Source]:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(f"# {name}\n\n{text}\n", "utf-8")
    source = Files(path=str(folder))
    await source.open()
    yield source
    await source.aclose()


@asynccontextmanager
async def rss(tmp_path: Path, texts: dict[str, str]) -> AsyncIterator[Source]:
    feed = tmp_path / "feed.xml"
    items = "".join(
        f"<item><title>{name}</title><link>https://example.com/{name}</link><guid>{name}</guid>"
        f"<description>{text}</description></item>"
        for name, text in texts.items()
    )
    feed.write_text(f"<rss version='2.0'><channel><title>x</title>{items}</channel></rss>", "utf-8")
    source = Rss(paths=[str(feed)])
    await source.open()
    yield source
    await source.aclose()


@asynccontextmanager
async def web(tmp_path: Path, texts: dict[str, str]) -> AsyncIterator[Source]:
    async with Hostile() as server:
        for name, text in texts.items():
            page = f"<html lang='en'><head><title>{name}</title></head><body><article><h1>{name}</h1>"
            body = f"{page}<p>{text}</p></article></body></html>".encode()
            server.more[f"/{name}"] = lambda writer, _, body=body: send(
                writer, "200 OK", body, {"Content-Type": "text/html; charset=utf-8"}
            )
        source = Web(
            urls=[f"{server.url}/{name}" for name in texts],
            allow_private=ALLOWED,
            retries=0,
            extract_seconds=30.0,
        )
        await source.open()
        yield source
        await source.aclose()


SOURCES: dict[str, Sources] = {f.__name__: f for f in (memory, sqlite, postgres, files, rss, web)}
"""Each kind of source that finds words; filled with texts by name."""


def router_of(*listed: Source) -> ContextRouter:
    """A router with its default settings over these sources."""
    stores = {f"p{n}": source for n, source in enumerate(listed) if isinstance(source, Provider)}
    connectors = {f"c{n}": source for n, source in enumerate(listed) if not isinstance(source, Provider)}
    return ContextRouter(providers=stores, connectors=connectors)


def names(context: Context) -> set[str]:
    """Which of the texts the answer has."""
    return {name for name in TEXTS for e in context.envelopes if TEXTS[name][:30] in e.document.content}


def notes(context: Context) -> list[str]:
    """What the reports of the sources say of loosened phrases."""
    return [report.note for report in context.coverage if report.note]


@pytest.mark.case("SQL-03", "PG-10", "USE-21", "C08")
@pytest.mark.parametrize("kind", SOURCES)
async def test_exclusions_and_phrases_hold(kind: str, tmp_path: Path) -> None:
    async with SOURCES[kind](tmp_path, TEXTS) as source, router_of(source) as router:

        async def ask(question: str) -> set[str]:
            return names(await router.route(question))

        assert await ask("cities") == {"guide", "town"}
        assert await ask("cities -connections") == {"town"}
        assert await ask("cities -connection") == {"town"}  # in any inflection
        assert await ask("What of the cities -connected?") == {"town"}
        assert await ask('Which cities are there -"oldest of the cities"') == {"guide"}
        assert await ask("-connections") == set()
        assert await ask("connected") == {"guide"}
        assert await ask("machine learning") == {"lesson", "age"}
        assert await ask('"machine learning"') == {"lesson"}
        assert await ask('What lessons are there about "machine learning" for people?') == {"lesson"}
        assert await ask('"machine learning" OR "oldest of the cities"') == {"lesson", "town"}
        assert notes(await router.route('"machine learning"')) == []


@pytest.mark.case("C08")
@pytest.mark.parametrize("kind", SOURCES)
async def test_where_a_phrase_finds_nothing_its_words_count_and_the_trace_says_so(
    kind: str, tmp_path: Path
) -> None:
    async with SOURCES[kind](tmp_path, TEXTS) as source, router_of(source) as router:
        context = await router.route('"learning machine" -lesson')
        assert names(context) == {"age"}
        said = 'phrase "learning machine" found nothing; its words were searched'
        assert notes(context) == [said]
        (step,) = [step for step in context.trace.steps if step.name == "fan_out"]
        assert said in step.note


@pytest.mark.case("C08")
async def test_a_part_without_the_phrase_counts_only_where_the_phrase_finds_nothing(tmp_path: Path) -> None:
    question = 'People learn "{}" in lessons. Which cities had connections?'
    async with SOURCES["memory"](tmp_path, TEXTS) as source, router_of(source) as router:
        context = await router.route(question.format("machine learning"))
        assert names(context) == {"lesson"}
        assert notes(context) == ["not used: the question has a phrase, which was found"]
        context = await router.route(question.format("learning machine"))
        assert "guide" in names(context)
        told = "found nothing; the parts of the question without it count"
        assert notes(context)
        assert all(note.endswith(told) for note in notes(context))


@pytest.mark.case("SQL-03")
async def test_a_question_that_only_excludes_asks_nobody() -> None:
    source = Fixed("a b")
    async with ContextRouter(connectors={"all": source}) as router:
        context = await router.route("-38.101")
    assert (context.outcome, source.queries) == ("empty", [])
    assert context.trace.plan.excluded == {"all/default": "the question only says what to leave out"}


@pytest.mark.case("USE-21")
async def test_derived_queries_keep_what_the_question_excludes_and_its_phrases() -> None:
    async with ContextRouter(connectors={"all": Fixed("a")}) as router:
        for question in ("How does a cpu -staging work?", "What is cpu versus gpu -staging"):
            plan = await router.plan(question)
            assert len(plan.calls) > 1
            assert {call.query.excluded for call in plan.calls} == {("staging",)}
            assert all("-staging" in call.query.text for call in plan.calls)
        plan = await router.plan('What is "the exact phrase" about?')
        assert len(plan.calls) > 1
        assert all('"the exact phrase"' in call.query.text for call in plan.calls)
        plan = await router.plan('"exact phrase" OR x')
        assert [call.query.text for call in plan.calls] == ['"exact phrase" OR x']


@pytest.mark.case("C08")
async def test_a_source_that_ignores_the_syntax_obeys_exclusions_all_the_same() -> None:
    hits = [
        Hit(document=Document(id=name, content=text, title=name, path=(f"on {name}s",)))
        for name, text in TEXTS.items()
    ]
    ignoring = Fixed(hits, careless=True)
    async with ContextRouter(connectors={"all": ignoring}) as router:
        context = await router.route("cities -connection")
        assert names(context) == {"town", "lesson", "age"}
        assert {report.withheld for report in context.coverage} == {1}
        assert names(await router.route('cities -"machine learning"')) == {"guide", "town", "age"}
        assert names(await router.route("cities -towns")) == {"guide", "lesson", "age"}  # its title
        assert names(await router.route('cities -"on age"')) == {"guide", "town", "lesson"}  # its path
        assert names(await router.route('"machine learning"')) == {*TEXTS}  # phrases do not bind it


@pytest.mark.case("C08")
async def test_exclusions_know_the_inflections_of_the_document_s_language() -> None:
    hits = [
        Hit(document=Document(id="de", content="Die alten Häuser am Fluss", language="de-AT")),
        Hit(document=Document(id="fr", content="Les vieux journaux", language="fr")),
    ]
    async with ContextRouter(connectors={"all": Fixed(hits, careless=True)}) as router:
        context = await router.route("Fluss -Haus")
    assert [envelope.document.id for envelope in context.envelopes] == ["fr"]


@pytest.mark.case("PG-09")
async def test_stop_words_are_those_of_the_configuration_and_or_chooses_any_word() -> None:
    texts = {"need": "Die Not der Menschen war gross.", "bread": "Rezept für Brot"}
    for keywords, fields in (
        ({"text_search": "german"}, {}),
        ({"text_search": "simple"}, {}),
        ({"languages": ["de"]}, {"language": "de"}),
    ):
        async with open_store(embedder=None, **keywords) as store:
            await fill(store, texts, **fields)
            async with router_of(store) as router:
                context = await router.route("Not Rezept")
        assert {envelope.document.id for envelope in context.envelopes} == {"need", "bread"}, keywords
    store = Memory()
    await fill(store, {"just": "Just is a command runner", "cpu": "A cpu runs commands"})
    async with router_of(store) as router:
        context = await router.route("Just OR cpu")
    assert {envelope.document.id for envelope in context.envelopes} == {"just", "cpu"}


WORDS = st.sampled_from("sun suns moon moons star tide tides red".split())
TEXT = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
INFLECTED = {"suns": "sun", "moons": "moon", "tides": "tide"}


def plain(text: str) -> list[str]:
    """Words without their endings, by hand."""
    return [INFLECTED.get(word, word) for word in text.split()]


def has(text: str, phrase: str) -> bool:
    words, looked_for = plain(text), plain(phrase)
    size = len(looked_for)
    return any(words[at : at + size] == looked_for for at in range(len(words) - size + 1))


async def ask(texts: Sequence[str], question: str) -> tuple[Context, Context]:
    """Ask a store, and then the same store beside a source that ignores all syntax."""
    documents = [Document(id=f"d{n}", content=text) for n, text in enumerate(texts)]
    store = Memory()
    await store.upsert([Entry(document=document, chunks=[document]) for document in documents])
    ignoring = Fixed([Hit(document=document) for document in documents], careless=True)
    async with router_of(store) as router:
        alone = await router.route(question)
    async with router_of(store, ignoring) as router:
        return alone, await router.route(question)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, min_size=1, max_size=6), TEXT, st.lists(WORDS, min_size=1, max_size=2))
def test_no_document_has_what_the_question_excludes(
    texts: list[str], looked_for: str, excluded: list[str]
) -> None:
    phrase = " ".join(excluded)
    for context in asyncio.run(ask(texts, f'{looked_for} -"{phrase}"')):
        assert [e.document.content for e in context.envelopes if has(e.document.content, phrase)] == []


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, min_size=1, max_size=6), TEXT, st.lists(WORDS, min_size=2, max_size=3))
def test_the_text_leg_has_the_phrase_or_the_trace_says_that_nothing_has(
    texts: list[str], looked_for: str, words: list[str]
) -> None:
    phrase = " ".join(words)
    alone, _ = asyncio.run(ask(texts, f'{looked_for} "{phrase}"'))
    having = {text for text in texts if has(text, phrase)}
    returned = {envelope.document.content for envelope in alone.envelopes}
    if having:
        assert returned == having
        assert notes(alone) == []
    else:
        assert notes(alone)
        assert notes(alone)[0] in "; ".join(step.note for step in alone.trace.steps)


@pytest.mark.case("C08")
async def test_concepts_are_not_read_from_what_the_question_excludes() -> None:
    taxonomy = Taxonomy(concepts={"Statistics": ["statistics"]}, as_labels=True)
    labels = {}
    router = ContextRouter(
        {"rag": {"interpreters": ["subjects"]}},
        connectors={"all": Fixed("a")},
        interpreters={"subjects": taxonomy},
    )
    async with router:
        for question in ("learning statistics", "learning -statistics"):
            labels[question] = (await router.plan(question)).intent.labels
    assert labels == {"learning statistics": ("Statistics",), "learning -statistics": ()}
