"""The tables of a store file, and what makes a file one of ours."""

from __future__ import annotations

import sqlite3
import unicodedata
import uuid

from contextrouter.builtin.providers.job_runs import KEY, Runs, read_runs
from contextrouter.builtin.providers.vector_slots import FIRST, REBUILD, SECOND, Slot, read_slots
from contextrouter.errors import SourceError
from contextrouter.text.analysis import ANALYSIS

APPLICATION = 0x63_74_78_72  # "ctxr"
OLDEST, USUAL, VERSION = 2, 4, 5
"""Versions of a store: the oldest that is read as it is, and brought up to date by a write; that of a store of
one model; and that of a store from its first change of model on, also when one of the two was dropped.

Version 3 has a table for vectors of entities. Version 4 gives filter values their numbers itself, and compresses
documents.
"""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE documents (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL, id TEXT NOT NULL,                 -- tenant '': unlabelled
  compartment TEXT NOT NULL, sensitivity TEXT NOT NULL,
  url TEXT NOT NULL, fingerprint TEXT NOT NULL,
  payload TEXT NOT NULL,                                  -- the document as JSON, or that compressed; '': as its only chunk
  UNIQUE (tenant, id)
);
CREATE INDEX documents_id ON documents (id);
CREATE INDEX documents_url ON documents (url) WHERE url <> '';

-- Numbers of chunks grow and are never used again, so that a reader can load what is new since it last looked.
CREATE TABLE chunks (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  document INTEGER NOT NULL, id TEXT NOT NULL,
  tenant TEXT NOT NULL, compartment TEXT NOT NULL, sensitivity TEXT NOT NULL,
  updated_at INTEGER,                                     -- microseconds since 1970, UTC
  length INTEGER NOT NULL                                 -- terms that are no stop words
);
CREATE INDEX chunks_document ON chunks (document);
CREATE INDEX chunks_id ON chunks (id);

CREATE TABLE texts (chunk INTEGER PRIMARY KEY, payload TEXT NOT NULL);
-- Which chunks went with which generation, so that a reader need not look at all to know; complete since meta's `log`.
CREATE TABLE removed (generation INTEGER, chunk INTEGER, PRIMARY KEY (generation, chunk)) WITHOUT ROWID;

-- Without a row id, which would keep each value twice. Numbers are given by meta's `last_filter`.
CREATE TABLE filter_values (key TEXT, value TEXT, number INTEGER NOT NULL, PRIMARY KEY (key, value)) WITHOUT ROWID;
CREATE TABLE filters (value INTEGER, chunk INTEGER, PRIMARY KEY (value, chunk)) WITHOUT ROWID;
CREATE INDEX filters_chunk ON filters (chunk);

CREATE TABLE links (document INTEGER, target TEXT, PRIMARY KEY (document, target)) WITHOUT ROWID;
CREATE INDEX links_target ON links (target);

CREATE TABLE facts (
  number INTEGER PRIMARY KEY,
  document INTEGER NOT NULL,
  subject TEXT NOT NULL, predicate TEXT NOT NULL, object TEXT NOT NULL,
  subject_key TEXT NOT NULL, object_key TEXT NOT NULL,    -- folded names
  confidence REAL NOT NULL, valid_from INTEGER, valid_to INTEGER,
  tenant TEXT NOT NULL, compartment TEXT NOT NULL, sensitivity TEXT NOT NULL,
  source TEXT NOT NULL, attributes TEXT NOT NULL
);
CREATE INDEX facts_document ON facts (document);
CREATE INDEX facts_subject ON facts (subject_key);
CREATE INDEX facts_object ON facts (object_key);

-- Terms come in analysed and parted by spaces; the tokenizer only takes them apart again. The text itself is not kept twice.
CREATE VIRTUAL TABLE terms USING fts5 (title, path, body, content = '', columnsize = 0, tokenize = 'ascii');
CREATE VIRTUAL TABLE postings USING fts5vocab (terms, instance);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (terms, row);
"""

VECTOR_TABLES = """
-- Unit vectors, float32, little-endian; and each again at eight bits, in tables of their own that are read whole.
CREATE TABLE vectors{0} (chunk INTEGER PRIMARY KEY, vector BLOB, keywords BLOB);
CREATE TABLE vector_codes{0} (chunk INTEGER PRIMARY KEY, code BLOB NOT NULL);
CREATE TABLE keywords_codes{0} (chunk INTEGER PRIMARY KEY, code BLOB NOT NULL)
"""

ENTITY_TABLE = """
-- Unit vectors of the texts about an entity, one row each; one row without a vector where there is none to keep.
CREATE TABLE entities{0} (
  key TEXT, tenant TEXT, compartment TEXT, sensitivity TEXT, place INTEGER,
  name TEXT NOT NULL, vector BLOB,
  PRIMARY KEY (key, tenant, compartment, sensitivity, place)
) WITHOUT ROWID
"""

PACKED_TABLE = """
-- Postings of the commonest terms once more, many in one row, for as long as meta's `packed` says that they are all.
CREATE TABLE IF NOT EXISTS packed (
  number INTEGER PRIMARY KEY, block INTEGER NOT NULL, term TEXT NOT NULL, postings BLOB NOT NULL,
  UNIQUE (block, term)
)
"""

CHUNK_VECTORS = ("vectors", "vector_codes", "keywords_codes")
MODEL_TABLES = (*CHUNK_VECTORS, "entities")
"""Tables with the vectors of chunks, and all with vectors of a model. Those of a second model have `_2` behind
their names.
"""

STEMS = "\x1fstems"
"""The key in `filter_values` under which a chunk has the language of its stems, where that is not English."""

LAST_FILTER = "last_filter"
"""The key in `meta` of the number that a filter value was given last."""

CONTENT_TABLES = tuple("documents chunks texts removed filters filter_values links facts packed".split())
"""The other tables that have nothing in them once a store is cleared. The index `terms` is emptied in its own way."""

ANALYSED_BY = f"{ANALYSIS}/{unicodedata.unidata_version}"
"""What made the index terms; another Unicode version may fold otherwise, and the index is then built
again.
"""


class StoreConnection(sqlite3.Connection):
    """A connection that reads the table `meta` once for each snapshot."""

    meta: dict[str, str] | None = None
    """What was read of it in the snapshot, all or nothing; None: no snapshot, so that it may change."""


def create(connection: sqlite3.Connection) -> None:
    """Lay out an empty store. Call inside a transaction."""
    for statement in (TABLES + VECTOR_TABLES.format(FIRST)).split(";\n"):
        connection.execute(statement)
    connection.execute(ENTITY_TABLE.format(FIRST))
    connection.execute(PACKED_TABLE)
    values = {"store": uuid.uuid4().hex, "generation": 0, "chunks": 0, "length": 0, "log": 0, "removed": 0}
    values[LAST_FILTER] = 0
    values["analysis"] = ANALYSED_BY
    connection.executemany("INSERT INTO meta VALUES (?, ?)", list(values.items()))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {USUAL}")


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a store of an older version that is read up to date. Call inside a write transaction."""
    if not has_entities(connection):
        connection.execute(ENTITY_TABLE.format(FIRST))
    connection.execute(PACKED_TABLE)
    if connection.execute("PRAGMA user_version").fetchone()[0] < USUAL:
        last = connection.execute("SELECT coalesce(max(number), 0) FROM filter_values").fetchone()[0]
        write_meta(connection, LAST_FILTER, last)
        connection.execute(f"PRAGMA user_version = {USUAL}")


def has_entities(connection: sqlite3.Connection) -> bool:
    """Whether the store has a table for vectors of entities: version 2 has none."""
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] > OLDEST)


def make_second(connection: sqlite3.Connection) -> None:
    """Make room for the vectors of a second model. Call inside a write transaction."""
    if suffixes(connection) == (FIRST,):
        for statement in VECTOR_TABLES.format(SECOND).split(";\n"):
            connection.execute(statement)
        connection.execute(ENTITY_TABLE.format(SECOND))
        connection.execute(f"PRAGMA user_version = {VERSION}")


def suffixes(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The places for vectors that the store has tables for."""
    second = connection.execute("PRAGMA user_version").fetchone()[0] >= VERSION
    return (FIRST, SECOND) if second else (FIRST,)


def slots(connection: sqlite3.Connection) -> list[Slot]:
    """The places for vectors that are in use."""
    notes = connection.meta if isinstance(connection, StoreConnection) else None
    return read_slots(notes or _read_meta(connection, {} if notes is None else notes))


def is_filled(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file holds a store of a version that is read; False for one without any table.

    Raises SourceError for somebody else's database and for a store of another version.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == APPLICATION and OLDEST <= version <= VERSION:
        return True
    if application == APPLICATION:
        raise SourceError(
            f"Store {path!r} has schema version {version}, this contextrouter reads {VERSION}; "
            f"upgrade contextrouter, or build the store again with {REBUILD} into another path."
        )
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise SourceError(
            f"File {path!r} is a SQLite database, but no contextrouter store; choose another `path`."
        )
    return False


def languages(connection: sqlite3.Connection) -> list[str]:
    """The languages other than English whose stems chunks have, and perhaps some whose chunks are gone."""
    rows = connection.execute("SELECT value FROM filter_values WHERE key = ? ORDER BY value", (STEMS,))
    return [row[0] for row in rows]


def refuse_other_analysis(connection: sqlite3.Connection) -> None:
    """Raise SourceError when another version of the text analysis made the index: its terms are others."""
    version = text(connection, "analysis").partition("/")[0]
    if version != str(ANALYSIS):
        raise SourceError(
            f"Store was indexed by version {version or 1} of the text analysis, this contextrouter has"
            f" {ANALYSIS}; run {REBUILD}."
        )


def runs(connection: sqlite3.Connection) -> Runs:
    """When each job was last run to its end."""
    return read_runs(connection.execute("SELECT key, value FROM meta WHERE key GLOB ?", (f"{KEY}*",)))


def number(connection: sqlite3.Connection, key: str) -> int:
    """A count from `meta`: generation, chunks, length, dimensions; 0 where there is none yet."""
    return int(text(connection, key) or 0)


def text(connection: sqlite3.Connection, key: str) -> str:
    """A value from `meta`; empty where there is none yet."""
    meta = connection.meta if isinstance(connection, StoreConnection) else None
    if meta is None:
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return "" if row is None else str(row[0])
    return (meta or _read_meta(connection, meta)).get(key, "")


def _read_meta(connection: sqlite3.Connection, meta: dict[str, str]) -> dict[str, str]:
    """Add all of the table `meta` to the mapping."""
    meta.update((key, str(value)) for key, value in connection.execute("SELECT key, value FROM meta"))
    return meta


def version(connection: sqlite3.Connection) -> str:
    """What changes with every write, and with every store put in place of another."""
    return f"{text(connection, 'store')}:{number(connection, 'generation')}"


def write_meta(connection: sqlite3.Connection, key: str, value: str | int) -> None:
    """Set a value in `meta`."""
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
    )


def add(connection: sqlite3.Connection, key: str, amount: int) -> None:
    """Add to a count in `meta`."""
    connection.execute("UPDATE meta SET value = value + ? WHERE key = ?", (amount, key))
