"""The provider `sqlite`: one file, three legs, no server. Text by BM25, vectors and keywords by cosine."""

from __future__ import annotations

import math
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from contextrouter.builtin.providers.entity_texts import PAGE, EntityTexts, check_threshold, distinct_texts
from contextrouter.builtin.providers.example_documents import EXAMPLE_ENTRIES
from contextrouter.builtin.providers.field_weights import checked_weights
from contextrouter.builtin.providers.job_runs import KEY, add_run_times, add_run_times_to_hits, as_text
from contextrouter.builtin.providers.link_degrees import MeanCache
from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.builtin.providers.queries import refuse_other_leg, terms_of
from contextrouter.builtin.providers.sqlite import (
    entity_vectors,
    lookup,
    mentions_leg,
    schema,
    text_leg,
    write,
)
from contextrouter.builtin.providers.sqlite.file import Stop, StoreFile, kind_of_file
from contextrouter.builtin.providers.sqlite.filter import Condition, admitted
from contextrouter.builtin.providers.sqlite.ingest_lock import IngestLock
from contextrouter.builtin.providers.sqlite.rows import AdmittedChunks, numpy
from contextrouter.builtin.providers.sqlite.search_batches import Answers, SearchBatches
from contextrouter.builtin.providers.sqlite.searching import Snapshot
from contextrouter.builtin.providers.sqlite.vector_leg import LEGS, code_indexes, simsimd
from contextrouter.builtin.providers.sqlite.vector_models import SqliteModels
from contextrouter.builtin.providers.vector_slots import EMPTY, FIRST, SECOND, Slot, choose
from contextrouter.contracts import EntityMatch, Entry, FilePath, LinkDegrees, Provider, TermStatistics
from contextrouter.model import Document, Facet, Hit, Query, Vector
from contextrouter.runtime.threads import check_threads, work_aside
from contextrouter.scope import Scope


class Sqlite(Provider):
    """Keeps documents in the SQLite file at `path`, shared by any number of threads and processes.

    `embedder` names the embedder of its vectors ("": text only). `title_weight`, `path_weight` and
    `body_weight` say how often a term counts in each field. `busy_timeout` (seconds) is how long a writer
    waits for another one; `threads` how many searches run at once. `entity_threshold` is the cosine at which
    a hint at an entity means it; None: that of the embedder. Raises ValueError for values out of range.

    A search honours scope, period, filters, labels and exclusions before its limit, on the leg `text`
    phrases as well. It raises SourceError for a file that is not there or damaged, SourceTimeout when
    `query.deadline` passes.
    """

    def __init__(
        self,
        *,
        path: FilePath,
        embedder: str | None = "default",
        title_weight: float = 3.0,
        path_weight: float = 2.0,
        body_weight: float = 1.0,
        busy_timeout: float = 5.0,
        threads: int = 4,
        entity_threshold: float | None = None,
    ) -> None:
        self.path = kind_of_file(path)
        self.embedder = embedder or None
        self.legs: Sequence[str] = ("vector", "text", "keywords") if self.embedder else ("text",)
        self.vector_legs: Sequence[str] = LEGS if self.embedder else ()
        self.score_range = {leg: (-1.0, 1.0) for leg in self.vector_legs}
        weights = checked_weights(title_weight, path_weight, body_weight)
        if not (math.isfinite(busy_timeout) and busy_timeout >= 0):
            raise ValueError(f"busy_timeout {busy_timeout!r} is no time; give seconds, 0 or more.")
        check_threads(threads)
        self._file = StoreFile(path, busy_timeout=busy_timeout, threads=threads)
        self._ingest_lock = IngestLock(self._file.location)
        self._admitted = AdmittedChunks()
        self._index = text_leg.TextIndex(weights, self._admitted)
        self._vector_indexes = code_indexes(self.vector_legs, self._admitted)
        self._means = MeanCache()
        self.entity_threshold = check_threshold(entity_threshold)
        self._entities = {suffix: entity_vectors.EntityIndex(suffix) for suffix in (FIRST, SECOND)}
        self._batches = SearchBatches()
        self._model, self._dimensions = "", 0

    @classmethod
    def example(cls) -> Self:
        """A store of two documents in a temporary folder that goes with the instance, and no embedder."""
        folder = tempfile.mkdtemp(prefix="contextrouter-")
        store = cls(path=str(Path(folder) / "example.db"), embedder=None)
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
        rows = [write.prepare(entry, ()) for entry in EXAMPLE_ENTRIES]
        store._file.write_here(lambda connection: write.upsert(connection, rows, "", 0))
        store._file.forget()
        return store

    async def open(self) -> None:
        """Check the file if it is there; the first upsert makes it.

        Raises SourceError for a file that is no store of ours, MissingDependency without the packages that
        search needs.
        """
        for package in (numpy, simsimd) if self.vector_legs else (numpy,):
            await work_aside(package)
        await self._file.open()

    async def aclose(self) -> None:
        """Interrupt searches, let a write end, let go of file and memory."""
        try:
            await self._ingest_lock.release()
        finally:
            await self._file.aclose()
            self._admitted.forget()
            self._index.forget()
            for index in self._vector_indexes.values():
                index.forget()
            for entities in self._entities.values():
                entities.forget()

    async def ping(self) -> None:
        """Raise SourceError when there is no store to search."""
        await self._file.check()

    async def embedded_by(self, model: str, dimensions: int) -> None:
        """Say which model's vectors this store is asked and filled with, and how long they are.

        Raises SourceError at once, and from then on at each search and upsert, when other models filled the
        store, or vectors of this one are missing.
        """
        self._model, self._dimensions = model, dimensions
        await self._file.read(lambda c, _: self._slot(c), missing=EMPTY, must_exist=False)

    def vector_models(self) -> SqliteModels:
        """Return the models whose vectors are here."""
        return SqliteModels(self._file, self.vector_legs)

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return chunks, best first; text scores are BM25 (0 or more), vector scores cosines in [-1, 1]. Ties
        go by id.
        """
        refuse_other_leg(query, self.legs)
        if query.limit < 1:
            return []
        kind = "text" if query.leg == "text" else "vectors"
        return await self._batches.search(query, kind, self._answer)

    async def _answer(self, queries: Sequence[Query], answers: Answers) -> None:
        await self._file.read(
            lambda c, stop: self._snapshot(c, stop).answer(queries, answers),
            missing=None,
            deadline=queries[0].deadline,
        )

    def _snapshot(self, connection: sqlite3.Connection, stop: Stop) -> Snapshot:
        embedded_by = (self._model, self._dimensions)
        return Snapshot(connection, stop, self._index, self._vector_indexes, embedded_by)

    async def upsert(self, entries: Sequence[Entry]) -> None:
        """Replace documents, their chunks, vectors, links and facts: all entries in one transaction, durable
        on return.

        Raises IngestError for an entry that cannot be stored, SourceError when the store was filled by
        another model.
        """
        model, dimensions, legs = self._model, self._dimensions, self.vector_legs
        entries = list(entries)

        def prepared() -> list[write.Rows]:
            return [write.prepare(entry, legs) for entry in entries]

        await self._file.write(lambda c, rows: write.upsert(c, rows, model, dimensions), prepared)

    async def take_turn(self) -> str:
        """Take the one turn at filling this file: "". Else say which process has it, and since when."""
        return await self._ingest_lock.acquire()

    async def end_turn(self) -> None:
        """Let another process fill the file."""
        await self._ingest_lock.release()

    async def record_run(self, origin: str, moment: datetime) -> None:
        """Note that a job was run to its end; its documents have the moment as `synced_at`."""
        if self._file.exists():
            await self._file.write(lambda c, _: schema.write_meta(c, KEY + origin, as_text(moment)))

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        """Document id -> fingerprint, of one tenant's documents (None: those without a tenant)."""
        return await self._file.read(
            lambda c, _: lookup.fingerprints(c, tenant or ""), missing={}, must_exist=False
        )

    async def tenants(self) -> Sequence[str | None]:
        """Whose documents are here; None: some have no tenant."""
        return await self._file.read(lambda c, _: lookup.tenants(c), missing=[], must_exist=False)

    async def embedded(
        self, ids: Sequence[str], tenant: str | None, model: str
    ) -> Sequence[tuple[Document, Mapping[str, Vector]]]:
        """Return the chunks of documents, each with its vectors by leg; nothing when another model filled the
        store.
        """
        legs = self.vector_legs
        if not legs:
            return []
        return await self._file.read(
            lambda c, _: lookup.embedded(c, ids, tenant or "", model, legs), missing=[], must_exist=False
        )

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        """Remove documents of one tenant with all that belongs to them, durably; return how many there
        were.
        """
        if not self._file.exists():
            return 0
        wanted = list(dict.fromkeys(ids))
        return await self._file.write(lambda c, _: write.delete(c, wanted, tenant or ""))

    async def clear(self) -> None:
        """Remove everything, and forget which embedder filled the store: the way to build it again."""
        if self._file.exists():
            await self._file.write(lambda c, _: write.clear(c))

    @asynccontextmanager
    async def rebuild(self) -> AsyncIterator[Self]:
        """Yield an empty store beside this one. When the block ends without an error, put its content in the
        place of this one's. Raises SourceError where that cannot be done; the former content then stays.

        Readers have the former content until then, and all of the new one from then on. It is copied page by
        page, in one transaction: a new file would cut off the connections of other processes.
        """
        at = self._file.location.with_name(f"{self._file.location.name}-rebuild")
        await work_aside(_remove_files, at)  # of a run that was killed
        fresh = type(self)(path=str(at), embedder=self.embedder)
        try:
            try:
                await fresh.open()
                yield fresh
            finally:
                await fresh.aclose()
            if await work_aside(at.exists):
                await self._file.replace_by(at)
            else:
                await self.clear()
        finally:
            await work_aside(_remove_files, at)

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        """Return whole documents, or chunks, by id, in the order asked."""
        return await self._file.read(
            lambda c, _: add_run_times(lookup.fetch_documents(c, ids, scope), schema.runs(c)), missing=[]
        )

    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        """Return the first chunk of each document linked with `ids` (of documents or chunks), most links
        first.

        A document's `links` are ids or URLs of documents; the score is the number of links, either way.
        """
        return await self._file.read(
            lambda c, _: add_run_times_to_hits(lookup.neighbours(c, ids, limit, scope), schema.runs(c)),
            missing=[],
        )

    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        """Count the links of documents, by their ids or those of their chunks, and the links per document."""
        return await self._file.read(
            lambda c, _: lookup.link_degrees(c, ids, scope, self._means),
            missing=LinkDegrees(degrees={}, mean=0.0),
        )

    async def mentions(self, query: Query) -> Sequence[Hit]:
        """Return a chunk of each document whose facts or key phrases name an entity of the query, or of its
        text.

        Best first: most entities, then most often; the score is entities + n ÷ (n + 1), n how often. It is
        the chunk whose key phrases name the most, else the first. Ties go by id.
        """
        return await self._file.read(
            lambda c, stop: self._snapshot(c, stop).mentions(query), missing=[], deadline=query.deadline
        )

    async def exact_names(self, hints: Sequence[str], query: Query) -> Sequence[str]:
        """Return the hints that facts or key phrases have as names, in scope."""
        query = Query(text="", entities=tuple(hints), scope=query.scope)
        none: frozenset[str] = frozenset()
        names = await self._file.read(
            lambda c, stop: mentions_leg.find_names(c, query, _admitted(c, query), stop),
            missing=none,
            deadline=query.deadline,
        )
        return [hint for hint in hints if name_key(hint) in names]

    async def nearest_entities(
        self, vector: Vector, query: Query, *, threshold: float
    ) -> Sequence[EntityMatch]:
        """Return the entities in scope with a cosine of at least `threshold`, nearest first. Raises
        SourceError where there are no vectors of entities.
        """
        return await self._file.read(
            lambda c, _: self.near_entities(c, vector, query, threshold), missing=[], deadline=query.deadline
        )

    def near_entities(
        self, connection: sqlite3.Connection, vector: Vector, query: Query, threshold: float
    ) -> Sequence[EntityMatch]:
        """As `nearest_entities`, on a connection of the caller's."""
        index = self._entities[self._slot(connection).suffix]
        return index.nearest(connection, vector, query, threshold)

    async def entity_texts(self) -> Sequence[str]:
        """Return the distinct texts about the next entities that have no vectors."""
        return distinct_texts(await self._entities_without_vectors(PAGE))

    async def embed_entities(self, vectors: Mapping[str, Vector]) -> int:
        """Keep vectors of entities, by text; return how many entities have theirs now that had none."""
        model, dimensions = self._model, self._dimensions
        if not await self._entities_without_vectors(1):
            return 0

        def insert(connection: sqlite3.Connection, _: None) -> int:
            suffix = choose(schema.slots(connection), model, dimensions).suffix
            return entity_vectors.insert(connection, vectors, suffix)

        return await self._file.write(insert)

    async def _entities_without_vectors(self, limit: int) -> list[EntityTexts]:
        nothing: list[EntityTexts] = []
        return await self._file.read(
            lambda c, _: entity_vectors.without_vectors(c, limit, self._slot(c).suffix),
            missing=nothing,
            must_exist=False,
        )

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        """Count documents by the values of fields (kind, labels, …) or metadata keys, over all the query lets
        through: of each dimension the `query.limit` values of most documents.

        Scope, period, filters, labels, phrases and exclusions narrow; plain words do not, as in a search,
        where any suffices.
        """
        return await self._file.read(
            lambda c, _: lookup.facets(c, _admitted(c, query), dimensions, query.limit),
            missing=[],
            deadline=query.deadline,
        )

    async def version(self) -> str:
        """A string that changes with every write, by whichever process; "" while there is no store."""
        return await self._file.read(lambda c, _: schema.version(c), missing="", must_exist=False)

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        """Counts over the chunks that `scope` shows, each in its language; a term that is several words has
        the frequency of the rarest of them.
        """
        nothing = TermStatistics(documents=0, average_length=0.0, frequencies=dict.fromkeys(terms, 0))
        return await self._file.read(
            lambda c, stop: self._index.statistics(c, terms, scope, stop), missing=nothing
        )

    async def stats(self) -> Mapping[str, int | str]:
        """Counts of documents, chunks, vectors, links and facts; generation, dimensions, model; and bytes on
        disk.
        """
        model = self._model, self._dimensions
        counts = await self._file.read(lambda c, _: lookup.stats(c, model), missing=lookup.NOTHING)
        return {**counts, "bytes": self._file.location.stat().st_size}

    async def vacuum(self) -> None:
        """Merge the text index and give free space back to the disk. Waits for writers; searches go on."""
        if self._file.exists():
            await self._file.write(lambda c, _: write.sweep(c))
            await self._file.alone("VACUUM")
            await self._file.alone("PRAGMA wal_checkpoint (TRUNCATE)")  # the whole store went through the log

    def _slot(self, connection: sqlite3.Connection) -> Slot:
        """The place of the vectors that questions are compared with. Raises SourceError."""
        return choose(schema.slots(connection), self._model, self._dimensions)


def _admitted(connection: sqlite3.Connection, query: Query) -> Condition:
    """What chunks must meet, for the languages that the store holds."""
    return admitted(query, terms_of(query, schema.languages(connection)))


def _remove_files(at: Path) -> None:
    """Remove a store, with the files that SQLite and `IngestLock` make beside it."""
    for ending in ("", "-wal", "-shm", "-journal", "-turn"):
        at.with_name(at.name + ending).unlink(missing_ok=True)
