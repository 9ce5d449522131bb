"""One run of ingestion: what is new or changed in a source goes into a store, what is gone from it goes out
of the store.

Documents are kept under `origin:id`, so that several sources can fill one store: what a run removes is what
carries its own origin and was not seen, under whichever tenant. Nothing is removed before the whole source
has been read, and memory holds one batch and the few documents in work beside the ids. A run that was
interrupted is taken up by the next: what is stored already is recognised by its fingerprint.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from contextrouter.contracts import (
    Embedder,
    Entry,
    SupportsCrawl,
    SupportsModel,
    SupportsTenants,
    SupportsUpsert,
    SupportsVectors,
    Transform,
)
from contextrouter.errors import IngestError
from contextrouter.ingest.document_queue import AHEAD, Prepared, Room
from contextrouter.ingest.document_versions import SupportsVersions, listed, maker, marked, said, versions
from contextrouter.ingest.preparation import check_labels, configuration, fingerprint, labelled, leg_text
from contextrouter.ingest.report import Report, SupportsProblems, SupportsSize
from contextrouter.ingest.store_lock import turn
from contextrouter.ingest.survey import survey, surveying
from contextrouter.model import Document, Vector

_ORIGIN = re.compile(r"[\w.-]+")
_OFTEN = 0.2  # seconds between two words on progress when nothing is stored


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
    wait: float = 60.0,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Bring `store` in line with `source` and report what was done. All plugins are open.

    `labels` (kind, trust, tenant, compartment, sensitivity) fill what documents lack and may only tighten.
    `batch` is how many chunks are embedded and stored at a time. `dry_run` embeds and stores nothing, and
    lists the changes. `rebuild` takes unchanged documents, too. `wait` is for how many seconds another run
    may fill the store before this one gives up. `progress` is called after every batch, and several times a
    second between, with the report so far. One document that fails is reported and skipped.

    Raises IngestError when the source breaks off (what came before is stored, nothing removed), when the
    embedder fails, or the store; ValueError for an argument that makes no sense.
    """
    run = Run(store, transforms, embedder, labels, origin, batch, dry_run, rebuild, progress)
    if dry_run:
        return await run.through(source)
    async with turn(store, origin, wait):
        return await run.through(source)


class Run:
    """The state of one run.

    Three things go on at the same time: the source is read, documents are cut and enriched, and what is ready
    is embedded and stored, batch by batch, in the order of the source. Each waits for the next when that is
    behind.
    """

    def __init__(
        self,
        store: SupportsUpsert,
        transforms: Sequence[Transform],
        embedder: Embedder | None,
        labels: Mapping[str, str],
        origin: str,
        batch: int,
        dry_run: bool,
        rebuild: bool,
        progress: Callable[[Report], None] | None,
    ) -> None:
        check_labels(labels)
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"Origin {origin!r} is not a name; use letters, digits, `_`, `-` and `.`.")
        if batch < 1:
            raise ValueError(f"Batch {batch!r} is too small; give a number of at least 1.")
        self.store, self.transforms, self.embedder, self.labels = store, transforms, embedder, labels
        self.origin, self.batch, self.dry_run, self.rebuild, self.progress = (
            origin,
            batch,
            dry_run,
            rebuild,
            progress,
        )
        self.report = Report()
        self.made_by = configuration(transforms, embedder, store.vector_legs)
        self.maker, self.surveyors = maker(self.made_by, labels), surveying(transforms)
        self.begun = self.told = time.monotonic()
        self.seen: set[tuple[str | None, str]] = set()
        self.stored: dict[str | None, Mapping[str, str]] = {}
        self.room = Room()
        self.waiting: list[Prepared] = []

    async def through(self, source: SupportsCrawl) -> Report:
        """Read the source to its end, and remove what it has no more."""
        if isinstance(source, SupportsSize):
            self.report.total = await _size(source)
        await self._name_model()
        await self.take(source)
        await self.remove_vanished(source)
        self.tell()
        return self.report

    async def _name_model(self) -> None:
        """Tell the store whose vectors come: only then does it refuse those of others, and give back its
        own.
        """
        if self.embedder is None or self.dry_run or not isinstance(self.store, SupportsModel):
            return
        try:
            await self.store.embedded_by(self.embedder.model, self.embedder.dimensions)
        except Exception as error:
            raise IngestError(
                f"The store does not take vectors of {self.embedder.model!r}: {error}"
            ) from error

    async def take(self, source: SupportsCrawl) -> None:
        """Read the whole source; keep what came when it breaks off."""
        await self._known(self.labels.get("tenant"))
        await survey(source, self.surveyors, self.origin)
        queue: asyncio.Queue[asyncio.Task[Prepared] | None] = asyncio.Queue(AHEAD)
        try:
            async with asyncio.TaskGroup() as group:
                storing = group.create_task(self._store(queue))
                broken = await self._read(source, queue, group)
                await storing
        except* IngestError as several:
            raise several.exceptions[0] from several.exceptions[0].__cause__
        if isinstance(source, SupportsProblems):
            self.report.skipped += ((self.origin, problem) for problem in source.problems)
        if broken:
            raise IngestError(
                f"Source {self.origin!r} broke off after {len(self.seen)} documents, nothing was removed:"
                f" {broken}"
            ) from broken

    async def _read(
        self,
        source: SupportsCrawl,
        queue: asyncio.Queue[asyncio.Task[Prepared] | None],
        group: asyncio.TaskGroup,
    ) -> Exception | None:
        """Put every document that is new or changed into work; return what the source broke off with, if it
        did.
        """
        known, owner = await self._versions(source)
        crawl, broken = listed(source, known, every=self.rebuild or bool(self.surveyors)), None
        try:
            while True:
                try:
                    id, version, given = await anext(crawl)
                except StopAsyncIteration:
                    break
                except (
                    Exception
                ) as error:  # the source's, not ours: reported once all that came before is stored
                    broken = error
                    break
                self.report.read += 1
                if given is None:
                    self._unread(id, owner[id])
                elif (wanted := await self._wanted(given)) is not None:
                    await self._into_work(*wanted, version, queue, group)
                if time.monotonic() - self.told >= _OFTEN:
                    self.tell()
        finally:
            await crawl.aclose()
        await queue.put(None)
        await queue.put(None)
        return broken

    async def _into_work(
        self,
        document: Document,
        mark: str,
        version: str,
        queue: asyncio.Queue[asyncio.Task[Prepared] | None],
        group: asyncio.TaskGroup,
    ) -> None:
        """Begin with a document as soon as there is room for it."""
        if not self.room.fits(len(document.content)):
            await queue.put(None)
        await self.room.take(len(document.content))
        known = document.id in await self._known(document.tenant or None)
        prepared = Prepared(document, known).by(self.transforms, marked(mark, self.maker, version))
        await queue.put(group.create_task(prepared))

    async def _store(self, queue: asyncio.Queue[asyncio.Task[Prepared] | None]) -> None:
        """Take what is ready, in order. None: store what waits, for room is needed; twice: nothing comes any
        more.
        """
        ended = False
        while True:
            task = await queue.get()
            if task is None:
                await self._flush()
                if ended:
                    return
            else:
                self._ready(await task)
                if sum(max(1, len(each.entry.chunks)) for each in self.waiting if each.entry) >= self.batch:
                    await self._flush()
            ended = task is None

    async def _versions(self, source: SupportsCrawl) -> tuple[Mapping[str, str], Mapping[str, str | None]]:
        """The versions that the store knows of this origin's documents, and whose they are."""
        if not isinstance(source, SupportsVersions):
            return {}, {}
        for tenant in await self._tenants():
            await self._known(tenant)
        return versions(self.stored, self.origin, self.maker)

    def _unread(self, id: str, tenant: str | None) -> None:
        """Count a document that its source knows to be what it was."""
        self.seen.add((tenant, f"{self.origin}:{id}"))
        self.report.unchanged += 1

    async def _known(self, tenant: str | None) -> Mapping[str, str]:
        """What the store has of a tenant: id -> fingerprint."""
        if tenant not in self.stored:
            try:
                self.stored[tenant] = await self.store.fingerprints(tenant)
            except Exception as error:
                raise IngestError(f"The store does not say what it holds: {error}") from error
        return self.stored[tenant]

    async def _wanted(self, given: Document) -> tuple[Document, str] | None:
        """A document with its labels and its fingerprint; None when it is unchanged, or fails."""
        if not given.id:
            self._skip(given.title or given.url or "?", "has no id")
            return None
        try:
            document = labelled(given.replace(id=f"{self.origin}:{given.id}"), self.labels)
        except IngestError as error:
            self._skip(f"{self.origin}:{given.id}", str(error))
            return None
        key = (document.tenant or None, document.id)
        if key in self.seen:
            self._skip(document.id, "was listed twice; the first one was taken")
            return None
        self.seen.add(key)
        known = await self._known(document.tenant or None)
        try:
            surveyed = [each.mark(document) for each in self.surveyors]
            mark = fingerprint(
                document, "\n".join((self.made_by, *surveyed)) if any(surveyed) else self.made_by
            )
        except (
            Exception
        ) as error:  # one document's failure must not end the run; it is reported, and what is stored stays
            self._skip(document.id, f"{type(error).__name__}: {error}")
            return None
        if said(known.get(document.id, "")) == mark and not self.rebuild:
            self.report.unchanged += 1
            return None
        return document, mark

    def _ready(self, done: Prepared) -> None:
        """Put one document in the next batch, unless it failed."""
        for problem in [done.failure] if done.failure else done.problems:
            self._skip(done.document.id, problem)
        if done.entry is None:
            self.room.give(len(done.document.content))
        else:
            self.waiting.append(done)

    def _skip(self, id: str, reason: str) -> None:
        self.report.skipped.append((id, reason))

    async def _flush(self) -> None:
        """Embed and store what waits, then count it."""
        done, self.waiting = self.waiting, []
        entries = [each.entry for each in done if each.entry]
        if not entries:
            return
        if not self.dry_run:
            entries = await self._embedded(entries)
            try:
                await self.store.upsert(entries)
            except Exception as error:
                first, last = entries[0].document.id, entries[-1].document.id
                raise IngestError(
                    f"The store refused {first!r} to {last!r}: {error}", document=first
                ) from error
        for each in done:
            self.room.give(len(each.document.content))
            self._count(each)
        self.tell()

    def _count(self, done: Prepared) -> None:
        """Add one document to the report."""
        report = self.report
        report.documents += 1
        report.changed += done.known
        report.added += not done.known
        report.tokens += done.tokens
        if done.entry:
            report.chunks += len(done.entry.chunks)
            report.facts += len(done.entry.facts)
        if self.dry_run:
            report.changes.append(("changed" if done.known else "added", done.document.id))

    async def _embedded(self, entries: Sequence[Entry]) -> list[Entry]:
        """Give the entries one vector per chunk and vector leg."""
        chunks = [chunk for entry in entries for chunk in entry.chunks]
        known = await self._known_vectors(entries)
        legs = (
            {leg: await self._vectors(leg, chunks, known) for leg in self.store.vector_legs}
            if self.embedder
            else {}
        )
        done: list[Entry] = []
        start = 0
        for entry in entries:
            stop = start + len(entry.chunks)
            done.append(
                msgspec.structs.replace(
                    entry, vectors={leg: vectors[start:stop] for leg, vectors in legs.items()}
                )
            )
            start = stop
        return done

    async def _known_vectors(self, entries: Sequence[Entry]) -> dict[tuple[str, str], Vector]:
        """(leg, text) -> the vector the store has of it, from what these documents said before."""
        if (
            self.rebuild
            or self.embedder is None
            or not self.embedder.model
            or not isinstance(self.store, SupportsVectors)
        ):
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
                raise IngestError(
                    f"The store does not give back its vectors: {error}", document=ids[0]
                ) from error
            found.update(
                ((leg, leg_text(leg, chunk) or ""), vector)
                for chunk, legs in stored
                for leg, vector in legs.items()
            )
        return found

    async def _vectors(
        self, leg: str, chunks: Sequence[Document], known: Mapping[tuple[str, str], Vector]
    ) -> list[Vector | None]:
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
                raise IngestError(
                    f"The embedder failed at {document!r}, leg {leg!r}: {error}", document=document
                ) from error
            if len(made) != len(part):
                raise IngestError(
                    f"The embedder returned {len(made)} vectors for {len(part)} texts; it must return one"
                    " each."
                )
            self.report.embedded += len(made)
            for place, vector in zip(part, made, strict=True):
                vectors[place] = vector
        return vectors

    async def remove_vanished(self, source: SupportsCrawl) -> None:
        """Remove what this origin had in the store and has no more; called only after the source was read to
        its end.

        A job that names a tenant has nothing under another: what was stored there before it did would stay
        visible.
        """
        unread = source.unread if isinstance(source, SupportsProblems) else ()
        kept = {f"{self.origin}:{id}" for id in unread}
        folders = tuple(id for id in kept if id.endswith("/"))
        tenants = {**dict.fromkeys(self.stored), **dict.fromkeys(await self._tenants())}
        for tenant in tenants:
            own = [
                id
                for id in await self._known(tenant)
                if id.startswith(f"{self.origin}:") and (tenant, id) not in self.seen
            ]
            keeps = self.labels.get("tenant") in (None, tenant)
            gone = [id for id in own if not (keeps and (id in kept or id.startswith(folders)))]
            if not gone:
                continue
            if self.dry_run:
                self.report.deleted += len(gone)
                self.report.changes += (("removed", id) for id in gone)
                continue
            try:
                self.report.deleted += await self.store.delete(gone, tenant)
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
        self.told = time.monotonic()
        self.report.seconds = self.told - self.begun
        if self.progress:
            self.progress(self.report)


async def _size(source: SupportsSize) -> int | None:
    """How many documents there are; None where that cannot be found out: reading them says what is wrong."""
    try:
        return await source.size()
    except Exception:
        return None
