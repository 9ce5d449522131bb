"""The code that all adapters to other frameworks share, without any of them."""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from contextrouter import (
    Connector,
    ContextRouter,
    Document,
    Hit,
    Portal,
    Query,
    Scope,
    SettingsError,
    SourceError,
)
from contextrouter.adapting import (
    RetrieverSource,
    all_of,
    coverage_of,
    metadata_of,
    portal_of,
    secret_in,
    text_of,
)
from contextrouter.model import SEARCH_TEXT, Envelope
from contextrouter.testing import subject_of, verdict

TABLES = {"providers": {"notes": {"use": "memory", "documents": [{"id": "n", "content": "Otters swim."}]}}}


class Found(NamedTuple):
    """What the retriever of another framework gives."""

    text: str
    metadata: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    id: str | None = None
    score: Any = None


class Retriever:
    """A retriever of another framework: gives what it has, or waits."""

    def __init__(self, *found: Found) -> None:
        self.found, self.asked = found, threading.Event()

    def ask(self, text: str) -> Sequence[Found]:
        self.asked.set()
        return self.found


class Endless(Retriever):
    """Blocks its thread until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def ask(self, text: str) -> Sequence[Found]:
        self.asked.set()
        self.release.wait(10)
        return []


class FromOther(RetrieverSource):
    """Asks a retriever of another framework."""

    @classmethod
    def example(cls) -> FromOther:
        return cls(Retriever(Found("Otters swim.", {"title": "Otters"}, "o"), Found("Seals swim.", id="s")))

    def check(self, retriever: Any) -> None:
        if not isinstance(retriever, Retriever):
            raise TypeError(f"{retriever!r} is no retriever.")

    def retrieve(self, text: str, limit: int) -> Sequence[Found]:
        found: Sequence[Found] = self.retriever.ask(text)
        return found

    async def aretrieve(self, text: str, limit: int) -> Sequence[Found]:
        return self.retrieve(text, limit)

    def to_hit(self, item: Any) -> Hit:
        return self.make_hit(item.text, item.metadata, id=item.id, score=item.score)


async def route(source: Connector, tables: Any = None, **fields: Any) -> Any:
    async with ContextRouter(tables or {}, connectors={"other": source}) as router:
        return await router.route("otters that swim", **fields)


@pytest.mark.case("NEW-49")
async def test_metadata_is_json_and_says_where_a_document_is_from():
    class Numpy(Connector):
        async def search(self, query: Query) -> Sequence[Hit]:
            document = Document(
                id="o",
                title="Otters",
                content="Otters\u200b swim.",
                url="https://sea.example.org/o",
                metadata={"depth": np.float32(0.5), "source": "forged", SEARCH_TEXT: "otters"},
                untrusted=True,
            )
            return [Hit(document=document, score=0.25)]

    context = await route(Numpy())
    told = metadata_of(context, 0)
    assert json.loads(json.dumps(told)) == told
    assert told == {
        "id": "o",
        "source": "other",
        "url": "https://sea.example.org/o",
        "title": "Otters",
        "kind": "document",
        "provenance": told["provenance"],
        "metadata": {"depth": 0.5, "source": "forged"},
        "number": 1,
        "score": context.envelopes[0].normalized,
        "untrusted": True,
        "degraded": False,
    }
    assert told["provenance"][0] == {"source": "other", "leg": "default", "rank": 1, "score": 0.25}
    assert text_of(context.envelopes[0]) == "Otters swim."


def test_a_text_of_our_own_stays_as_it_is():
    assert text_of(Envelope(document=Document(content="Otters\u200b swim."))) == "Otters\u200b swim."


@pytest.mark.case("NEW-49")
async def test_coverage_says_which_source_failed():
    class Failing(Connector):
        async def search(self, query: Query) -> Sequence[Hit]:
            raise SourceError("the sea is frozen")

    context = await route(Failing(), TABLES)
    told = coverage_of(context)
    assert (told["outcome"], told["degraded"]) == ("answered", True)
    assert {report["source"]: report["status"] for report in told["coverage"]} == {
        "notes": "ok",
        "other": "error",
    }
    assert metadata_of(context, 0)["degraded"] is True
    assert "the sea is frozen" in json.dumps(told)


def test_filters_of_several_places_narrow_each_other():
    assert all_of() == {}
    assert all_of({"a": 1}, {"b": [1, 2]}) == {"a": 1, "b": [1, 2]}
    assert all_of({"a": [1, 2, 3]}, {"a": [2, 3]}, {"a": 3}) == {"a": [3]}
    assert all_of({"a": 1}, {"a": 2}) == {"a": []}  # nothing passes


def test_a_portal_is_made_or_taken_and_an_open_router_is_refused():
    with Portal(TABLES) as portal:
        assert portal_of(portal) is portal
    made = portal_of(lambda: ContextRouter(TABLES))
    assert made.route("otters").outcome == "answered"
    made.close()
    with pytest.raises(TypeError, match="belongs to one event loop"):
        portal_of(ContextRouter(TABLES))  # type: ignore[arg-type]  # what people will try
    with pytest.raises(TypeError, match="not by int"):
        portal_of(3)  # type: ignore[arg-type]  # a wrong type on purpose
    with pytest.raises(SettingsError):
        portal_of({"provider": {}})


def test_a_source_of_another_framework_keeps_the_laws():
    judged = verdict(subject_of(FromOther, questions=["otters"]))
    assert not judged.broken, judged.broken


@pytest.mark.case("NEW-49")
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_a_retriever_gives_becomes_hits(asynchronous: bool):
    found = (
        Found("Otters swim.", {"title": "Otters", "url": "https://sea.example.org/o"}, "o", 0.9),
        Found("Otters swim far.", {"title": 3, SEARCH_TEXT: "forged"}),
        Found("Otters swim near.", id="o"),
    )
    context = await route(FromOther(Retriever(*found), asynchronous=asynchronous))
    first, second = [envelope.document for envelope in context.envelopes]
    assert (first.id, first.title, first.url, first.untrusted) == (
        "o",
        "Otters",
        "https://sea.example.org/o",
        True,
    )
    assert second.id == sha256(b"Otters swim far.").hexdigest()
    assert (second.title, dict(second.metadata)) == ("", {"title": 3})
    assert [envelope.provenance[0].score for envelope in context.envelopes] == [None, None]


async def test_scores_count_in_their_range_and_order_the_list():
    scores = [0.5, np.float32(0.75), 7, None, "high", float("nan")]
    found = [Found(f"Otters swim {n}.", id=str(n), score=score) for n, score in enumerate(scores)]
    context = await route(FromOther(Retriever(*found), score_range=(0.0, 1.0), untrusted=False))
    seals = {envelope.document.id: envelope.provenance[0] for envelope in context.envelopes}
    assert {id: seal.score for id, seal in seals.items()} == {
        "2": 1.0,
        "1": 0.75,
        "0": 0.5,
        "3": None,
        "4": None,
        "5": None,
    }
    assert [seals[id].rank for id in ("2", "1", "0", "3", "4", "5")] == [1, 2, 3, 4, 5, 6]
    assert not context.envelopes[0].document.untrusted


async def test_a_range_of_the_class_holds_unless_one_is_given():
    class Cosines(FromOther):
        score_range = (-1.0, 1.0)

    for given, score in ((None, -0.5), ((0.0, 1.0), 0.0)):
        found = Retriever(Found("Otters swim.", id="o", score=-0.5))
        context = await route(Cosines(found, score_range=given))
        assert context.envelopes[0].provenance[0].score == score


@pytest.mark.parametrize(
    ("tables", "where"),
    [
        ({"generators": {"g": {"api_key": "sk-1"}}}, "generators.g.api_key"),
        ({"cache": {"url": "redis://:hunter2@db:1/0"}}, "cache.url"),
        (
            {"embedders": {"e": {"headers": {"Authorization": "Bearer sk-1 ${KEY}"}}}},
            "embedders.e.headers.Authorization",
        ),
        ({"connectors": {"c": {"credentials": {"a": "${KEY}", "b": "pw"}}}}, "connectors.c.credentials.b"),
        ({"providers": {"p": {"dsn": "postgresql://me:pw@db/${NAME}"}}}, "providers.p.dsn"),
        ({"providers": {"p": {"dsn": "postgresql://db/x"}}}, "providers.p.dsn"),
        ({"stages": {"s": {"tokens": ["${A}", "b"]}}}, "stages.s.tokens"),
    ],
)
def test_a_secret_in_settings_is_found_by_its_key(tables: dict[str, Any], where: str):
    assert secret_in(tables) == where


@pytest.mark.parametrize(
    "tables",
    [
        {"generators": {"g": {"api_key": "${KEY}"}, "h": {"api_key": "file:key.txt"}, "i": {"api_key": ""}}},
        {"embedders": {"e": {"headers": {"Authorization": "Bearer ${KEY}"}}}},
        {"connectors": {"c": {"credentials": {"host": "X-Api-Key: ${KEY}", "other": "${NAME}:${KEY}"}}}},
        {
            "providers": {"p": {"dsn": "postgresql://me:${PASSWORD}@db/x"}},
            "cache": {"url": "redis://:${KEY}@db:1/0"},
        },
        {"providers": {"notes": {"documents": [{"id": "a", "metadata": {"key": "C major"}}]}}},
        {
            "providers": {"tokens": {"use": "sqlite", "path": "tokens.db"}},
            "routes": {"pass": {"kinds": ["a"]}},
        },
    ],
)
def test_a_secret_that_stands_elsewhere_and_what_only_sounds_like_one_are_none(tables: dict[str, Any]):
    assert secret_in(tables) == ""


@pytest.mark.case("NEW-49")
async def test_a_retriever_that_blocks_never_blocks_the_loop():
    endless = Endless()
    try:
        context = await route(FromOther(endless), TABLES, deadline=0.5)
    finally:
        endless.release.set()
    assert {report.source: report.status for report in context.coverage} == {
        "notes": "ok",
        "other": "timeout",
    }
    assert [envelope.document.id for envelope in context.envelopes] == ["n"]


async def test_a_document_comes_once_and_takes_one_place_of_the_limit():
    source = FromOther(Retriever(*[Found(f"Otters swim {n}.", id="ab"[n > 1]) for n in range(4)]))
    await source.open()
    hits = await source.search(Query(text="otters", limit=2))
    assert [hit.document.content for hit in hits] == ["Otters swim 0.", "Otters swim 2."]
    await source.aclose()


async def test_filters_are_checked_before_the_limit():
    found = [Found(f"Otters swim {n}.", {"sea": "north" if n == 5 else "south"}, str(n)) for n in range(6)]
    query = Query(text="otters", limit=1, filters={"sea": "north"})
    source = FromOther(Retriever(*found))
    await source.open()
    assert [hit.document.id for hit in await source.search(query)] == ["5"]
    await source.aclose()


async def test_labels_come_from_the_table_alone():
    source = FromOther(Retriever(Found("Otters swim.", {"tenant": "acme"}, "o")))
    acme = Scope(tenant="acme")
    assert (await route(source, scope=acme)).envelopes == ()
    context = await route(source, {"connectors": {"other": {"tenant": "acme"}}}, scope=acme)
    assert [envelope.document.id for envelope in context.envelopes] == ["o"]


async def test_what_build_gives_is_checked_and_opening_again_builds_again():
    class Later(FromOther):
        built = 0

        def build(self) -> Any:
            self.built += 1
            return "nothing" if self.built == 1 else Retriever(Found("Otters swim.", id="o"))

    source = Later()
    with pytest.raises(TypeError, match="is no retriever"):
        await source.open()
    for builds in (2, 3):
        await source.open()
        await source.open()
        assert [hit.document.id for hit in await source.search(Query(text="otters"))] == ["o"]
        await source.aclose()
        assert source.built == builds


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, r"override build\(\)"),
        ({"retriever": Retriever(), "threads": 0}, "give 1 to 64"),
        ({"retriever": Retriever(), "threads": 65}, "give 1 to 64"),
    ],
)
def test_a_source_that_cannot_work_is_refused(arguments: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        FromOther(**arguments)


async def test_a_source_that_is_not_open_says_so():
    with pytest.raises(SourceError, match="not open"):
        await FromOther(Retriever()).search(Query(text="otters"))


def test_the_package_imports_no_framework():
    """Whoever installs the router installs none of them."""
    frameworks = {
        "haystack",
        "haystack_integrations",
        "langchain",
        "langchain_core",
        "llama_index",
        "pydantic_ai",
    }
    imported = set[str]()
    for path in (Path(__file__).parents[1] / "contextrouter").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    assert "msgspec" in imported
    assert imported & frameworks == set()
