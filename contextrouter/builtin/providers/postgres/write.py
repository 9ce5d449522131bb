# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Filling a store in Postgres: entries become rows before the transaction begins, documents are locked in one
order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from contextrouter.builtin.providers import stored_attributes
from contextrouter.builtin.providers.filtering import aligned, indexed, labelled, microseconds, storable
from contextrouter.builtin.providers.job_runs import KEY
from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.builtin.providers.payloads import payload
from contextrouter.builtin.providers.postgres import entity_vectors, schema
from contextrouter.builtin.providers.postgres.connection_pool import clean
from contextrouter.builtin.providers.postgres.filter import entries, lexeme, mark
from contextrouter.builtin.providers.postgres.text_configurations import of_all_stores
from contextrouter.builtin.providers.postgres.vector_leg import LEGS, near_index
from contextrouter.builtin.providers.vector_slots import COUNTED_AS, FIRST, SECOND, Slot, choose, note_keys
from contextrouter.contracts import Entry
from contextrouter.errors import IngestError
from contextrouter.model import Document, Fact, Vector
from contextrouter.text import analysis
from contextrouter.text.analysis import Stemmed
from contextrouter.text.fields import fields
from contextrouter.text.stemming import ENGLISH, stem_language
from contextrouter.vectors import unit

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

Way: TypeAlias = Callable[[Document], Stemmed | None]
"""A chunk -> how its words are stemmed; None: with English stems."""
LegVectors: TypeAlias = Mapping[str, "list[float] | None"]
"""Leg -> the unit vector of a chunk."""
_Counts: TypeAlias = dict[tuple[str, str, str], list[int]]
"""(tenant, compartment, sensitivity) -> chunks and length, more or less."""
_GAP = 16  # positions between fields, so that no phrase reaches from one into the next
_MOST_PLACES = 255  # of one term in one chunk: all that Postgres keeps
_MOST_BYTES = 900_000  # of a chunk's index terms; Postgres refuses a mebibyte

_DOCUMENT = (
    "INSERT INTO documents (tenant, id, compartment, sensitivity, trust, kind, url, labels, updated_at,"
    " synced_at, fingerprint, payload) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT"
    " (tenant, id) DO UPDATE SET compartment = excluded.compartment, sensitivity = excluded.sensitivity,"
    " trust = excluded.trust, kind = excluded.kind, url = excluded.url, labels = excluded.labels, updated_at"
    " = excluded.updated_at, synced_at = excluded.synced_at, fingerprint = excluded.fingerprint, payload ="
    " excluded.payload"
)
_CHUNK = (
    "INSERT INTO chunks (owner, document, place, id, tenant, compartment, sensitivity, updated_at, length,"
    " filters, terms, payload, {columns}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,"
    " $11::text::tsvector, $12, {values})"
)
_LINK = "INSERT INTO links (tenant, document, target) VALUES ($1, $2, $3)"
_FACT = (
    "INSERT INTO facts (owner, document, place, subject, predicate, object, subject_key, object_key,"
    " confidence, valid_from, valid_to, tenant, compartment, sensitivity, source, attributes) VALUES ($1, $2,"
    " $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
)
_GONE = (
    "USING unnest($1::text[], $2::text[]) AS k (tenant, id) WHERE {0}.{1} = k.tenant AND {0}.document = k.id"
)


class ChunkRow(NamedTuple):
    """What is stored of one chunk."""

    values: tuple[Any, ...]
    vectors: LegVectors
    others: Mapping[str, LegVectors]  # of further models


class Rows(NamedTuple):
    """What is stored of one entry."""

    tenant: str
    id: str
    document: tuple[Any, ...]
    chunks: tuple[ChunkRow, ...]
    links: tuple[tuple[str, str, str], ...]
    facts: tuple[tuple[Any, ...], ...]
    dimensions: tuple[int, ...]  # of the vectors in it, each length once
    languages: frozenset[str]  # whose stems its chunks have, but English


def prepare(entry: Entry, legs: Sequence[str], words: Way = of_all_stores) -> Rows:
    """Turn an entry into rows. Raises IngestError that names the document and what is wrong with it."""
    with storable(entry.document):
        return _prepare_one(entry, legs, words)


def _prepare_one(entry: Entry, legs: Sequence[str], words: Way) -> Rows:
    document = entry.document
    chunks = labelled(document, entry.chunks)
    aligned(entry, legs)
    marks = (
        mark
        for part in (document, *chunks)
        for mark in (part.id, part.tenant, part.compartment, part.sensitivity)
    )
    if any("\x00" in (mark or "") for mark in marks):
        raise ValueError("has an id or a label with a NUL in it, which Postgres cannot hold; leave it out")
    owner = (document.tenant or "", document.id)
    vectors = [_of_chunk(entry.vectors, n) for n in range(len(chunks))]
    others = [
        {model: _of_chunk(by_leg, n) for model, by_leg in entry.other_vectors.items()}
        for n in range(len(chunks))
    ]
    return Rows(
        *owner,
        document=(
            *owner,
            document.compartment or "",
            document.sensitivity or "",
            clean(document.trust or ""),
            clean(document.kind),
            clean(document.url),
            list(map(clean, document.labels)),
            microseconds(document.updated_at),
            microseconds(document.synced_at),
            clean(entry.fingerprint),
            "" if chunks == [document] else payload(document),
        ),
        chunks=tuple(
            ChunkRow((*owner, n, *_chunk(chunk, words)), vectors[n], others[n])
            for n, chunk in enumerate(chunks)
        ),
        links=tuple((*owner, clean(link)) for link in dict.fromkeys(document.links) if link),
        facts=tuple((*owner, n, *_fact(fact, document)) for n, fact in enumerate(entry.facts)),
        dimensions=tuple(
            {len(v) for vectors_of_leg in vectors for v in vectors_of_leg.values() if v is not None}
        ),
        languages=frozenset(filter(None, (_marked(chunk, words) for chunk in chunks))),
    )


def _of_chunk(by_leg: Mapping[str, Sequence[Vector | None]], number: int) -> LegVectors:
    return {leg: unit_or_null(vectors[number]) for leg, vectors in by_leg.items()}


def unit_or_null(vector: Vector | None) -> list[float] | None:
    """A vector of length 1; None for one without a direction."""
    return None if vector is None else unit(vector)


def _marked(chunk: Document, words: Way) -> str:
    """The language whose stems a chunk has, where those are not English and no configuration made them."""
    language = stem_language(chunk.language)
    return language if words is of_all_stores and language != ENGLISH else ""


def index_terms(chunk: Document, words: Way = of_all_stores) -> tuple[str, int]:
    """A chunk as a weighted tsvector, written out, and how many of its terms are no stop words.

    A language other than English is a lexeme without a place, so that no phrase and no count has it.
    """
    stemmed = words(chunk)
    places: dict[str, list[str]] = {}
    analysed = [analysis.analyse(text, stemmed) for text in fields(chunk)]
    position = 0
    for terms, weight in zip(analysed, "ABC", strict=True):
        for term in terms:
            position += 1
            if not term:
                continue
            places.setdefault(lexeme(term), []).append(f"{position}{weight}")
        position += _GAP
    parts, size = [], 0
    for term, positions in places.items():
        size += len(term.encode()) + 2 * min(len(positions), _MOST_PLACES) + 8
        if size > _MOST_BYTES:
            break
        parts.append(f"{term}:{','.join(positions[:_MOST_PLACES])}")
    if language := _marked(chunk, words):
        parts.append(mark(language))
    return " ".join(parts), analysis.length(analysed)


def _chunk(chunk: Document, words: Way) -> tuple[Any, ...]:
    terms, length = index_terms(chunk, words)
    labels = (chunk.tenant or "", chunk.compartment or "", chunk.sensitivity or "")
    return (
        chunk.id,
        *labels,
        microseconds(chunk.updated_at),
        length,
        entries(indexed(chunk)),
        terms,
        payload(chunk),
    )


def _fact(fact: Fact, document: Document) -> tuple[Any, ...]:
    if not math.isfinite(fact.confidence):
        raise ValueError(f"has a fact with the confidence {fact.confidence!r}; give a number from 0 to 1")
    return (
        clean(fact.subject),
        clean(fact.predicate),
        clean(fact.object),
        name_key(fact.subject),
        name_key(fact.object),
        float(fact.confidence),
        microseconds(fact.valid_from),
        microseconds(fact.valid_to),
        clean(fact.tenant or document.tenant or ""),
        clean(fact.compartment or document.compartment or ""),
        clean(fact.sensitivity or document.sensitivity or ""),
        clean(fact.source),
        stored_attributes.encode_attributes(fact, document),
    )


async def upsert(connection: Connection, entries: Iterable[Rows], model: str, dimensions: int) -> None:
    """Put documents in place of what they were. Call inside a write transaction; of two with one id the later
    one counts.
    """
    rows = [row for _, row in sorted({(entry.tenant, entry.id): entry for entry in entries}.items())]
    if not rows:
        return
    # in one order: no deadlock
    await connection.executemany(_DOCUMENT, [entry.document for entry in rows])
    tenants, ids = [entry.tenant for entry in rows], [entry.id for entry in rows]
    counts, names = await _remove_parts(connection, tenants, ids)
    chunks = [chunk for entry in rows for chunk in entry.chunks]
    await schema.note_languages(connection, frozenset().union(*(entry.languages for entry in rows)))
    await _insert_chunks(connection, chunks, await schema.slots(connection), model, dimensions)
    await connection.executemany(_LINK, [link for entry in rows for link in entry.links])
    await connection.executemany(_FACT, [fact for entry in rows for fact in entry.facts])
    names.update(name for entry in rows for fact in entry.facts for name in fact[6:8])
    await entity_vectors.forget_entities(connection, names)
    for chunk in chunks:
        _count(counts, chunk.values[4:7], 1, chunk.values[8])
    for entry in rows:
        _count(counts, (entry.tenant, "", ""), 0, 0)
    await _note_counts(connection, counts)


async def _insert_chunks(
    connection: Connection, chunks: Sequence[ChunkRow], places: Sequence[Slot], model: str, dimensions: int
) -> None:
    """Insert chunks with the vectors of each model that the store has a place for."""
    suffix_of_own = choose(places, model, dimensions).suffix if places else FIRST
    columns = [leg + suffix_of_own for leg in LEGS]
    others = {slot.model: slot.suffix for slot in places if slot.suffix != suffix_of_own}
    columns += [leg + suffix for suffix in others.values() for leg in LEGS]
    values = ", ".join(f"${number}::real[]::vector" for number in range(13, 13 + len(columns)))
    sql = _CHUNK.format(columns=", ".join(columns), values=values)
    rows = []
    for chunk in chunks:
        by_model = (chunk.vectors, *(chunk.others.get(model_name, {}) for model_name in others))
        rows.append((*chunk.values, *(vectors.get(leg) for vectors in by_model for leg in LEGS)))
    await connection.executemany(sql, rows)


async def delete(connection: Connection, ids: Sequence[str], tenant: str) -> int:
    """Remove documents of a tenant; return how many there were."""
    sql = "SELECT id FROM documents WHERE tenant = $1 AND id = ANY ($2::text[]) ORDER BY id FOR UPDATE"
    existing = [row["id"] for row in await connection.fetch(sql, tenant, list(ids))]
    if existing:
        counts, names = await _remove_parts(connection, [tenant] * len(existing), existing)
        await entity_vectors.forget_entities(connection, names)
        await connection.execute(
            "DELETE FROM documents WHERE tenant = $1 AND id = ANY ($2::text[])", tenant, existing
        )
        _count(counts, (tenant, "", ""), 0, 0)
        await _note_counts(connection, counts)
    return len(existing)


async def clear(connection: Connection, store: str) -> None:
    """Remove everything, and forget which embedder filled the store. `store` is its new identity."""
    await connection.execute("TRUNCATE documents, chunks, links, facts")
    for suffix in await schema.entity_places(connection):
        await connection.execute(f"TRUNCATE entities{suffix}")
    await connection.execute("UPDATE counts SET chunks = 0, length = 0, generation = generation + 1")
    await connection.execute(
        "DELETE FROM meta WHERE key = ANY ($2::text[]) OR starts_with(key, $1)",
        KEY,
        [schema.TEXT_SEARCH, COUNTED_AS, *note_keys()],
    )
    await schema.forget_languages(connection)
    for column in (leg + suffix for suffix in (FIRST, SECOND) for leg in LEGS):
        await connection.execute(f"DROP INDEX IF EXISTS {near_index(column)}")
    await schema.set_note(connection, "store", store)


async def note_dimensions(connection: Connection, rows: Sequence[Rows], model: str, dimensions: int) -> int:
    """Hold the first vectors' length and model for all that come later; return the length when these are the
    first, else 0.
    """
    every = [(size, row) for row in rows for size in row.dimensions]
    for size, row in every:
        if size != (dimensions or every[0][0]):
            expected = f"its embedder has {dimensions}" if dimensions else f"others have {every[0][0]}"
            message = f"has a vector of {size} dimensions, {expected}; check the embedder"
            raise IngestError(f"Document {row.id!r} {message}.", document=row.id)
    if not every:
        return 0
    size = every[0][0]
    slot = choose(await schema.slots(connection), model, size)
    if slot.dimensions and (slot.model or not model):
        return 0
    await connection.execute(
        "SELECT pg_advisory_xact_lock($1, hashtext(current_schema() || ':vectors'))", schema.LOCK
    )
    slot = choose(await schema.slots(connection), model, size)  # another process may have been first
    await schema.set_note(connection, f"dimensions{slot.suffix}", str(size))
    if model:
        await schema.set_note(connection, f"model{slot.suffix}", model)
    return 0 if slot.dimensions else size


def _count(counts: _Counts, labels: tuple[str, str, str], chunks: int, length: int) -> None:
    count = counts.setdefault(labels, [0, 0])
    count[0] += chunks
    count[1] += length


async def _remove_parts(
    connection: Connection, tenants: Sequence[str], ids: Sequence[str]
) -> tuple[_Counts, set[str]]:
    """Take chunks, links and facts of documents out; return what that changes in the counts, and the names in
    the facts.
    """
    gone = await connection.fetch(
        f"DELETE FROM chunks {_GONE.format('chunks', 'owner')}"
        " RETURNING chunks.tenant, chunks.compartment, chunks.sensitivity, chunks.length",
        tenants,
        ids,
    )
    await connection.execute(f"DELETE FROM links {_GONE.format('links', 'tenant')}", tenants, ids)
    facts = await connection.fetch(
        f"DELETE FROM facts {_GONE.format('facts', 'owner')} RETURNING subject_key, object_key", tenants, ids
    )
    counts: _Counts = {}
    for *labels, length in gone:
        _count(counts, tuple(labels), -1, -length)
    return counts, {name for pair in facts for name in pair}


async def note_change(connection: Connection) -> None:
    """Make the store's version another one, though no document changed."""
    await _note_counts(connection, {("", "", ""): [0, 0]})


async def _note_counts(connection: Connection, counts: _Counts) -> None:
    """Add to the counts, last of all and in order: their rows are held until the commit."""
    await connection.executemany(
        "INSERT INTO counts AS t VALUES ($1, $2, $3, $4, $5, 1) ON CONFLICT (tenant, compartment,"
        " sensitivity) DO UPDATE SET chunks = t.chunks + excluded.chunks, length = t.length +"
        " excluded.length, generation = t.generation + 1",
        [(*labels, *count) for labels, count in sorted(counts.items())],
    )
