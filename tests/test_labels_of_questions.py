"""Labels of a question by meaning: those it is about, of those the caller may see; and what they do to a search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contextrouter import Context, ContextRouter, Document, Embedder, Intent, Request, Scope
from contextrouter.builtin.embedders.minilm import MiniLM
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.interpreters.labels import Labels
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.errors import ContractError, SettingsError
from contextrouter.model import Facet, Query, Vector
from contextrouter.pipeline.interpretation import FAILED
from contextrouter.testing import Legs
from contextrouter.testing.builders import interpreter_context

VIEWS, LOG, REMOTE = "views.code", "log.work", "remote_work"
DESCRIBED: dict[str, dict[str, Any]] = {
    VIEWS: {
        "description": "What I think of programming: code review, style, architecture and tools",
        "examples": ["my opinion on code review", "what do I think about tests"],
    },
    LOG: {
        "description": "A diary of what I did at work, day by day",
        "examples": ["what did I work on yesterday", "which tasks did I finish this month"],
    },
    REMOTE: {
        "description": "Working from home and in distributed teams, away from the office",
        "examples": ["my thoughts on working from home", "how do remote teams meet"],
    },
}
ABOUT = {
    "what is my view on code review": (VIEWS,),
    "what did I work on last week": (LOG,),
    "my views on remote work": (REMOTE,),
}
UNRELATED = [
    "How tall is the Eiffel Tower?",
    "which trains go to Lyon on Sunday",
    "What is a good recipe for lentil soup?",
    "how often must a sourdough starter be fed",
    "what does the doctor think of my knee",
]
DOCUMENTS = [
    Document(id="small", content="Small changes get a better review than large ones.", labels=(VIEWS,)),
    Document(id="tests", content="Every change has a test beside it.", labels=(VIEWS, "draft")),
    Document(id="tuesday", content="Moved the parser, and wrote a code review.", labels=(LOG,)),
    Document(id="home", content="At home a day has fewer meetings.", labels=(REMOTE,)),
    Document(id="guide", content="A code review reads each change, says a view, and asks."),
]


async def labelled(interpreter: Labels, question: str, **request: Any) -> Intent:
    """Return the intent after the interpreter."""
    context = interpreter_context(Request(question=question, **request))
    return await interpreter.interpret(Intent(question=question, queries=(question,)), context)


async def fill(path: Path, *documents: Document) -> None:
    """Write documents into a store, with vectors of the shipped table."""
    embedder, store = Static(), Sqlite(path=str(path), embedder="default")
    await embedder.open()
    await store.open()
    await store.embedded_by(embedder.model, embedder.dimensions)
    vectors = await embedder.embed([document.content for document in documents])
    await store.upsert(
        [
            Entry(document=document, chunks=[document], vectors={"vector": [vector]})
            for document, vector in zip(documents, vectors, strict=True)
        ]
    )
    await store.aclose()
    await embedder.aclose()


def settings_for(path: Path, **labels: Any) -> dict[str, Any]:
    return {
        "rag": {"interpreters": ["labels"], "cache_enabled": False, "max_graph_facts": 0},
        "providers": {"notes": {"use": "sqlite", "path": str(path)}},
        "interpreters": {"labels": {"embedder": "default", "store": "notes", **labels}},
    }


def ids(context: Context) -> set[str | None]:
    return {envelope.document.id for envelope in context.envelopes}


@pytest.mark.case("M01")
@pytest.mark.parametrize("embedder", [Static(), MiniLM()], ids=["static", "minilm"])
async def test_a_question_selects_the_labels_it_is_about_and_an_unrelated_one_none(
    embedder: Embedder,
) -> None:
    interpreter = Labels(embedder=embedder, labels=DESCRIBED)
    await embedder.open()
    await interpreter.open()
    labels = {question: (await labelled(interpreter, question)).labels for question in (*ABOUT, *UNRELATED)}
    assert labels == {**ABOUT, **dict.fromkeys(UNRELATED, ())}
    await interpreter.aclose()
    await embedder.aclose()


@pytest.mark.case("M01")
async def test_inferred_labels_restrict_the_vector_leg(tmp_path: Path) -> None:
    await fill(tmp_path / "s.db", *DOCUMENTS)
    async with ContextRouter(settings_for(tmp_path / "s.db", labels=DESCRIBED)) as router:
        context = await router.route("what is my view on code review", legs=["vector"])
        other = await router.route("How tall is the Eiffel Tower?", legs=["vector"])
    assert ids(context) == {"small", "tests"}
    assert context.intent.labels == (VIEWS,)
    assert context.intent.attributes["label_matches"] == {VIEWS: 0.827}
    assert ids(other) == {document.id for document in DOCUMENTS}
    assert "label_matches" not in other.intent.attributes


async def test_a_label_without_a_description_is_matched_by_the_words_of_its_name(tmp_path: Path) -> None:
    names = {"a": "code/review", "b": "work", "c": "garden.plants"}
    await fill(tmp_path / "s.db", *(Document(id=i, content=i, labels=(label,)) for i, label in names.items()))
    async with ContextRouter(settings_for(tmp_path / "s.db")) as router:
        review = await router.route("what is my view on code review")
        work = await router.route("what did I work on last week")
    assert review.intent.labels == ("code/review",)
    assert work.intent.labels == ("work",)


@pytest.mark.case("M01", "C16")
async def test_only_labels_that_the_caller_may_see_are_candidates(tmp_path: Path) -> None:
    question = "what is my view on code review"
    await fill(
        tmp_path / "s.db",
        Document(id="1", content="one", tenant="a", labels=("review of code",)),
        Document(id="2", content="two", tenant="b", labels=("code review",)),
        Document(id="3", content="three", tenant="a", compartment="hr", labels=("views on code review",)),
        Document(id="4", content="four", tenant="a", sensitivity="restricted", labels=("my code review",)),
    )
    async with ContextRouter(settings_for(tmp_path / "s.db", threshold=0.5)) as router:
        own = await router.route(question, scope=Scope(tenant="a"))
        nobody = await router.route(question, scope=Scope(tenant="c"))
        personnel = await router.route(question, scope=Scope(tenant="a", compartments=frozenset({"hr"})))
    assert own.intent.labels == ("review of code",)
    assert [*own.intent.attributes["label_matches"]] == ["review of code"]
    assert "hr" not in str(own.intent)
    assert nobody.intent.labels == ()
    assert dict(nobody.intent.attributes) == {}
    assert set(personnel.intent.labels) == {"review of code", "views on code review"}


async def test_labels_follow_what_the_store_has(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path, DOCUMENTS[0])
    async with ContextRouter(settings_for(path, labels=DESCRIBED)) as router:
        assert (await router.route("my views on remote work")).intent.labels == ()
        await fill(path, DOCUMENTS[3])
        assert (await router.route("my views on remote work")).intent.labels == (REMOTE,)
        store = Sqlite(path=str(path), embedder="default")
        await store.open()
        await store.delete(["home"])
        await store.aclose()
        assert (await router.route("my views on remote work")).intent.labels == ()


async def test_a_store_that_the_request_does_not_ask_gives_no_labels(tmp_path: Path) -> None:
    await fill(tmp_path / "s.db", *DOCUMENTS)
    settings = settings_for(tmp_path / "s.db", labels=DESCRIBED)
    settings["providers"]["other"] = {"use": "memory"}
    async with ContextRouter(settings) as router:
        context = await router.route("what is my view on code review", sources=["other"])
    assert context.intent.labels == ()


async def test_labels_that_the_caller_demands_leave_nothing_to_infer() -> None:
    interpreter = Labels.example()
    await interpreter.open()
    question = "what did I work on"
    assert (await labelled(interpreter, question)).labels == ("work.log",)
    assert (await labelled(interpreter, question, labels=("x",))).labels == ()


async def test_what_the_question_excludes_does_not_count_and_its_standalone_text_does() -> None:
    interpreter = Labels.example()
    await interpreter.open()
    assert (await labelled(interpreter, 'tides -"what did I work on"')).labels == ()
    intent = Intent(question="and then?", text="what did I work on then", queries=("and then?",))
    context = interpreter_context(Request(question="and then?"))
    assert (await interpreter.interpret(intent, context)).labels == ("work.log",)


class Axes(Embedder):
    """The lower the first number of a text, the nearer it is to "question"; without a number it is far."""

    dimensions, model = 16, "axes"
    embedded: int = 0

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        self.embedded += len(texts)
        return [
            [1.0 - place / 100 if axis == 0 else float(axis == place) for axis in range(16)]
            for text in texts
            for place in [self.place(text)]
        ]

    @staticmethod
    def place(text: str) -> int:
        return 0 if text == "question" else next((int(word) for word in text.split() if word.isdigit()), 15)


async def test_the_best_labels_up_to_the_limit_are_added_best_first() -> None:
    places = [5, 3, 9, 1, 7, 2, 8, 4, 6, 10]
    embedder = Axes()
    every = {f"l {place}": {} for place in places}
    interpreter = Labels(embedder=embedder, labels=every, threshold=0.1)
    await interpreter.open()
    assert (await labelled(interpreter, "question")).labels == tuple(f"l {n}" for n in range(1, 9))
    few = Labels(embedder=embedder, labels=every, threshold=0.1, limit=2)
    await few.open()
    assert (await labelled(few, "question")).labels == ("l 1", "l 2")
    none = Labels(embedder=embedder, labels=every, threshold=0.99)
    await none.open()
    assert (await labelled(none, "question")).labels == ()


async def test_texts_of_labels_are_embedded_once() -> None:
    embedder = Axes()
    interpreter = Labels(embedder=embedder, labels={f"l {n}": {} for n in range(1, 9)}, threshold=0.1)
    await interpreter.open()
    assert embedder.embedded == 8
    await labelled(interpreter, "question")
    await labelled(interpreter, "another")
    assert embedder.embedded == 10


class Broken(Axes):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        if "question" in texts:
            raise ConnectionError("the model server is down")
        return (await super().embed(texts))[: None if len(texts) > 1 else 0]


class Crowded(Memory):
    """A store with 2,001 labels, which it counts again when its content changes."""

    counts = 0

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        self.counts += 1
        return [Facet(dimension="labels", value=f"l {n}", count=1) for n in range(2001)]


async def test_labels_beyond_the_most_frequent_ones_are_not_compared_and_that_is_said() -> None:
    store = Crowded()
    interpreter = Labels(embedder=Axes(), store=store, threshold=0.1)
    async with ContextRouter(
        {"rag": {"interpreters": ["labels"], "cache_enabled": False}},
        providers={"m": store},
        interpreters={"labels": interpreter},
    ) as router:
        intent = (await router.route("question")).intent
        await router.route("question")
    assert intent.attributes["labels"] == "only the 2,000 most frequent of 2,001 labels are compared"
    assert store.counts == 1, "an unchanged store is not counted again"


async def test_a_failure_leaves_the_plain_question_and_is_named() -> None:
    interpreter = Labels(embedder=Broken(), labels={"l 1": {}, "l 2": {}}, threshold=0.1)
    async with ContextRouter(
        {"rag": {"interpreters": ["labels"]}}, providers={"m": Memory()}, interpreters={"labels": interpreter}
    ) as router:
        context = await router.route("question")
        fewer = await router.route("shorter")
    assert context.intent.labels == ()
    assert context.intent.attributes[FAILED] == {"labels": "ConnectionError: the model server is down"}
    assert "0 vectors for 1 texts" in fewer.intent.attributes[FAILED]["labels"]


async def test_labels_of_a_file_and_of_the_table_are_one_list(tmp_path: Path) -> None:
    toml, as_json, bad = tmp_path / "l.toml", tmp_path / "l.json", tmp_path / "bad.toml"
    toml.write_text('[first]\nexamples = ["number 1"]\n[second]\ndescription = "number 2"\n')
    as_json.write_text(json.dumps({"third": {"examples": ["number 3"]}}))
    table = {"second": {"examples": ["number 5"]}, "far": {}}
    for path, expected in ((toml, ("first", "second")), (as_json, ("third", "second"))):
        interpreter = Labels(embedder=Axes(), path=str(path), labels=table, threshold=0.66)
        await interpreter.open()
        assert (await labelled(interpreter, "question")).labels == expected
    as_json.write_text(
        json.dumps({"second": {"examples": ["number 2"]}, "third": {"examples": ["number 3"]}})
    )
    interpreter = Labels(embedder=Axes(), path=str(as_json), labels=table, threshold=0.66)
    await interpreter.open()
    assert (await labelled(interpreter, "question")).labels == ("third", "second"), "the table wins"
    bad.write_text('[first]\nexample = ["number 1"]\n')
    for path, message in ((bad, "'first': unknown key 'example'"), (tmp_path / "none.toml", "none.toml")):
        with pytest.raises(SettingsError, match=message):
            await Labels(embedder=Axes(), path=str(path)).open()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give store, labels or path"),
        ({"labels": {"x": {}}, "limit": 9}, "limit 9 is not between 1 and 8"),
        ({"labels": {"x": {}}, "threshold": 1.5}, "threshold 1.5 is no cosine"),
        ({"labels": {"x": {"examples": "one"}}}, "'x': examples 'one' is no list of texts"),
        ({"labels": {"x": {"description": 1}}}, "'x': description 1 is no text"),
        ({"labels": {"x": ["one"]}}, "is no table"),
        ({"labels": {" ": {}}}, "a label has no name"),
        ({"store": Legs({})}, "a Legs cannot count its labels"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Labels(embedder=Axes(), **options)


async def test_the_threshold_of_the_embedder_needs_open() -> None:
    with pytest.raises(ContractError, match="is not open"):
        await labelled(Labels(embedder=Axes(), labels={"l 1": {}}), "question")
