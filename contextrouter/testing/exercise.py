"""Exercises of plugins, one per kind: inputs for the required method, the call, and a comparable answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from contextrouter.contracts import Completion, Entry, Source, StageContext, SupportsUpsert
from contextrouter.errors import RequestRefused
from contextrouter.model import Document, Envelope, Hit, Intent, Query, Request
from contextrouter.testing import texts
from contextrouter.testing.builders import (
    NOW,
    doc,
    embedding,
    envelope,
    hit,
    interpreter_context,
    stage_context,
)
from contextrouter.testing.fakes import Fixed
from contextrouter.testing.messages import shorten

MOST_QUESTIONS = 3


class Subject(Protocol):
    """The part of `testing.subject.Subject` that an exercise uses."""

    questions: tuple[str, ...]
    dimensions: int
    writes: bool
    active_questions: tuple[str, ...]


class Exercise(ABC):
    """How the laws use plugins of one kind."""

    refusals: tuple[type[Exception], ...] = ()  # exceptions that a text may raise

    async def prepare(self, subject: Subject, plugin: Any) -> None:
        """Prepare a plugin that was just opened: fill a store, choose questions."""

    @abstractmethod
    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return new inputs for an open plugin, at least one."""

    @abstractmethod
    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return inputs made from a hostile text."""

    @abstractmethod
    async def call(self, plugin: Any, item: Any) -> Any:
        """Call the required method, and return its answer."""

    @abstractmethod
    def summarize(self, answer: Any) -> Any:
        """Return the answer as a value that can be compared and printed."""

    def describe(self, item: Any) -> str:
        """Return an input as a text that changes with anything in it."""
        return repr(item)


def make_query(source: Source, text: str, leg: str, subject: Subject | None = None, **fields: Any) -> Query:
    """Make a query for one leg, with a vector where the leg needs one."""
    vector = (
        embedding(text, subject.dimensions if subject else 16)
        if leg in source.vector_legs or leg == "vector"
        else None
    )
    return Query(text=text, leg=leg, vector=vector, **{"limit": 10, **fields})


def entry_for(
    plugin: Any,
    document: Document,
    chunks: Sequence[Document] = (),
    *,
    fingerprint: str = "",
    dimensions: int = 16,
) -> Entry:
    """Make an entry with a vector per chunk for each vector leg of a store.

    Without chunks the document is its only chunk.
    """
    cut = list(chunks) or [document]
    vectors = {leg: [embedding(chunk.content, dimensions) for chunk in cut] for leg in plugin.vector_legs}
    return Entry(
        document=document, chunks=cut, vectors=vectors, fingerprint=fingerprint or document.fingerprint
    )


class Searching(Exercise):
    """Sources: a query per question and leg."""

    async def prepare(self, subject: Subject, plugin: Any) -> None:
        """Fill a store with the kit's library, and choose questions that the plugin has answers to."""
        if subject.writes and isinstance(plugin, SupportsUpsert):
            await plugin.upsert(
                [entry_for(plugin, document, dimensions=subject.dimensions) for document in texts.library()]
            )
        if not subject.active_questions:
            subject.active_questions = await self._questions(subject, plugin)

    async def _questions(self, subject: Subject, plugin: Any) -> tuple[str, ...]:
        if subject.questions:
            return subject.questions[:MOST_QUESTIONS]
        if subject.writes and isinstance(plugin, SupportsUpsert):
            return texts.QUESTIONS
        for probe in texts.PROBES:
            answer = await plugin.search(make_query(plugin, probe, plugin.legs[0], subject))
            hits = [hit for hit in answer if isinstance(hit, Hit)] if isinstance(answer, list | tuple) else []
            if hits:
                titles = [h.document.title or " ".join(h.document.content.split()[:6]) for h in hits]
                telling = [title for title in titles if title.strip()]
                return tuple(dict.fromkeys((*telling[: MOST_QUESTIONS - 1], probe)))
        return texts.PROBES[-MOST_QUESTIONS:]

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return each question on each leg."""
        return [
            make_query(plugin, text, leg, subject, filters={})
            for leg in plugin.legs
            for text in subject.active_questions
        ]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return the text on each leg, with a vector on a vector leg."""
        return [make_query(plugin, text, leg) for leg in plugin.legs]

    async def call(self, plugin: Any, item: Any) -> Any:
        """Search."""
        return await plugin.search(item)

    def summarize(self, answer: Any) -> Any:
        """Return ids and scores, in order, and what the documents say."""
        return [
            (
                h.document.id or h.document.fingerprint,
                None if h.score is None else f"{h.score:.6g}",
                str(h.document.updated_at),
                h.document.title,
                h.document.content,
            )
            for h in answer
        ]


class Stating(Exercise):
    """Fact sources: a query per question, with and without entities."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return each question."""
        questions = subject.questions[:MOST_QUESTIONS] or texts.PROBES[:2]
        subject.active_questions = questions
        return [Query(text=text, leg="facts", limit=10, filters={}) for text in questions]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return the text as a question, and as an entity's name."""
        return [
            Query(text=text, leg="facts", limit=10),
            Query(text="", leg="facts", limit=10, entities=(text,), concepts=(text,)),
        ]

    async def call(self, plugin: Any, item: Any) -> Any:
        """Ask for facts."""
        return await plugin.facts(item)

    def summarize(self, answer: Any) -> Any:
        """Return the triples with their validity, in order."""
        return [
            (f.subject, f.predicate, f.object, str(f.valid_from), str(f.valid_to), f.confidence)
            for f in answer
        ]


class Interpreting(Exercise):
    """Interpreters: intents, bare and filled."""

    refusals = (RequestRefused,)

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return the questions bare, and as intents that earlier interpreters filled."""
        questions = subject.questions or (
            "What is machine learning?",
            "Compare the Moon and the Sun since 2025-01-31",
        )
        filled = [
            Intent(
                question=text,
                queries=(text, "founders of OpenAI"),
                entities=("OpenAI",),
                concepts=("Companies",),
                attributes={"told": [1, 2]},
            )
            for text in (*questions, "Who founded OpenAI?")
        ]
        return [*(Intent(question=text, queries=(text,)) for text in questions), *filled]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return the text as the question. The router refuses a blank one."""
        return [Intent(question=text, queries=(text,))] if text.strip() else []

    async def call(self, plugin: Any, item: Any) -> Any:
        """Interpret."""
        return await plugin.interpret(item, interpreter_context(Request(question=item.question)))

    def summarize(self, answer: Any) -> Any:
        """Return all fields."""
        return repr(answer)


def odd_documents() -> list[Document]:
    """Return edge cases: no text, no date, a future date, a date without zone, a very long text, labels."""
    later = NOW + timedelta(days=3650)
    return [
        doc("blank", ""),
        doc("space", " \n\t "),
        doc("undated", "moon"),
        doc("future", "moon and tides", updated_at=later),
        doc("naive", "tides", updated_at=NOW.replace(tzinfo=None), synced_at=NOW),
        doc("long", "moon tides " * 5000),
        doc("ancient", "sea", updated_at=NOW.replace(year=1)),
        doc("labelled", "sea", tenant="acme", sensitivity="internal"),
        doc("emoji", "🌕\ud800\x00"),
        Document(content="an untitled text without an id"),
    ]


class Staging(Exercise):
    """Stages and rerankers: lists of envelopes, of one, of none, and of odd documents."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return envelopes, a context, and the list in which the context collects what it seals."""
        question = subject.questions[0] if subject.questions else "moon and tides of the sea"
        library = texts.library()
        return [
            _stage_input(question, library),
            _stage_input(question, odd_documents()),
            _stage_input(question, library[:1]),
        ]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return the text as the question and as a document."""
        return [_stage_input(text, [doc("text", text), doc("other", "moon and tides")])]

    async def call(self, plugin: Any, item: Any) -> Any:
        """Apply."""
        envelopes, context, _ = item
        return await plugin.apply(envelopes, context)

    def describe(self, item: Any) -> str:
        """Return envelopes and context, without the list of sealed envelopes."""
        return repr(item[:2])

    def summarize(self, answer: Any) -> Any:
        """Return documents, scores, signals and dropped parts, in order."""
        return [
            (e.document.id, shorten(e.document.content, 40), f"{e.score:.6g}", _signals(e), e.dropped)
            for e in answer
        ]


def _signals(envelope: Envelope) -> list[str]:
    return [f"{name}={value:.6g}" for name, value in sorted(envelope.signals.items())]


def _stage_input(
    question: str, documents: Sequence[Document]
) -> tuple[tuple[Envelope, ...], StageContext, list[Envelope]]:
    envelopes = tuple(envelope(document, rank, 1 / rank) for rank, document in enumerate(documents, 1))
    sealed: list[Envelope] = []
    near = Fixed([hit("near", 0.5, content="more of the moon")])
    return envelopes, stage_context(question, sources={"docs": near}, sealed=sealed), sealed


class Embedding(Exercise):
    """Embedders: batches of texts."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return a batch of different texts, a single text, and one text twice."""
        library = [document.content for document in texts.library()]
        return [library, [library[0]], [library[1], library[1]]]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return the text beside a plain one."""
        return [[text, "moon"]]

    async def call(self, plugin: Any, item: Any) -> Any:
        """Embed as documents."""
        return await plugin.embed(item)

    def summarize(self, answer: Any) -> Any:
        """Return numbers with three digits."""
        return [[round(float(value), 3) + 0.0 for value in vector] for vector in answer]


class Transforming(Exercise):
    """Transforms: documents of several forms and lengths."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return prose, Markdown, a script without spaces, and one line."""
        return [
            doc(
                "prose",
                texts.prose(),
                url="https://example.org/prose",
                tenant="acme",
                compartment="hr",
                sensitivity="internal",
            ),
            doc(
                "page",
                texts.MARKDOWN,
                media_type="text/markdown",
                metadata={"topic": "sea"},
                labels=("coast",),
            ),
            doc("unspaced", texts.chinese_text()),
            doc("line", "The moon raises the tides."),
        ]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return the text as plain text, as Markdown and in other media types."""
        media_types = (
            "text/plain",
            "text/markdown",
            "text/html",
            "application/json",
            "application/jsonl",
            "no such type",
        )
        return [doc("hostile", text, title=text[:100], media_type=media_type) for media_type in media_types]

    async def call(self, plugin: Any, item: Any) -> Any:
        """Transform."""
        return await plugin.transform(item)

    def summarize(self, answer: Any) -> Any:
        """Return all documents."""
        return [repr(document) for document in answer]


class Generating(Exercise):
    """Generators: short conversations."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Return a question, and one with a system message and a history."""
        talk = [
            ("system", "Answer in one word."),
            ("user", "Hello"),
            ("assistant", "Hello."),
            ("user", "What raises the tides?"),
        ]
        return [_talk(("user", "Say: moon")), _talk(*talk)]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Return the text as the user message. A blank one is never sent."""
        return [_talk(("user", text))] if text.strip() else []

    async def call(self, plugin: Any, item: Any) -> Any:
        """Complete."""
        return await plugin.complete(item)

    def summarize(self, answer: Any) -> Any:
        """Return only the form: the text of a model varies."""
        return "a completion" if isinstance(answer, Completion) else shorten(answer)


def _talk(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


EXERCISES: dict[str, Exercise] = {
    "provider": Searching(),
    "connector": Searching(),
    "fact": Stating(),
    "interpreter": Interpreting(),
    "stage": Staging(),
    "reranker": Staging(),
    "embedder": Embedding(),
    "transform": Transforming(),
    "generator": Generating(),
}
