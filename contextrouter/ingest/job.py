"""One run of ingestion: what is new or changed in a source goes into a store, what is gone from it goes out of the store.

Documents are kept under `origin:id`, so that several sources can fill one store: what a run removes is what carries its own
origin and was not seen, under whichever tenant. Nothing is removed before the whole source has been read, and memory holds
one batch at a time beside the ids. A run that was interrupted is taken up by the next: what is stored already is recognised
by its fingerprint.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from contextrouter.contracts import Embedder, Entry, SupportsCrawl, SupportsTenants, SupportsUpsert, SupportsVectors, Transform
from contextrouter.errors import IngestError
from contextrouter.ingest.prepare import check_labels, configuration, fingerprint, labelled, leg_text, prepare
from contextrouter.model import Document, Vector

_ORIGIN = re.compile(r"[\w.-]+")


@runtime_checkable
class SupportsProblems(Protocol):
    """A source that says what its last reading left out.

    `problems` are sentences; `unread` are ids of documents that exist and could not be read: what a store has of them stays.
    An id that ends in `/` stands for all that begin with it.
    """

    problems: Sequence[str]
    unread: Sequence[str]


class Report(msgspec.Struct, kw_only=True):
    """What a run did; in a dry run, what it would have done. `seconds` is wall time."""

    documents: int = 0  # new or changed
    chunks: int = 0
    facts: int = 0
    embedded: int = 0  # texts that went to the embedder; chunks of changed documents that say what they said keep their vectors
    unchanged: int = 0
    deleted: int = 0
    skipped: list[tuple[str, str]] = []  # (id, reason): left out, or stored with something wrong
    seconds: float = 0.0


async def ingest(
    source: SupportsCrawl,
    store: SupportsUpsert,
    transforms: Sequence[Transform],
    embedder: Embedder | None,
    *,
    labels: Mapping[str, str] = {},
    origin: str,
    batch: int = 64,
    dry_run: bool = False,
    rebuild: bool = False,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Bring `store` in line with `source` and report what was done. All plugins are open.

    `labels` (kind, trust, tenant, compartment, sensitivity) fill what documents lack and may only tighten. `batch` is how
    many chunks are embedded and stored at a time. `dry_run` embeds and stores nothing. `rebuild` takes unchanged documents,
    too. `progress` is called after every batch with the report so far. One document that fails is reported and skipped.

    Raises IngestError when the source breaks off (what came before is stored, nothing removed), when the embedder fails, or
    the store; ValueError for an argument that makes no sense.
    """
    check_labels(labels)
    if not _ORIGIN.fullmatch(origin):
        raise ValueError(f"Origin {origin!r} is not a name; use letters, digits, `_`, `-` and `.`.")
    if batch < 1:
        raise ValueError(f"Batch {batch!r} is too small; give a number of at least 1.")
    run = _Run(store, transforms, embedder, labels, origin, batch, dry_run, rebuild, progress)
    await run.take(source)
    await run.remove_vanished(source)
    run.tell()
    return run.report


class _Run:
    """The state of one run."""

    def __init__(
        self, store: SupportsUpsert, transforms: Sequence[Transform], embedder: Embedder | None, labels: Mapping[str, str],
        origin: str, batch: int, dry_run: bool, rebuild: bool, progress: Callable[[Report], None] | None,
    ) -> None:  # fmt: skip
        self.store, self.transforms, self.embedder, self.labels = store, transforms, embedder, labels
        self.origin, self.batch, self.dry_run, self.rebuild, self.progress = origin, batch, dry_run, rebuild, progress
        self.report = Report()
        self.made_by = configuration(transforms, embedder, store.vector_legs)
        self.begun = time.monotonic()
        self.seen: set[tuple[str | None, str]] = set()
        self.stored: dict[str | None, Mapping[str, str]] = {}
        self.waiting: list[Entry] = []

    async def take(self, source: SupportsCrawl) -> None:
        """Read the whole source; keep what came when it breaks off."""
        await self._known(self.labels.get("tenant"))
        crawl = source.crawl()
        try:
            broken = await self._crawl(crawl)
        finally:
            if isinstance(crawl, AsyncGenerator):
                await crawl.aclose()
        await self._flush()
        if isinstance(source, SupportsProblems):
            self.report.skipped += ((self.origin, problem) for problem in source.problems)
        if broken:
            raise IngestError(
                f"Source {self.origin!r} broke off after {len(self.seen)} documents, nothing was removed: {broken}"
            ) from broken

    async def _crawl(self, crawl: AsyncIterator[Document]) -> Exception | None:
        """Take every document; return what the source broke off with, if it did."""
        while True:
            try:
                document = await anext(crawl)
            except StopAsyncIteration:
                return None
            except Exception as error:  # the source's, not ours: reported once all that came before is stored
                return error
            await self._take_one(document)
            if sum(max(1, len(entry.chunks)) for entry in self.waiting) >= self.batch:
                await self._flush()

    async def _known(self, tenant: str | None) -> Mapping[str, str]:
        """What the store has of a tenant: id -> fingerprint."""
        if tenant not in self.stored:
            try:
                self.stored[tenant] = await self.store.fingerprints(tenant)
            except Exception as error:
                raise IngestError(f"The store does not say what it holds: {error}") from error
        return self.stored[tenant]

    async def _take_one(self, given: Document) -> None:
        """Put one document in the next batch, unless it is unchanged or fails."""
        if not given.id:
            self._skip(given.title or given.url or "?", "has no id")
            return
        try:
            document = labelled(given.replace(id=f"{self.origin}:{given.id}"), self.labels)
        except IngestError as error:
            self._skip(f"{self.origin}:{given.id}", str(error))
            return
        key = (document.tenant or None, document.id)
        if key in self.seen:
            self._skip(document.id, "was listed twice; the first one was taken")
            return
        self.seen.add(key)
        known = await self._known(document.tenant or None)
        try:
            mark = fingerprint(document, self.made_by)
            if known.get(document.id) == mark and not self.rebuild:
                self.report.unchanged += 1
                return
            entry, problems = await prepare(document, self.transforms, mark)
        except Exception as error:  # one document's failure must not end the run; it is reported, and what is stored stays
            self._skip(document.id, f"{type(error).__name__}: {error}")
            return
        for problem in problems:
            self._skip(document.id, problem)
        self.waiting.append(entry)

    def _skip(self, id: str, reason: str) -> None:
        self.report.skipped.append((id, reason))

    async def _flush(self) -> None:
        """Embed and store what waits, then count it."""
        entries, self.waiting = self.waiting, []
        if not entries:
            return
        if not self.dry_run:
            entries = await self._embedded(entries)
            try:
                await self.store.upsert(entries)
            except Exception as error:
                first, last = entries[0].document.id, entries[-1].document.id
                raise IngestError(f"The store refused {first!r} to {last!r}: {error}", document=first) from error
        self.report.documents += len(entries)
        self.report.chunks += sum(len(entry.chunks) for entry in entries)
        self.report.facts += sum(len(entry.facts) for entry in entries)
        self.tell()

    async def _embedded(self, entries: Sequence[Entry]) -> list[Entry]:
        """Give the entries one vector per chunk and vector leg."""
        chunks = [chunk for entry in entries for chunk in entry.chunks]
        known = await self._known_vectors(entries)
        legs = {leg: await self._vectors(leg, chunks, known) for leg in self.store.vector_legs} if self.embedder else {}
        done: list[Entry] = []
        start = 0
        for entry in entries:
            stop = start + len(entry.chunks)
            done.append(msgspec.structs.replace(entry, vectors={leg: vectors[start:stop] for leg, vectors in legs.items()}))
            start = stop
        return done

    async def _known_vectors(self, entries: Sequence[Entry]) -> dict[tuple[str, str], Vector]:
        """(leg, text) -> the vector the store has of it, from what these documents said before."""
        if self.rebuild or self.embedder is None or not self.embedder.model or not isinstance(self.store, SupportsVectors):
            return {}
        changed: dict[str | None, list[str]] = {}
        for document in (entry.document for entry in entries):
            if document.id in self.stored.get(document.tenant or None, ()):
                changed.setdefault(document.tenant or None, []).append(document.id)
        found: dict[tuple[str, str], Vector] = {}
        for tenant, ids in changed.items():
            try:
                stored = await self.store.embedded(ids, tenant, self.embedder.model)
            except Exception as error:
                raise IngestError(f"The store does not give back its vectors: {error}", document=ids[0]) from error
            found.update(((leg, leg_text(leg, chunk) or ""), vector) for chunk, legs in stored for leg, vector in legs.items())
        return found

    async def _vectors(
        self, leg: str, chunks: Sequence[Document], known: Mapping[tuple[str, str], Vector]
    ) -> list[Vector | None]:  # fmt: skip
        """One vector per chunk, None where the leg has nothing to embed; at most `batch` texts in a call."""
        assert self.embedder is not None
        texts = [leg_text(leg, chunk) for chunk in chunks]
        vectors: list[Vector | None] = [known.get((leg, text)) if text else None for text in texts]
        places = [place for place, text in enumerate(texts) if text and vectors[place] is None]
        for start in range(0, len(places), self.batch):
            part = places[start : start + self.batch]
            try:
                made = await self.embedder.embed([texts[place] or "" for place in part])
            except Exception as error:
                document = chunks[part[0]].parent or ""
                raise IngestError(f"The embedder failed at {document!r}, leg {leg!r}: {error}", document=document) from error
            if len(made) != len(part):
                raise IngestError(f"The embedder returned {len(made)} vectors for {len(part)} texts; it must return one each.")
            self.report.embedded += len(made)
            for place, vector in zip(part, made, strict=True):
                vectors[place] = vector
        return vectors

    async def remove_vanished(self, source: SupportsCrawl) -> None:
        """Remove what this origin had in the store and has no more; called only after the source was read to its end.

        A job that names a tenant has nothing under another: what was stored there before it did would stay visible.
        """
        unread = source.unread if isinstance(source, SupportsProblems) else ()
        kept = {f"{self.origin}:{id}" for id in unread}
        folders = tuple(id for id in kept if id.endswith("/"))
        tenants = {**dict.fromkeys(self.stored), **dict.fromkeys(await self._tenants())}
        for tenant in tenants:
            own = [id for id in await self._known(tenant) if id.startswith(f"{self.origin}:") and (tenant, id) not in self.seen]
            keeps = self.labels.get("tenant") in (None, tenant)
            gone = [id for id in own if not (keeps and (id in kept or id.startswith(folders)))]
            if not gone:
                continue
            try:
                self.report.deleted += len(gone) if self.dry_run else await self.store.delete(gone, tenant)
            except Exception as error:
                message = f"The store did not remove {len(gone)} vanished documents: {error}"
                raise IngestError(message, document=gone[0]) from error

    async def _tenants(self) -> Sequence[str | None]:
        """Whose documents the store holds, so far as it can say."""
        if not isinstance(self.store, SupportsTenants):
            return ()
        try:
            return await self.store.tenants()
        except Exception as error:
            raise IngestError(f"The store does not say whose documents it holds: {error}") from error

    def tell(self) -> None:
        """Bring the clock up to date and report progress."""
        self.report.seconds = time.monotonic() - self.begun
        if self.progress:
            self.progress(self.report)
