"""How a plugin of each kind is put to work: inputs for its one required method, the call, and the answer in
comparable form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from contextrouter.contracts import Completion, Entry, Source, StageContext, SupportsUpsert
from contextrouter.errors import RequestRefused
from contextrouter.model import Document, Envelope, Intent, Query
from contextrouter.testing import texts
from contextrouter.testing.builders import NOW, doc, embedding, envelope, hit, stage_context
from contextrouter.testing.fakes import Fixed
from contextrouter.testing.messages import shorten

MOST_QUESTIONS = 3


class Subject(Protocol):
    """What an exercise needs to know of the plugin under test: `testing.subject.Subject`."""

    questions: tuple[str, ...]
    dimensions: int
    asked: tuple[str, ...]


class Exercise(ABC):
    """What the laws of all kinds need to know of one kind."""

    refusals: tuple[type[Exception], ...] = ()  # what may be raised for a text

    async def prepare(self, subject: Subject, plugin: Any) -> None:
        """Give a plugin that was just opened something to work on."""

    @abstractmethod
    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """New inputs that an open plugin can work on, at least one."""

    @abstractmethod
    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """Inputs made of a text that means no good."""

    @abstractmethod
    async def call(self, plugin: Any, given: Any) -> Any:
        """The required method's answer."""

    @abstractmethod
    def seen(self, answer: Any) -> Any:
        """The answer as a value that can be compared and printed."""

    def shown(self, given: Any) -> str:
        """An input as a text that changes with anything in it."""
        return repr(given)


def asking(source: Source, text: str, leg: str, subject: Subject | None = None, **fields: Any) -> Query:
    """A query for one leg, with a vector where the leg wants one."""
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
    """An entry with a vector per chunk for each of a store's vector legs; without chunks the document is its
    only one.
    """
    cut = list(chunks) or [document]
    vectors = {leg: [embedding(chunk.content, dimensions) for chunk in cut] for leg in plugin.vector_legs}
    return Entry(
        document=document, chunks=cut, vectors=vectors, fingerprint=fingerprint or document.fingerprint
    )


class Searching(Exercise):
    """Sources: a query per question and leg."""

    async def prepare(self, subject: Subject, plugin: Any) -> None:
        """Fill a store with the kit's library, and find out what the plugin has answers to."""
        if isinstance(plugin, SupportsUpsert):
            await plugin.upsert(
                [entry_for(plugin, document, dimensions=subject.dimensions) for document in texts.library()]
            )
        if not subject.asked:
            subject.asked = await self._questions(subject, plugin)

    async def _questions(self, subject: Subject, plugin: Any) -> tuple[str, ...]:
        if subject.questions:
            return subject.questions[:MOST_QUESTIONS]
        if isinstance(plugin, SupportsUpsert):
            return texts.QUESTIONS
        for probe in texts.PROBES:
            hits = list(await plugin.search(asking(plugin, probe, plugin.legs[0], subject)))
            if hits:
                titles = [h.document.title or " ".join(h.document.content.split()[:6]) for h in hits]
                telling = [title for title in titles if title.strip()]
                return tuple(dict.fromkeys((*telling[: MOST_QUESTIONS - 1], probe)))
        return texts.PROBES[-MOST_QUESTIONS:]

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Each question on each leg."""
        return [
            asking(plugin, text, leg, subject, filters={}) for leg in plugin.legs for text in subject.asked
        ]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """The text on each leg; a vector leg is given a vector all the same."""
        return [asking(plugin, text, leg) for leg in plugin.legs]

    async def call(self, plugin: Any, given: Any) -> Any:
        """Search."""
        return await plugin.search(given)

    def seen(self, answer: Any) -> Any:
        """Ids and scores, in order."""
        return [
            (h.document.id or h.document.fingerprint, None if h.score is None else f"{h.score:.6g}")
            for h in answer
        ]


class Stating(Exercise):
    """Fact sources: a query per question, with and without entities."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Each question."""
        asked = subject.questions[:MOST_QUESTIONS] or texts.PROBES[:2]
        subject.asked = asked
        return [Query(text=text, leg="facts", limit=10, filters={}) for text in asked]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """The text as a question, and as an entity's name."""
        return [
            Query(text=text, leg="facts", limit=10),
            Query(text="", leg="facts", limit=10, entities=(text,), concepts=(text,)),
        ]

    async def call(self, plugin: Any, given: Any) -> Any:
        """Ask for facts."""
        return await plugin.facts(given)

    def seen(self, answer: Any) -> Any:
        """The triples with their validity, in order."""
        return [
            (f.subject, f.predicate, f.object, str(f.valid_from), str(f.valid_to), f.confidence)
            for f in answer
        ]


class Interpreting(Exercise):
    """Interpreters: intents, bare and filled."""

    refusals = (RequestRefused,)

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Three questions; the last intent already knows something."""
        asked = subject.questions or (
            "What is machine learning?",
            "Compare the Moon and the Sun since 2025-01-31",
        )
        known = Intent(
            question="Who founded OpenAI?",
            queries=("Who founded OpenAI?", "founders of OpenAI"),
            entities=("OpenAI",),
            concepts=("Companies",),
            attributes={"told": [1, 2]},
        )
        return [*(Intent(question=text, queries=(text,)) for text in asked), known]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """The text as the question; a blank one never comes so far."""
        return [Intent(question=text, queries=(text,))] if text.strip() else []

    async def call(self, plugin: Any, given: Any) -> Any:
        """Interpret."""
        return await plugin.interpret(given)

    def seen(self, answer: Any) -> Any:
        """All fields."""
        return repr(answer)


def odd_documents() -> list[Document]:
    """Documents with no text, no date, a date to come, one without zone, a very long text, and foreign
    labels.
    """
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
        """Pairs of envelopes and context; `sealed` in the profile is where the context puts what is let
        in.
        """
        question = subject.questions[0] if subject.questions else "moon and tides of the sea"
        library = texts.library()
        return [
            _staged(question, library),
            _staged(question, odd_documents()),
            _staged(question, library[:1]),
        ]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """The text as the question and as a document."""
        return [_staged(text, [doc("text", text), doc("other", "moon and tides")])]

    async def call(self, plugin: Any, given: Any) -> Any:
        """Apply."""
        envelopes, context, _ = given
        return await plugin.apply(envelopes, context)

    def shown(self, given: Any) -> str:
        """Envelopes and context; not what was let in."""
        return repr(given[:2])

    def seen(self, answer: Any) -> Any:
        """Documents, scores, signals and what was dropped, in order."""
        return [
            (e.document.id, shorten(e.document.content, 40), f"{e.score:.6g}", _signals(e), e.dropped)
            for e in answer
        ]


def _signals(envelope: Envelope) -> list[str]:
    return [f"{name}={value:.6g}" for name, value in sorted(envelope.signals.items())]


def _staged(
    question: str, documents: Sequence[Document]
) -> tuple[tuple[Envelope, ...], StageContext, list[Envelope]]:
    given = tuple(envelope(document, rank, 1 / rank) for rank, document in enumerate(documents, 1))
    sealed: list[Envelope] = []
    near = Fixed([hit("near", 0.5, content="more of the moon")])
    return given, stage_context(question, sources={"docs": near}, sealed=sealed), sealed


class Embedding(Exercise):
    """Embedders: batches of texts."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """A batch of different texts, one alone, and one text twice."""
        library = [document.content for document in texts.library()]
        return [library, [library[0]], [library[1], library[1]]]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """The text beside a plain one."""
        return [[text, "moon"]]

    async def call(self, plugin: Any, given: Any) -> Any:
        """Embed as documents."""
        return await plugin.embed(given)

    def seen(self, answer: Any) -> Any:
        """Numbers to three digits."""
        return [[round(float(value), 3) + 0.0 for value in vector] for vector in answer]


class Transforming(Exercise):
    """Transforms: documents of several forms and lengths."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """Prose, Markdown, a script without spaces, and one line."""
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
            doc("unspaced", texts.unspaced()),
            doc("line", "The moon raises the tides."),
        ]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """The text, plain and as Markdown and in other forms that are parsed."""
        types = (
            "text/plain",
            "text/markdown",
            "text/html",
            "application/json",
            "application/jsonl",
            "no such type",
        )
        return [doc("hostile", text, title=text[:100], media_type=each) for each in types]

    async def call(self, plugin: Any, given: Any) -> Any:
        """Transform."""
        return await plugin.transform(given)

    def seen(self, answer: Any) -> Any:
        """All of the documents."""
        return [repr(document) for document in answer]


class Generating(Exercise):
    """Generators: short conversations."""

    async def inputs(self, subject: Subject, plugin: Any) -> list[Any]:
        """A question, and one with a system message and a history."""
        talk = [
            ("system", "Answer in one word."),
            ("user", "Hello"),
            ("assistant", "Hello."),
            ("user", "What raises the tides?"),
        ]
        return [_talk(("user", "Say: moon")), _talk(*talk)]

    def hostile(self, plugin: Any, text: str) -> list[Any]:
        """The text as what the user says; nobody asks with a blank one."""
        return [_talk(("user", text))] if text.strip() else []

    async def call(self, plugin: Any, given: Any) -> Any:
        """Complete."""
        return await plugin.complete(given)

    def seen(self, answer: Any) -> Any:
        """The form alone: models do not repeat themselves."""
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
