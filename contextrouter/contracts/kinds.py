"""Plugin interfaces: a base class for each kind, such as Provider, Connector and Stage, with one method.

A plugin is an ordinary class. Its constructor's keywords are its TOML keys; the constructor does no I/O and
imports nothing heavy, `open()` does. A plugin says *what* it found; the router stamps *where from*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from math import isfinite
from numbers import Real
from typing import Annotated, Any, Literal, Self

import msgspec

from contextrouter.errors import ContractError
from contextrouter.model import Document, Envelope, Fact, Hit, Intent, Query, Request, Vector
from contextrouter.scope import Scope

VERSION = "1.0"
"""The version of the contracts: plugins written for 1.x work with every later 1.y.

The second number rises when a contract, an ability or a field with a default is added. The first rises when a
plugin must change.
"""

FilePath = Annotated[str, "path"]
"""A constructor keyword so annotated is a path; in TOML it is relative to the settings file."""


class Plugin(ABC):
    """What all plugins share. Lifecycle methods do nothing unless overridden; each may be called more than
    once.

    For the conformance kit a class may also set `example_questions`, questions that `example()` can answer,
    and `deviations`, law -> the reason for which the plugin does not keep it.
    """

    async def open(self) -> None:
        """Acquire what is needed: files, connections, models. Imports of third-party packages go here."""

    async def aclose(self) -> None:
        """Let go of it all. Afterwards `open()` works again."""

    async def ping(self) -> None:
        """Raise when the plugin cannot do its work now."""

    @classmethod
    def example(cls) -> Self:
        """An instance that works with nothing but what the package ships, for the conformance suite."""
        return cls()


class Partial(list[Hit]):
    """What a source returns when a part of its world did not answer: the hits it has, and `reason`, what is
    missing.
    """

    def __init__(self, hits: Iterable[Hit], reason: str) -> None:
        super().__init__(hits)
        self.reason = reason


class Source(Plugin):
    """Answers queries with hits: best first, at most `query.limit`, asked once per leg and query.

    `legs` are the ways it can search; each is one ranked list of its own. The leg "vector" and any leg listed
    in `vector_legs` get `query.vector`. On `phrase_legs`, a document must have the phrases of
    `query.required`; where none has, the source is asked again for their words. `score_range` is the lowest
    and highest score possible, where known. `default_queries` is how many of a question's queries it is asked
    unless its table says otherwise; None: all. `legs`, `phrase_legs`, `default_queries`, `score_range` and
    `embedder` are fixed once `open()` has returned.
    """

    legs: Sequence[str] = ("default",)
    vector_legs: Sequence[str] = ()
    phrase_legs: Sequence[str] = ("text",)
    embedder: str | None = None  # name of the embedder whose vectors `vector_legs` expect
    default_queries: int | None = None
    score_range: tuple[float, float] | Mapping[str, tuple[float, float]] | None = (
        None  # of all legs, or by leg
    )

    @abstractmethod
    async def search(self, query: Query) -> Sequence[Hit]:
        """Return hits for `query.text` on `query.leg`. Honours scope, period and filters before the limit.

        Raises SourceError when it cannot answer; an empty sequence means it looked and found nothing;
        `Partial` says what is missing.
        """


class Provider(Source):
    """A source that is an index you own."""


class Connector(Source):
    """A source in the live outside world."""


class FactSource(Plugin):
    """Answers with directed triples."""

    @abstractmethod
    async def facts(self, query: Query) -> Sequence[Fact]:
        """Return facts about entities named in `query.text`, `query.entities` or `query.concepts`; at most
        `query.limit`.
        """


class InterpreterContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an interpreter may know. `now` is the one clock of the request, in the time zone of the settings.

    `routes` maps each kind of question that has a route to its description, "" where it has none; `sources`
    are those that the request may ask.
    """

    request: Request
    routes: Mapping[str, str]
    sources: Mapping[str, Source | FactSource]
    now: datetime


FAILURE = "failure"
"""Key in `Intent.attributes`: why an interpreter went on without something it needs, such as its model. The
router notes it as a failure of that interpreter, and keeps the intent.
"""


class Interpreter(Plugin):
    """Adds to what is known of the question.

    `switch` names the true-or-false key of `[rag]` that turns it off when false, beside `use_enhancements`;
    with "" none does.
    """

    switch: str = ""

    @abstractmethod
    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return a fuller intent. Raises RequestRefused to stop the request with a reason."""


GATED: Literal["confidence_gated_fallback"] = "confidence_gated_fallback"
CLARIFY: Literal["clarify"] = "clarify"
"""Outcomes of a request behind a stage that let no document through."""


def _drop_note(text: str) -> None:
    """Take a note of a stage that runs without a trace."""


class StageContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a ranking stage may know. `now` is the one clock of the request; `seal` lets a new document in.

    `note(text)` adds a note to the stage's line in the trace: what it could not do, or did not have to.
    """

    intent: Intent
    scope: Scope | None
    profile: Mapping[str, Any]
    sources: Mapping[str, Source]
    facts: Sequence[Fact]
    now: datetime
    seal: Callable[..., Envelope | None]  # seal(hit, source=…); None: the scope forbids it
    scores: Callable[..., Awaitable[Sequence[float]]] | None = (
        None  # scores(reranker, query, documents): kept, or made now
    )
    note: Callable[[str], None] = _drop_note


class Stage(Plugin):
    """Reorders, rescores or leaves out envelopes. The order returned is the new rank; what is left out is
    dropped.

    `switch` names the true-or-false key of `[rag]` that turns it off when false, beside `use_enhancements`;
    with "" none does. A `switch` that is no such key is refused.
    """

    switch: str = "use_enhancements"
    withholds_facts: bool = False
    """True: when this stage leaves no document, facts, facets and entities are withheld too."""
    outcome: str = GATED
    """The outcome of a request then: GATED, or CLARIFY, which asks back."""
    clarification: str = ""
    """The question to ask back, where the outcome is CLARIFY."""

    @abstractmethod
    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return the envelopes that go on, best first. Never changes those given."""


class Reranker(Stage):
    """A stage that scores documents against the question; `apply` is given, and scores are kept.

    Kept scores are shared by all rerankers of one type and `model`, so `model` names whatever else decides
    a score. "": nothing is shared.
    """

    model: str = ""  # name and version of what scores
    pointwise: bool = False  # whether a document has the same score whatever it stands beside

    @abstractmethod
    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        """Return one finite score per document, higher is better. Never called with none."""

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Score those with text, order by score; blanks go last in the order they had."""
        full = [e for e in envelopes if e.document.content.strip()]
        if not full:
            return list(envelopes)
        score = partial(context.scores, self) if context.scores else self.score
        scores = await score(context.intent.text, [e.document for e in full])
        if len(scores) != len(full):
            raise ValueError(f"score() returned {len(scores)} scores for {len(full)} documents.")
        if stranger := _type_of_no_number(scores):
            raise ValueError(f"score() returned {stranger} among its scores; return numbers.")
        if not all(map(isfinite, scores)):
            odd = next(score for score in scores if not isfinite(score))
            raise ValueError(f"score() returned {odd!r}, which is no rank; return finite scores.")
        low, high = min(scores), max(scores)
        spread = (high - low) or 1.0
        ranked = sorted(zip(scores, range(len(full)), full, strict=True), key=lambda t: (-t[0], t[1]))
        done = [e.scored(s, (s - low) / spread if high > low else 1.0, rerank=s) for s, _, e in ranked]
        return done + [e for e in envelopes if not e.document.content.strip()]


def _type_of_no_number(scores: Sequence[Any]) -> str:
    """Return the type of the first score that is no number; empty: all are."""
    return next((type(score).__name__ for score in scores if not isinstance(score, Real)), "")


class Embedder(Plugin):
    """Turns texts into vectors of one length.

    `score_weights` and `leg_weights` say what its legs should weigh beside a text leg of 1.0: the former
    where scores are fused (a leg that is not named has a cautious default), the latter where ranks are.
    `unrelated` is the cosine of two texts that have nothing to do with each other, which counts as no
    similarity.
    """

    dimensions: int
    model: str = ""  # name and version, stored with every index it filled
    score_weights: Mapping[str, float] = {}
    leg_weights: Mapping[str, float] = {}
    unrelated: float = 0.0

    @abstractmethod
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """Return one unit vector of `dimensions` floats per text. `query` tells questions from documents."""


class Transform(Plugin):
    """Turns one document into others: chunkers 1 -> n, enrichers 1 -> 1."""

    @abstractmethod
    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the documents that take the place of `document`; facts ride in `metadata["facts"]`."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator wrote. `data` is the parsed object when a schema was asked for; None where the text
    does not parse as it stands: whoever asked may still read it.

    `finish` is "stop"; "length": the answer is cut; "refusal": the model refused, and `text` says so;
    "filter": a content filter stopped the answer; or "abstained": the context does not answer, and `text`
    says so. `thinking` is no part of the answer.
    """

    text: str
    data: Any = None
    model: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    finish: str = "stop"
    thinking: str = ""


class Thought(str):
    """A piece of a stream that is thinking, and no part of the answer."""

    __slots__ = ()


class Refusal(str):
    """A piece of a stream in which the model says that it does not answer."""

    __slots__ = ()


class Abstention(str):
    """A piece of a stream that says that the context does not answer."""

    __slots__ = ()


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is to be written. None leaves it to the generator."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()


class Generator(Plugin):
    """A language model."""

    @abstractmethod
    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Answer `messages` ({"role", "content"}); with `schema` (JSON schema) as an object, in `data` or at
        least in `text`. What the model says is no error: a refusal and a cut are ways to finish.
        """

    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """Yield the answer in pieces; the default yields it whole."""
        completion: Any = await self.complete(messages)
        if not hasattr(completion, "text"):
            raise ContractError(
                f"complete() returned {type(completion).__name__}, not a Completion",
                law="complete returns a completion",
            )
        yield completion.text


KINDS: dict[str, type[Plugin]] = {
    "provider": Provider,
    "connector": Connector,
    "fact": FactSource,
    "interpreter": Interpreter,
    "stage": Stage,
    "embedder": Embedder,
    "transform": Transform,
    "generator": Generator,
}
"""Kind -> contract. A reranker is a stage. Entry-point group: `contextrouter.<kind>s`; TOML table:
`[<kind>s.<name>]`.
"""

FACTS, FACETS, ENTITIES, PATH = "facts", "facets", "entities", "path"
"""Legs that answer with something other than hits; `path` with facts, in the order of the way."""
MENTIONS = "mentions"
"""The leg of a store with the documents that name an entity. It is searched only where a route or a request
names it.
"""
STRUCTURED_LEGS = frozenset((FACTS, FACETS, ENTITIES, PATH))

ROUTER_KEYS: Mapping[str, tuple[str, ...]] = {
    "provider": (
        "use",
        "enabled",
        "weight",
        "timeout",
        "limit",
        "legs",
        "queries",
        "concurrency",
        "kind",
        "trust",
        "tenant",
        "compartment",
        "sensitivity",
        "live",
    ),
    "fact": ("use", "enabled", "timeout", "limit", "concurrency", "tenant", "compartment", "sensitivity"),
    "stage": ("use", "enabled", "top_n", "keep", "pool", "timeout", "on_error"),
    "interpreter": ("use", "enabled", "top_n", "keep", "timeout", "on_error"),
    "generator": ("use", "enabled", "price_in", "price_out"),
}
"""Keys of a plugin's table that are the router's own; no constructor may use one. Connectors have the
providers'.
"""


def router_keys(kind: str) -> tuple[str, ...]:
    """The router's own keys in a table of this kind."""
    return ROUTER_KEYS.get("provider" if kind == "connector" else kind, ("use", "enabled"))


def source_kind(source: Source | FactSource) -> str:
    """Return the kind of a source: "fact", "provider" or "connector"."""
    return _kind_of_class(type(source))


@cache
def _kind_of_class(cls: type) -> str:  # the classes behind an abstract one are asked at each isinstance
    if issubclass(cls, FactSource):
        return "fact"
    return "provider" if issubclass(cls, Provider) else "connector"
