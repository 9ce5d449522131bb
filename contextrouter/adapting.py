"""Adapters to other frameworks: the code that those of LangChain, LlamaIndex and Haystack have in common.

They are distributions of their own, in plugins/. The way out: `portal_of` makes the bridge that a framework
asks through, `text_of` and `metadata_of` say what a document is there, `coverage_of` what is missing, and
`secret_in` finds a secret before settings are written into a file. The way in: `RetrieverSource` is the base
class of sources that ask a retriever of another framework.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import inf, isfinite
from pathlib import Path
from typing import Any

import msgspec

from contextrouter.contracts import Connector
from contextrouter.errors import SourceError
from contextrouter.filters import admits, combine
from contextrouter.model import SEARCH_TEXT, Context, Document, Envelope, Hit, Query, RequestFields
from contextrouter.model.plain_form import encode_json
from contextrouter.model.result import brief_coverage
from contextrouter.router import ContextRouter
from contextrouter.runtime.portal import Factory, Portal
from contextrouter.runtime.threads import Threads, check_threads
from contextrouter.settings import Settings
from contextrouter.settings.plain_secrets import secret_in
from contextrouter.text.prompt_injection import clean

__all__ = [
    "RequestFields",
    "RetrieverSource",
    "RouterLike",
    "all_of",
    "coverage_of",
    "metadata_of",
    "portal_of",
    "secret_in",
    "text_of",
]

RouterLike = str | Path | Settings | Mapping[str, Any] | Factory | Portal
"""What an adapter asks: a portal, or what a portal is made of."""


def portal_of(router: RouterLike) -> Portal:
    """Return the portal to ask through: `router` itself, or one made of it. Raises SettingsError, and
    TypeError for a router that is made already: the portal's own event loop has to open it.
    """
    if isinstance(router, Portal):
        return router
    if isinstance(router, ContextRouter):
        raise TypeError("A router belongs to one event loop. Give its settings, or Portal(lambda: router).")
    if not (isinstance(router, str | Path | Settings | Mapping) or callable(router)):
        raise TypeError(
            f"A router is named by the path of a settings file, tables, Settings, a function or a Portal, not"
            f" by {type(router).__name__}."
        )
    return Portal(router)


def text_of(envelope: Envelope) -> str:
    """Return the text of a document, of strangers without characters that no reader sees."""
    document = envelope.document
    return clean(document.content)[0] if document.untrusted else document.content


def metadata_of(context: Context, index: int) -> dict[str, Any]:
    """Return what is known of `context.envelopes[index]`, in values that JSON has.

    `number` is its citation `[n]` in `context.text`, `score` is between 0 and 1, `degraded` says whether
    another source failed. The document's own metadata stands under `metadata`, so that it can imitate
    nothing. Fields without a value are left out.
    """
    envelope, citation = context.envelopes[index], context.citations[index]
    document = envelope.document
    places = [
        {"source": seal.source, "leg": seal.leg, "rank": seal.rank, "score": seal.score}
        for seal in envelope.provenance
    ]
    fields = {
        "id": document.id,
        "source": citation.source,
        "url": citation.url,
        "title": citation.title,
        "kind": document.kind,
        "path": list(document.path),
        "parent": document.parent,
        "page": citation.page,
        "line": citation.line,
        "seconds": citation.seconds,
        "updated_at": document.updated_at,
        "language": document.language,
        "provenance": places,
        "metadata": {key: value for key, value in document.metadata.items() if key != SEARCH_TEXT},
    }
    present = {key: value for key, value in fields.items() if value not in (None, "", [], {})}
    always = {
        "number": citation.number,
        "score": envelope.normalized,
        "untrusted": document.untrusted,
        "degraded": context.degraded,
    }
    plain: dict[str, Any] = msgspec.json.decode(encode_json({**present, **always}))
    return plain


def coverage_of(context: Context) -> dict[str, Any]:
    """Return how the search went, in values that JSON has: `outcome`, `degraded`, and `coverage`, a report
    for each leg of each source.
    """
    return {
        "outcome": context.outcome,
        "degraded": context.degraded,
        "coverage": brief_coverage(context.coverage),
    }


def all_of(*filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return filters that hold all of these. A second one for a key narrows the first one."""
    merged: dict[str, Any] = {}
    for conditions in filters:
        merged = combine(merged, conditions)
    return merged


class RetrieverSource(Connector):
    """A retriever of another framework as a source.

    `retriever` is an instance, for a source made by hand; a class in a plugin file overrides `build` instead.
    It is asked in one of `threads` threads, so that it never blocks the event loop; with `asynchronous` its
    coroutine is awaited, which must not block. `score_range` is the lowest and highest score that it can
    give; without one its scores are not compared with those of others. Its documents have no labels but those
    of the source's table, and count as written by strangers unless `untrusted` is false.

    A class may have a `score_range` of its own, which holds where none is given.
    """

    score_range: tuple[float, float] | None = None

    def __init__(
        self,
        retriever: Any = None,
        *,
        threads: int = 4,
        asynchronous: bool = False,
        score_range: tuple[float, float] | None = None,
        untrusted: bool = True,
    ) -> None:
        check_threads(threads)
        if retriever is None and type(self).build is RetrieverSource.build:
            raise ValueError(
                f"{type(self).__name__} has no retriever. Hand one over, or override build() in a plugin"
                " file."
            )
        self.retriever, self.threads, self.asynchronous = retriever, threads, asynchronous
        self.untrusted = untrusted
        if score_range is not None:
            self.score_range = score_range
        self._is_given = retriever is not None
        self._pool: Threads | None = None
        if self._is_given:
            self.check(retriever)

    def build(self) -> Any:
        """Return the retriever. It runs in a thread when the source opens, and may read files and connect."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the retriever ready to be asked. It runs in a thread."""
        if self.retriever is None:
            retriever = self.build()
            self.check(retriever)
            self.retriever = retriever

    @abstractmethod
    def check(self, retriever: Any) -> None:
        """Raise TypeError for an object that cannot be asked."""

    @abstractmethod
    def retrieve(self, text: str, limit: int) -> Sequence[Any]:
        """Ask the retriever in a thread, and return what it gives, best first."""

    @abstractmethod
    async def aretrieve(self, text: str, limit: int) -> Sequence[Any]:
        """Ask the retriever in the event loop, and return what it gives, best first."""

    @abstractmethod
    def to_hit(self, item: Any) -> Hit:
        """Return the hit for what the retriever gives."""

    async def open(self) -> None:
        if self._pool is not None:
            return
        pool = Threads(self.threads, type(self).__name__)
        try:
            await pool.run(self.prepare)
        except BaseException:  # cancelled, too: the next call opens again
            pool.close()
            raise
        self._pool = pool

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        if not self._is_given:
            self.retriever = None

    async def search(self, query: Query) -> Sequence[Hit]:
        if query.limit < 1 or not query.text.strip():
            return []
        if self._pool is None:
            raise SourceError(f"{type(self).__name__} is not open. Call open() first.")
        if self.asynchronous:
            items = await self.aretrieve(query.text, query.limit)
        else:
            items = await self._pool.run(self.retrieve, query.text, query.limit)
        hits: dict[str, Hit] = {}
        for item in items:
            hit = self.to_hit(item)
            if admits(hit.document, query):
                hits.setdefault(hit.document.id, hit)
        ranked = list(hits.values())
        if self.score_range is not None:  # a reordered list has scores that are in no order
            ranked.sort(key=lambda hit: inf if hit.score is None else -hit.score)
        return ranked[: query.limit]

    def make_hit(
        self, content: str, metadata: Mapping[str, Any], *, id: str | None = None, score: Any = None
    ) -> Hit:
        """Return a hit of what another framework knows of a text. A text without an id has its hash as one.

        `title` and `url` are read from the metadata. All of the metadata stays, in values that JSON has.
        """
        plain: dict[str, Any] = msgspec.json.decode(encode_json(dict(metadata)))
        plain.pop(SEARCH_TEXT, None)  # it would be searched in place of the text
        document = Document(
            id=id or sha256(content.encode("utf-8", "surrogatepass")).hexdigest(),
            content=content,
            title=_text_or_empty(plain.get("title")),
            url=_text_or_empty(plain.get("url")),
            metadata=plain,
            untrusted=self.untrusted,
        )
        return Hit(document=document, score=self._score(score))

    def _score(self, score: Any) -> float | None:
        """Return a score within the declared range; None: there is no range, or it is no number."""
        if self.score_range is None or score is None:
            return None
        low, high = self.score_range
        try:
            number = float(score)  # also one of numpy
        except (TypeError, ValueError):
            return None
        return min(max(number, low), high) if isfinite(number) else None


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
