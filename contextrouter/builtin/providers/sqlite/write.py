"""Filling a store: entries become rows before the transaction begins, so that the write lock is held
briefly.
"""

# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from contextrouter.builtin.providers import stored_attributes
from contextrouter.builtin.providers.filtering import aligned, indexed, labelled, microseconds, storable
from contextrouter.builtin.providers.job_runs import KEY
from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.builtin.providers.payloads import compress, document, payload
from contextrouter.builtin.providers.sqlite import entity_vectors, packed_postings, schema
from contextrouter.builtin.providers.sqlite.vector_leg import LEGS, code
from contextrouter.builtin.providers.vector_slots import COUNTED_AS, EMPTY, Slot, choose, note_keys, of_model
from contextrouter.contracts import Entry
from contextrouter.errors import IngestError
from contextrouter.model import Document, Fact, Vector
from contextrouter.text import analysis
from contextrouter.text.fields import fields
from contextrouter.text.stemming import ENGLISH, stem_language, stemmer
from contextrouter.vectors import unit_array

LOGGED = 10_000  # removed chunks, at least, before their log is cut

VectorRows: TypeAlias = Mapping[str, tuple[bytes, bytes]]
"""leg -> float32, code"""


class ChunkRows(NamedTuple):
    """What is stored of one chunk."""

    row: tuple[Any, ...]  # id, tenant, compartment, sensitivity, updated_at, length
    payload: str
    terms: tuple[str, str, str]
    vectors: VectorRows
    others: Mapping[str, VectorRows]  # of further models
    filters: tuple[tuple[str, str], ...]


class Rows(NamedTuple):
    """What is stored of one entry."""

    tenant: str
    id: str
    document: tuple[Any, ...]  # tenant, id, compartment, sensitivity, url, fingerprint, payload
    chunks: tuple[ChunkRows, ...]
    links: tuple[str, ...]
    facts: tuple[tuple[Any, ...], ...]


def prepare(entry: Entry, legs: Sequence[str]) -> Rows:
    """Turn an entry into rows. Raises IngestError that names the document and what is wrong with it."""
    document = entry.document
    with storable(document):
        chunks = labelled(document, entry.chunks)
        aligned(entry, legs)
        return Rows(
            tenant=document.tenant or "",
            id=document.id,
            document=(
                document.tenant or "",
                document.id,
                document.compartment or "",
                document.sensitivity or "",
                document.url,
                entry.fingerprint,
                "" if chunks == [document] else compress(payload(document)),
            ),
            chunks=tuple(
                _chunk(
                    chunk,
                    _by_leg(entry.vectors, number),
                    {model: _by_leg(vectors, number) for model, vectors in entry.other_vectors.items()},
                )
                for number, chunk in enumerate(chunks)
            ),
            links=tuple(dict.fromkeys(link for link in document.links if link)),
            facts=tuple(_fact(fact, document) for fact in entry.facts),
        )


def terms(chunk: Document) -> tuple[str, str, str]:
    """What the text index is given of a chunk: the terms of its three fields, parted by spaces."""
    stemmed = stemmer(chunk.language)
    title, path, body = (" ".join(analysis.analyse(text, stemmed)) for text in fields(chunk))
    return title, path, body


def upsert(connection: sqlite3.Connection, rows: Iterable[Rows], model: str, dimensions: int) -> None:
    """Put documents in place of what they were. Call inside a write transaction."""
    reanalyse(connection)
    places = schema.slots(connection)
    filters, packer = _FilterNumbers(connection), packed_postings.Packer(connection)
    for row in rows:
        places = _check_sizes(connection, places, row, model, dimensions)
        _remove(connection, row.tenant, row.id)
        slot = choose(places, model, dimensions) if places else EMPTY
        _insert(connection, row, filters, packer, slot, places)
    filters.keep()
    packer.finish()
    next_generation(connection)


def delete(connection: sqlite3.Connection, ids: Iterable[str], tenant: str) -> int:
    """Remove documents; return how many there were."""
    reanalyse(connection)
    count = sum(_remove(connection, tenant, id) for id in ids)
    if count:
        next_generation(connection)
    return count


def clear(connection: sqlite3.Connection) -> None:
    """Remove everything, and forget which embedder filled the store."""
    places = schema.suffixes(connection)
    vectors = [table + suffix for suffix in places for table in schema.MODEL_TABLES]
    for table in (*schema.CONTENT_TABLES, *vectors):
        connection.execute(f"DELETE FROM {table}")
    connection.execute("INSERT INTO terms (terms) VALUES ('delete-all')")
    connection.executemany("DELETE FROM meta WHERE key = ?", [(key,) for key in (*note_keys(), COUNTED_AS)])
    connection.execute("DELETE FROM meta WHERE key GLOB ?", (f"{KEY}*",))
    connection.execute("UPDATE meta SET value = 0 WHERE key IN ('chunks', 'length', 'removed')")
    schema.write_meta(connection, "analysis", schema.ANALYSED_BY)
    schema.write_meta(connection, "store", uuid.uuid4().hex)  # nothing loaded before goes with what comes
    schema.add(connection, "generation", 1)


def reanalyse(connection: sqlite3.Connection) -> None:
    """Build the text index again when other code made it: its terms could not be found and taken out any
    more.
    """
    if schema.text(connection, "analysis") == schema.ANALYSED_BY:
        return
    connection.execute("INSERT INTO terms (terms) VALUES ('delete-all')")
    total = 0
    for number, stored in connection.execute("SELECT chunk, payload FROM texts"):
        indexed_terms = terms(document(stored))
        length = analysis.length(field.split() for field in indexed_terms)
        connection.execute(
            "INSERT INTO terms (rowid, title, path, body) VALUES (?, ?, ?, ?)", (number, *indexed_terms)
        )
        connection.execute("UPDATE chunks SET length = ? WHERE number = ?", (length, number))
        total += length
    for number, subject, object in connection.execute("SELECT number, subject, object FROM facts").fetchall():
        keys = (name_key(subject), name_key(object), number)
        connection.execute("UPDATE facts SET subject_key = ?, object_key = ? WHERE number = ?", keys)
    for suffix in schema.suffixes(connection):
        connection.execute(f"DELETE FROM entities{suffix}")  # their names may be compared otherwise now
    schema.write_meta(connection, "length", total)
    schema.write_meta(connection, "analysis", schema.ANALYSED_BY)
    schema.write_meta(connection, "store", uuid.uuid4().hex)  # lengths loaded before are wrong now


def _by_leg(vectors: Mapping[str, Sequence[Vector | None]], number: int) -> VectorRows:
    return encode_vectors({leg: of_chunks[number] for leg, of_chunks in vectors.items()})


def encode_vectors(by_leg: Mapping[str, Vector | None]) -> VectorRows:
    """The vectors of a chunk that have a direction, as they are stored."""
    units = {leg: None if vector is None else unit_array(vector) for leg, vector in by_leg.items()}
    return {leg: (unit.tobytes(), code(unit)) for leg, unit in units.items() if unit is not None}


def _chunk(chunk: Document, vectors: VectorRows, others: Mapping[str, VectorRows]) -> ChunkRows:
    indexed_terms = terms(chunk)
    length = analysis.length(field.split() for field in indexed_terms)
    clean: list[tuple[str, str]] = []
    for key, values in indexed(chunk).items():
        if key != schema.STEMS:
            key = _clean(key)  # values have no lone surrogates
            clean += [(key, value) for value in sorted(values)]
    if (language := stem_language(chunk.language)) != ENGLISH:
        clean.append((schema.STEMS, language))
    labels = (chunk.tenant or "", chunk.compartment or "", chunk.sensitivity or "")
    row = (chunk.id, *labels, microseconds(chunk.updated_at), length)
    return ChunkRows(row, payload(chunk), indexed_terms, vectors, others, tuple(dict.fromkeys(clean)))


def _clean(text: str) -> str:
    text = str(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _fact(fact: Fact, document: Document) -> tuple[Any, ...]:
    return (
        fact.subject,
        fact.predicate,
        fact.object,
        name_key(fact.subject),
        name_key(fact.object),
        float(fact.confidence),
        microseconds(fact.valid_from),
        microseconds(fact.valid_to),
        fact.tenant or document.tenant or "",
        fact.compartment or document.compartment or "",
        fact.sensitivity or document.sensitivity or "",
        fact.source,
        stored_attributes.encode_attributes(fact, document),
    )


def _check_sizes(
    connection: sqlite3.Connection, places: list[Slot], rows: Rows, model: str, dimensions: int
) -> list[Slot]:
    """Hold the first vectors' length and model for all that come later; return the places in use."""
    lengths = [len(exact) // 4 for chunk in rows.chunks for exact, _ in chunk.vectors.values()]
    for size in dict.fromkeys(lengths):
        if dimensions and size != dimensions:
            message = f"has a vector of {size} dimensions, its embedder has {dimensions}; check the embedder"
            raise IngestError(f"Document {rows.id!r} {message}.", document=rows.id)
        slot = choose(places, model, size)
        if not slot.dimensions or (model and not slot.model):
            schema.write_meta(connection, f"dimensions{slot.suffix}", size)
            if model:
                schema.write_meta(connection, f"model{slot.suffix}", model)
            places = schema.slots(connection)
    return places


def _remove(connection: sqlite3.Connection, tenant: str, id: str) -> bool:
    existing = connection.execute(
        "SELECT number FROM documents WHERE tenant = ? AND id = ?", (tenant, id)
    ).fetchone()
    if existing is None:
        return False
    chunks = connection.execute(
        "SELECT c.number, c.length, t.payload FROM chunks c JOIN texts t ON t.chunk = c.number WHERE"
        " c.document = ?",
        existing,
    ).fetchall()
    of_vectors = [table + suffix for suffix in schema.suffixes(connection) for table in schema.CHUNK_VECTORS]
    tables = ("texts", "filters", *of_vectors)
    for number, length, stored in chunks:
        values = (number, *terms(document(stored)))
        connection.execute(
            "INSERT INTO terms (terms, rowid, title, path, body) VALUES ('delete', ?, ?, ?, ?)", values
        )
        for table in tables:
            connection.execute(f"DELETE FROM {table} WHERE chunk = ?", (number,))
        connection.execute(
            "INSERT INTO removed SELECT value + 1, ? FROM meta WHERE key = 'generation'", (number,)
        )
        schema.add(connection, "length", -length)
    schema.add(connection, "chunks", -len(chunks))
    schema.add(connection, "removed", len(chunks))
    keys = connection.execute("SELECT subject_key, object_key FROM facts WHERE document = ?", existing)
    entity_vectors.forget_entities(connection, [key for pair in keys.fetchall() for key in pair])
    for table in ("chunks", "links", "facts"):
        connection.execute(f"DELETE FROM {table} WHERE document = ?", existing)
    connection.execute("DELETE FROM documents WHERE number = ?", existing)
    return True


def _insert(
    connection: sqlite3.Connection,
    rows: Rows,
    filters: _FilterNumbers,
    packer: packed_postings.Packer,
    slot: Slot,
    places: list[Slot],
) -> None:
    """Insert one document. `slot` is the place of its vectors, `places` are all that are in use."""
    document = connection.execute(
        "INSERT INTO documents (tenant, id, compartment, sensitivity, url, fingerprint, payload) VALUES (?,"
        " ?, ?, ?, ?, ?, ?)",
        rows.document,
    ).lastrowid
    for chunk in rows.chunks:
        number = connection.execute(
            "INSERT INTO chunks (id, tenant, compartment, sensitivity, updated_at, length, document)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*chunk.row, document),
        ).lastrowid
        connection.execute("INSERT INTO texts VALUES (?, ?)", (number, chunk.payload))
        connection.execute(
            "INSERT INTO terms (rowid, title, path, body) VALUES (?, ?, ?, ?)", (number, *chunk.terms)
        )
        assert number is not None
        packer.add(number, chunk.terms)
        if chunk.vectors:
            insert_vectors(connection, number, chunk.vectors, slot.suffix)
        for model, vectors in chunk.others.items():
            further = of_model(places, model)  # None: it was dropped meanwhile
            if further is not None and further.suffix != slot.suffix:
                insert_vectors(connection, number, vectors, further.suffix)
        filters.insert(number, chunk.filters)
    schema.add(connection, "chunks", len(rows.chunks))
    schema.add(connection, "length", sum(chunk.row[-1] for chunk in rows.chunks))
    connection.executemany("INSERT INTO links VALUES (?, ?)", [(document, target) for target in rows.links])
    entity_vectors.forget_entities(connection, [key for fact in rows.facts for key in fact[3:5]])
    connection.executemany(
        "INSERT INTO facts (document, subject, predicate, object, subject_key, object_key, confidence,"
        " valid_from, valid_to, tenant, compartment, sensitivity, source, attributes) VALUES (?, ?, ?, ?, ?,"
        " ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(document, *fact) for fact in rows.facts],
    )


def insert_vectors(connection: sqlite3.Connection, chunk: int, vectors: VectorRows, suffix: str) -> None:
    """Keep the vectors of a chunk, and their codes. Without vectors, it is noted that there are none."""
    rows = [vectors.get(leg, (None, None))[0] for leg in LEGS]
    connection.execute(
        f"INSERT INTO vectors{suffix} (chunk, vector, keywords) VALUES (?, ?, ?)", (chunk, *rows)
    )
    for leg, (_, coded) in vectors.items():
        connection.execute(f"INSERT INTO {leg}_codes{suffix} VALUES (?, ?)", (chunk, coded))


class _FilterNumbers:
    """The numbers of filter values, for one transaction: most chunks of a document have many in common."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.numbers: dict[tuple[str, str], int] = {}
        self.last = schema.number(connection, schema.LAST_FILTER)

    def insert(self, chunk: int, filters: Sequence[tuple[str, str]]) -> None:
        """Give a chunk its filter values."""
        numbers = self.numbers
        for pair in filters:
            if pair not in numbers:
                numbers[pair] = self._number(pair)
        self.connection.executemany(
            "INSERT INTO filters VALUES (?, ?)", [(numbers[p], chunk) for p in filters]
        )

    def keep(self) -> None:
        """Note which number was given last."""
        schema.write_meta(self.connection, schema.LAST_FILTER, self.last)

    def _number(self, pair: tuple[str, str]) -> int:
        # Most are new. A number is never taken, so that only a pair that is there is ignored.
        added = self.connection.execute(
            "INSERT OR IGNORE INTO filter_values (key, value, number) VALUES (?, ?, ?)",
            (*pair, self.last + 1),
        )
        if added.rowcount:
            self.last += 1
            return self.last
        row = self.connection.execute("SELECT number FROM filter_values WHERE key = ? AND value = ?", pair)
        return int(row.fetchone()[0])


def next_generation(connection: sqlite3.Connection) -> None:
    """Begin a generation. The log of removed chunks is cut when it outgrows what it saves: looking at all
    chunks once.
    """
    schema.add(connection, "generation", 1)
    if schema.number(connection, "removed") > max(schema.number(connection, "chunks"), LOGGED):
        _cut(connection)


def _cut(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM removed")
    schema.write_meta(connection, "log", schema.number(connection, "generation"))
    schema.write_meta(connection, "removed", 0)
    packed_postings.pack_all(connection)  # what was packed had these chunks


def sweep(connection: sqlite3.Connection) -> None:
    """Take out filter values no chunk has any more and the log of removed chunks, and merge the text
    index.
    """
    connection.execute("DELETE FROM filter_values WHERE number NOT IN (SELECT value FROM filters)")
    connection.execute("INSERT INTO terms (terms) VALUES ('optimize')")
    _cut(connection)


def listed(ids: Iterable[str]) -> str:
    """Ids as one bound value for `json_each`; lone surrogates never match anything."""
    return json.dumps([_clean(id) for id in dict.fromkeys(ids)])
