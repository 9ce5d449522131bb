"""The provider `postgres`: documents in Postgres with pgvector, for many processes at once; three legs as in
`sqlite`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from contextrouter.builtin.providers.entity_texts import PAGE, EntityTexts, check_threshold, distinct_texts
from contextrouter.builtin.providers.example_documents import EXAMPLE_ENTRIES
from contextrouter.builtin.providers.field_weights import USUAL, checked_weights
from contextrouter.builtin.providers.job_runs import KEY, add_run_times, add_run_times_to_hits, as_text
from contextrouter.builtin.providers.link_degrees import MeanCache
from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.builtin.providers.payloads import document
from contextrouter.builtin.providers.postgres import (
    entity_vectors,
    index_building,
    index_tuning,
    lookup,
    mentions_leg,
    schema,
    text_leg,
    vector_leg,
    write,
)
from contextrouter.builtin.providers.postgres.connection_pool import Pool, Session, clean
from contextrouter.builtin.providers.postgres.embedded import PREFIX, example_folder
from contextrouter.builtin.providers.postgres.index_building import BulkLoad, IndexAfterLoad
from contextrouter.builtin.providers.postgres.index_tuning import Wanted
from contextrouter.builtin.providers.postgres.ingest_lock import IngestLock
from contextrouter.builtin.providers.postgres.job_run_cache import JobRunCache
from contextrouter.builtin.providers.postgres.maintenance import Maintained
from contextrouter.builtin.providers.postgres.text_configurations import Words, of_all_stores
from contextrouter.builtin.providers.postgres.vector_leg import Index, Precision
from contextrouter.builtin.providers.postgres.vector_models import PostgresModels
from contextrouter.builtin.providers.queries import refuse_other_leg
from contextrouter.contracts import EntityMatch, Entry, LinkDegrees, TermStatistics
from contextrouter.model import Document, Facet, Hit, Query, Vector
from contextrouter.scope import Scope
from contextrouter.text.languages import LanguageTerms

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection


class Postgres(Maintained):
    """Keeps documents in the schema `schema` of a Postgres database (15 or newer, with pgvector 0.8 or
    newer).

    `dsn` is a connection string; empty: `DATABASE_URL`, else the `PG*` variables; `embedded:FOLDER` starts a
    server of one's own, for trying out. `embedder` names the embedder of its vectors ("": text only).
    `title_weight`, `path_weight` and `body_weight` say how often a term counts in each field. `text_search`
    names a text-search configuration of Postgres ("german") whose stems and stop words hold for all;
    `languages` (["de", "fr"]) are those of chunks with the stems and stop words of Postgres, where all others
    have English stems. Neither: each chunk has the stems of its `language`, as in all stores.
    `index` is the vectors' approximate index, of `precision`, with HNSW's `m` and `ef_construction`; a search
    looks at `ef_search` candidates at least, and measures all when no more than `exact_below` are admitted.
    `index_after_load` says whether a run builds the indexes at its end ("auto": where it stores more than the
    store has), with `maintenance_work_mem` and `max_parallel_maintenance_workers`.
    `pool_size` connections at most serve a process; a search waits `pool_timeout` seconds for one, and
    `statement_timeout` seconds for an answer, unless its deadline is nearer. `statement_cache_size = 0` is
    for a pooler in transaction mode; `target_session_attrs` chooses among several hosts. `entity_threshold`
    is the cosine at which a hint at an entity means it; None: that of the embedder. Raises ValueError for
    values out of range.
    """

    _examples: tuple[Entry, ...] = ()

    def __init__(
        self,
        *,
        dsn: str = "",
        schema: str = "contextrouter",
        embedder: str | None = "default",
        title_weight: float = 3.0,
        path_weight: float = 2.0,
        body_weight: float = 1.0,
        text_search: str = "",
        languages: Sequence[str] = (),
        index: Index = "hnsw",
        precision: Precision = "vector",
        m: int = 16,
        ef_construction: int = 64,
        ef_search: int = 200,
        exact_below: int = 10_000,
        index_after_load: IndexAfterLoad = "auto",
        maintenance_work_mem: str = "256MB",
        max_parallel_maintenance_workers: int = 2,
        pool_size: int = 10,
        pool_timeout: float = 5.0,
        statement_timeout: float = 30.0,
        statement_cache_size: int = 100,
        target_session_attrs: Session = "any",
        entity_threshold: float | None = None,
    ) -> None:
        self.embedder = embedder or None
        self.legs: Sequence[str] = ("vector", "text", "keywords") if self.embedder else ("text",)
        self.vector_legs: Sequence[str] = vector_leg.LEGS if self.embedder else ()
        self.score_range = {leg: (-1.0, 1.0) for leg in self.vector_legs}
        weights = checked_weights(title_weight, path_weight, body_weight)
        self._weights, self._factor = text_leg.rank_weights(*weights)
        self._usual, self._words = weights == USUAL, Words(text_search, languages)
        self._wanted = Wanted(index=index, precision=precision, m=m, ef_construction=ef_construction)
        index_tuning.check_range("ef_search", ef_search, 1, 1000)
        index_tuning.check_range("exact_below", exact_below, 0, 10_000_000)
        self._exact_below, self._ef_search = exact_below, ef_search
        self._load = BulkLoad(index_after_load, maintenance_work_mem, max_parallel_maintenance_workers)
        self.pool = Pool(
            dsn=dsn,
            schema=schema,
            pool_size=pool_size,
            pool_timeout=pool_timeout,
            statement_timeout=statement_timeout,
            statement_cache_size=statement_cache_size,
            target_session_attrs=target_session_attrs,
        )
        self._ingest_lock, self._means, self._runs = IngestLock(self.pool), MeanCache(), JobRunCache()
        self.entity_threshold = check_threshold(entity_threshold)

    @classmethod
    def example(cls) -> Self:
        """A store of two documents in a schema of its own, on a server in a temporary folder; no embedder."""
        store = cls(
            dsn=PREFIX + example_folder(),
            schema=f"example_{uuid.uuid4().hex[:24]}",
            embedder=None,
            pool_size=4,
        )
        store._examples = EXAMPLE_ENTRIES
        return store

    async def open(self) -> None:
        """Connect. Raises MissingDependency, and SourceError without a server or for a newer schema."""
        await self.pool.open(self)
        try:
            async with self.pool.transaction() as connection:
                await schema.version(connection)
            examples, self._examples = self._examples, ()
            await self.upsert(examples)
        except BaseException:
            await self.pool.aclose(self)
            raise

    async def aclose(self) -> None:
        """Let go of the pool; its connections end with the last plugin that shares it."""
        try:
            await self._ingest_lock.release()
        finally:
            await self.pool.aclose(self)

    async def ping(self) -> None:
        """Raise SourceError when there is no store to search."""
        async with self.pool.transaction() as connection:
            await schema.read_meta(connection, "store")

    async def embedded_by(self, model: str, dimensions: int) -> None:
        """Say which model's vectors this store is asked and filled with, and how long they are.

        Raises SourceError at once, and from then on at each search and upsert, when other models filled the
        store, or vectors of this one are missing.
        """
        self._model = (model, dimensions)
        await self.pool.answer(lambda c: schema.suffix_of(c, model, dimensions), missing="")

    def vector_models(self) -> PostgresModels:
        """Return the models whose vectors are here."""
        return PostgresModels(self.pool, self._wanted)

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return chunks, best first; text scores are like BM25 (0 or more), vector scores cosines in [-1, 1].
        Ties go by id.
        """
        refuse_other_leg(query, self.legs)
        if query.limit < 1:
            return []
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            question = await self._words.query_terms(connection, query)
            if query.leg == "text":
                rows = await self._by_words(connection, query, question)
            else:
                rows = await vector_leg.search(
                    connection,
                    query,
                    question.without_phrases(),
                    self._words,
                    self._model,
                    exact_below=self._exact_below,
                    ef_search=self._ef_search,
                )
            runs = await self._runs.read(connection) if rows else {}
        values_of = vector_leg.values_of
        hits = [
            Hit(
                document=document(row["payload"]),
                score=row["score"],
                vector=values_of(row["sent"]) if row["sent"] else None,
            )
            for row in rows
        ]
        return add_run_times_to_hits(hits, runs)

    async def _by_words(self, connection: Connection, query: Query, question: LanguageTerms) -> list[Any]:
        model = self._model if self.embedder else None
        arguments = (connection, query, question, self._words, model)
        if self._ranks and (rows := await text_leg.search_index(*arguments, self.pool.schema)):
            return rows
        return await text_leg.search(*arguments, self._weights, self._factor)

    async def upsert(self, entries: Sequence[Entry]) -> None:
        """Replace documents, their chunks, vectors, links and facts: all entries in one transaction, durable
        on return.

        The first one lays out the schema. Raises IngestError for an entry that cannot be stored, SourceError
        when the store was filled by another model.
        """
        if not entries:
            return
        words = await self._words_of(entries) if self._words.configured else of_all_stores
        rows = [write.prepare(entry, self.vector_legs, words) for entry in entries]
        await schema.lay_out(self.pool)
        async with self.pool.transaction(write=True) as connection:
            await schema.keep_note(connection, schema.TEXT_SEARCH, self._words.note)
            self._words.refuse_others(await schema.read_meta(connection, schema.TEXT_SEARCH))
            size = await write.note_dimensions(connection, rows, *self._model)
            if size and not await index_building.left_out(connection):
                for sql in index_tuning.first_indexes(size, self._wanted):
                    await connection.execute(sql)
            await write.upsert(connection, rows, *self._model)

    async def take_turn(self) -> str:
        """Take the one turn at filling this schema: "". Else say who has it, and since when."""
        return await self._ingest_lock.acquire()

    async def end_turn(self) -> None:
        """Let another process fill the schema."""
        await self._ingest_lock.release()

    async def _words_of(self, entries: Sequence[Entry]) -> write.Way:
        async with self.pool.transaction() as connection:
            return await self._words.of_chunks(
                connection, [chunk for entry in entries for chunk in entry.chunks]
            )

    async def record_run(self, origin: str, moment: datetime) -> None:
        """Note that a job was run to its end; its documents have the moment as `synced_at`."""
        key, value = KEY + origin, as_text(moment)
        await self.pool.answer(lambda c: schema.set_note(c, key, value), missing=None, write=True)
        self._runs.forget()

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        """Document id -> fingerprint, of one tenant's documents (None: those without a tenant)."""
        sql, owner = "SELECT id, fingerprint FROM documents WHERE tenant = $1", clean(tenant or "")
        rows: list[Any] = await self.pool.answer(lambda c: c.fetch(sql, owner), missing=[])
        return {row["id"]: row["fingerprint"] for row in rows}

    async def tenants(self) -> Sequence[str | None]:
        """Whose documents are here; None: some have no tenant."""
        sql = "SELECT DISTINCT tenant FROM documents ORDER BY tenant"
        rows: list[Any] = await self.pool.answer(lambda c: c.fetch(sql), missing=[])
        return [row["tenant"] or None for row in rows]

    async def embedded(
        self, ids: Sequence[str], tenant: str | None, model: str
    ) -> Sequence[tuple[Document, Mapping[str, Vector]]]:
        """Return the chunks of documents, each with its vectors by leg; nothing when another model filled the
        store.
        """
        legs = self.vector_legs
        if not legs:
            return []
        return await self.pool.answer(
            lambda c: lookup.embedded(c, ids, tenant or "", model, legs), missing=[]
        )

    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        """Remove documents of one tenant and what belongs to them, durably; return how many there were."""
        valid = [id for id in dict.fromkeys(ids) if id == clean(id)]
        return await self.pool.answer(
            lambda c: write.delete(c, valid, clean(tenant or "")), missing=0, write=True
        )

    async def clear(self) -> None:
        """Remove everything, and forget which embedder filled the store: the way to build it again."""
        await self.pool.answer(lambda c: write.clear(c, uuid.uuid4().hex), missing=None, write=True)

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        """Return whole documents, or chunks, by id, in the order asked."""
        async with self.pool.transaction(scope) as connection:
            documents = await lookup.fetch_documents(connection, ids, scope)
            return add_run_times(documents, await self._runs.read(connection))

    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        """Return the first chunk of each document linked with `ids` (of documents or chunks), most links
        first.

        A document's `links` are ids or URLs of documents; the score is the number of links, either way.
        """
        async with self.pool.transaction(scope) as connection:
            hits = await lookup.neighbours(connection, ids, limit, scope)
            return add_run_times_to_hits(hits, await self._runs.read(connection))

    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        """Count the links of documents, by their ids or those of their chunks, and the links per document."""
        async with self.pool.transaction(scope) as connection:
            return await lookup.link_degrees(connection, ids, scope, self._means)

    async def mentions(self, query: Query) -> Sequence[Hit]:
        """Return a chunk of each document that names an entity of the query; as in `sqlite`."""
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            question = await self._words.query_terms(connection, query)
            hits = await mentions_leg.find_mentions(connection, query, question.without_phrases())
            return add_run_times_to_hits(hits, await self._runs.read(connection))

    async def exact_names(self, hints: Sequence[str], query: Query) -> Sequence[str]:
        """Return the hints that facts or key phrases have as names, in scope."""
        named = Query(text="", entities=tuple(hints), scope=query.scope)
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            question = await self._words.query_terms(connection, named)
            names = await mentions_leg.find_names(connection, named, question)
        return [hint for hint in hints if name_key(hint) in names]

    async def nearest_entities(
        self, vector: Vector, query: Query, *, threshold: float
    ) -> Sequence[EntityMatch]:
        """Return the entities in scope with a cosine of at least `threshold`, nearest first. Raises
        SourceError where there are no vectors of entities.
        """
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            suffix = await schema.suffix_of(connection, *self._model)
            return await entity_vectors.nearest(connection, vector, query, threshold, suffix)

    async def entity_texts(self) -> Sequence[str]:
        """Return the distinct texts about the next entities that have no vectors."""
        return distinct_texts(await self._without_vectors(PAGE))

    async def embed_entities(self, vectors: Mapping[str, Vector]) -> int:
        """Keep vectors of entities, by text; return how many entities have theirs now that had none."""
        if not await self._without_vectors(1):
            return 0
        async with self.pool.transaction(write=True) as connection:
            suffix = await schema.suffix_of(connection, *self._model)
            count = await entity_vectors.insert(connection, vectors, suffix)
            await write.note_change(connection)  # last, as in an upsert: its row is held until the commit
        return count

    async def _without_vectors(self, limit: int) -> list[EntityTexts]:
        none: list[EntityTexts] = []
        return await self.pool.answer(
            lambda c: entity_vectors.without_vectors_of(c, limit, self._model), missing=none
        )

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        """Count documents by the values of fields (kind, labels, …) or metadata keys, over all the query lets
        through, as `sqlite` does: of each dimension the `query.limit` values of most documents.
        """
        async with self.pool.transaction(query.scope, deadline=query.deadline) as connection:
            self._words.refuse_others(
                await schema.read_meta(connection, schema.TEXT_SEARCH, default=self._words.note)
            )
            question = await self._words.query_terms(connection, query)
            return await lookup.facets(connection, query, question, dimensions)

    async def version(self) -> str:
        """A string that changes with every write, by whichever process; "" while there is no store."""
        return await self.pool.answer(schema.content_version, missing="")

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        """Counts over the chunks that `scope` shows, estimated for common words; several words count as the
        rarest.
        """
        async with self.pool.transaction(scope) as connection:
            analysed = await self._words.analyses(connection, terms)
            return await text_leg.statistics(connection, analysed, scope)
