"""Tables of a store in Postgres, their versions and migrations, and the row-level security around them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from contextrouter.builtin.providers.vector_slots import FIRST, SECOND, Slot, choose, note_keys, read_slots
from contextrouter.errors import SourceError

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection, Pool

log = logging.getLogger("contextrouter")

LOCK = 0x63_74_78_72  # "ctxr": the first half of the advisory locks
LABELLED = ("documents", "chunks", "facts", "counts")
"""Tables of the first version whose rows bear tenant, compartment and sensitivity."""
TEXT_SEARCH = "text_search"
"""The key in `meta` of the words that filled the store, see `Words.note`."""
NOTES = "SELECT json_object_agg(key, value) FROM meta WHERE key = ANY ({})"
"""Values of `meta`, by key, as JSON."""
_LANGUAGE = "language "

_FIRST = """
CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL);

-- What is counted for each set of labels: chunks, their terms, and writes. Nobody learns from counts of what he may not see.
CREATE TABLE counts (
  tenant text, compartment text, sensitivity text,
  chunks bigint NOT NULL, length bigint NOT NULL, generation bigint NOT NULL,
  PRIMARY KEY (tenant, compartment, sensitivity)
);

CREATE TABLE documents (
  tenant text, id text,                                   -- tenant '': unlabelled
  compartment text NOT NULL, sensitivity text NOT NULL, trust text NOT NULL, kind text NOT NULL,
  url text NOT NULL, labels text[] NOT NULL,
  updated_at bigint, synced_at bigint,                    -- microseconds since 1970, UTC
  fingerprint text NOT NULL,
  payload text NOT NULL,                                  -- the document as JSON; '': as its only chunk
  PRIMARY KEY (tenant, id)
);
CREATE INDEX documents_id ON documents USING hash (id);
CREATE INDEX documents_url ON documents USING hash (url) WHERE url <> '';

CREATE TABLE chunks (
  owner text, document text, place integer,               -- of which document, and where in it
  id text NOT NULL,
  tenant text NOT NULL, compartment text NOT NULL, sensitivity text NOT NULL,
  updated_at bigint,
  length integer NOT NULL,                                -- terms that are no stop words
  filters text[] NOT NULL,                                -- what filters can ask for, as key, separator, value
  terms tsvector NOT NULL,                                -- A title, B heading path, C body
  vector vector, keywords vector,                         -- unit length; NULL: absent
  payload text NOT NULL,
  PRIMARY KEY (owner, document, place),
  FOREIGN KEY (owner, document) REFERENCES documents (tenant, id) ON DELETE CASCADE
);
CREATE INDEX chunks_terms ON chunks USING gin (terms);
CREATE INDEX chunks_filters ON chunks USING gin (filters);
CREATE INDEX chunks_tenant ON chunks (tenant, compartment, sensitivity);
CREATE INDEX chunks_updated ON chunks (updated_at);
CREATE INDEX chunks_id ON chunks USING hash (id);

CREATE TABLE links (
  tenant text NOT NULL, document text NOT NULL, target text NOT NULL,
  FOREIGN KEY (tenant, document) REFERENCES documents (tenant, id) ON DELETE CASCADE
);
CREATE INDEX links_document ON links (tenant, document);
CREATE INDEX links_target ON links USING hash (target);

CREATE TABLE facts (
  owner text, document text, place integer,
  subject text NOT NULL, predicate text NOT NULL, object text NOT NULL,
  subject_key text NOT NULL, object_key text NOT NULL,    -- folded names
  confidence double precision NOT NULL, valid_from bigint, valid_to bigint,
  tenant text NOT NULL, compartment text NOT NULL, sensitivity text NOT NULL,
  source text NOT NULL, attributes text NOT NULL,
  PRIMARY KEY (owner, document, place),
  FOREIGN KEY (owner, document) REFERENCES documents (tenant, id) ON DELETE CASCADE
);
CREATE INDEX facts_subject ON facts USING hash (subject_key);
CREATE INDEX facts_object ON facts USING hash (object_key);
"""


_SECOND = """
INSERT INTO meta SELECT 'text_search', '' WHERE EXISTS (SELECT FROM chunks);

-- What the index of pg_textsearch is given of a chunk: its terms as words of its own, as often as they count in their fields.
CREATE FUNCTION counted_words(terms tsvector) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT coalesce(string_agg(repeat('x' || encode(convert_to(t.lexeme, 'UTF8'), 'hex') || ' ',
    (SELECT sum(CASE w WHEN 'A' THEN 3 WHEN 'B' THEN 2 ELSE 1 END)::int FROM unnest(t.weights) w)), ''), '') FROM unnest(terms) t
$$;
"""


_FOURTH = """
-- Unit vectors of the texts about an entity, one row each; one row without a vector where there is none to keep.
CREATE TABLE entities (
  key text, tenant text, compartment text, sensitivity text, place integer,
  name text NOT NULL, vector vector,
  PRIMARY KEY (key, tenant, compartment, sensitivity, place)
);
"""


_FIFTH = """
-- Terms in the title, or three times in the chunk; those there and elsewhere, or six times, a second time with a mark. It costs
-- more than reading its index, whatever the server thinks.
CREATE FUNCTION frequent_terms(terms tsvector) RETURNS tsvector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 10000 AS $$
  SELECT array_to_tsvector(coalesce(array_agg(lexeme), '{}')) FROM (
    SELECT unnest(CASE WHEN often >= 6 OR titled AND often >= 2 THEN ARRAY[l, l || chr(30)] ELSE ARRAY[l] END) AS lexeme
    FROM (SELECT t.lexeme AS l, cardinality(t.positions) AS often, 'A' = ANY (t.weights) AS titled FROM unnest(terms) t) s
    WHERE often >= 3 OR titled) f
$$;
CREATE INDEX IF NOT EXISTS chunks_frequent ON chunks USING gin (frequent_terms(terms));

-- One chunk in 64, by its id alone: which ones it has hangs on no other chunk.
CREATE INDEX IF NOT EXISTS chunks_sample ON chunks USING gin (terms) WHERE left(md5(id), 2) = ANY ('{00,01,02,03}'::text[]);
"""


# in the row: scoring fetches nothing for each term of it
_THIRD = "ALTER TABLE chunks ALTER COLUMN terms SET STORAGE MAIN;"


def _wall(table: str, column: str, *, labelled: bool) -> str:
    """Row-level security of a table: its owner sees all, everybody else what the transaction's scope allows;
    unset, nothing.
    """
    scope = "nullif(current_setting('contextrouter.scope', true), '')::jsonb"
    rule = f"{column} = ANY (ARRAY(SELECT jsonb_array_elements_text({scope} -> 'tenants')))"
    if labelled:
        rule += (
            f" AND (compartment = '' OR compartment = ANY (ARRAY(SELECT jsonb_array_elements_text({scope} ->"
            " 'compartments')))) AND (sensitivity = '' OR sensitivity = ANY (ARRAY(SELECT"
            f" jsonb_array_elements_text({scope} -> 'levels'))))"
        )
    everything = "(SELECT current_setting('contextrouter.unrestricted', true)) = 'on'"
    return f"""
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY owner ON {table} TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY scope ON {table} USING ({everything} OR ({rule}));
"""


_SECOND_PLACE = """
ALTER TABLE chunks ADD COLUMN IF NOT EXISTS vector_2 vector, ADD COLUMN IF NOT EXISTS keywords_2 vector,
  ADD COLUMN IF NOT EXISTS embedded boolean, ADD COLUMN IF NOT EXISTS embedded_2 boolean;
CREATE TABLE entities_2 (LIKE entities INCLUDING ALL);
DO $$
DECLARE granted record;
BEGIN
  FOR granted IN SELECT grantee, privilege_type FROM information_schema.role_table_grants
    WHERE table_schema = current_schema() AND table_name = 'entities' AND grantee <> current_user
  LOOP
    EXECUTE format('GRANT %s ON entities_2 TO %s', granted.privilege_type,
      CASE granted.grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(granted.grantee) END);
  END LOOP;
END $$;
"""
MAKE_SECOND = _SECOND_PLACE + _wall("entities_2", "tenant", labelled=True)
"""What a store gets at its first change of model: columns and a table for the vectors of the second one, and
for each place a mark of the chunks that were embedded, whether they have vectors or none.
"""

MIGRATIONS: tuple[str, ...] = (
    _FIRST
    + "".join(_wall(table, "tenant", labelled=True) for table in LABELLED)
    + _wall("links", "tenant", labelled=False),
    _SECOND,
    _THIRD,
    _FOURTH + _wall("entities", "tenant", labelled=True),
    _FIFTH,
)
"""What makes version n of version n - 1, in order. Applied ones never change."""
VERSION = len(MIGRATIONS)


async def version(connection: Connection) -> int:
    """The schema's version; 0 where there is no store yet. Raises SourceError for a version this package does
    not know.
    """
    if await connection.fetchval("SELECT to_regclass('meta')") is None:
        return 0
    version_number = int(await read_meta(connection, "schema") or 0)
    if version_number > VERSION:
        raise SourceError(
            f"Store has schema version {version_number}, this contextrouter knows {VERSION}; upgrade contextrouter."
        )
    return version_number


async def has_entities(connection: Connection) -> bool:
    """Whether the schema has a table for vectors of entities: version 3 has none."""
    return bool(await entity_places(connection))


async def entity_places(connection: Connection) -> list[str]:
    """The places for vectors that have a table for those of entities; the second one has it since a change of
    model.
    """
    rows = await connection.fetch(
        "SELECT s FROM unnest($1::text[]) s WHERE to_regclass('entities' || s) IS NOT NULL", [FIRST, SECOND]
    )
    return [row["s"] for row in rows]


async def slots(connection: Connection) -> list[Slot]:
    """The places for vectors that are in use."""
    rows = await connection.fetch("SELECT key, value FROM meta WHERE key = ANY ($1::text[])", note_keys())
    return read_slots(dict(rows))


async def suffix_of(connection: Connection, model: str, dimensions: int) -> str:
    """The place that answers the questions of a model. Raises SourceError."""
    return choose(await slots(connection), model, dimensions).suffix


async def migrate(pool: Pool) -> list[int]:
    """Bring the schema up to `VERSION`, one process at a time; return the versions that were made. A newer
    one is left alone.

    Raises SourceError when the database lacks pgvector, or the role the right to create.
    """
    applied: list[int] = []
    async with pool.transaction(write=True) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", LOCK, pool.schema)
        if not await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", pool.schema
        ):
            await connection.execute(f'CREATE SCHEMA "{pool.schema}"')
        if not await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector')"
        ):
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        for number in range(await version(connection), VERSION):
            await connection.execute(MIGRATIONS[number])
            if number == 0:
                await set_note(connection, "store", uuid.uuid4().hex)
            await set_note(connection, "schema", str(number + 1))
            applied.append(number + 1)
    if applied:
        await pool.refresh()
    return applied


async def lay_out(pool: Pool) -> None:
    """Lay out an empty database; what has an older schema is brought up to date on purpose only.

    Raises SourceError for an older schema, and says what to do.
    """
    async with pool.transaction() as connection:
        number = await version(connection)
    if number == 0:
        log.warning("Database has no store in schema %r yet; it is laid out.", pool.schema)
        await migrate(pool)
    elif number < VERSION:
        raise SourceError(
            f"Store has schema version {number}, {VERSION} is needed; run `contextrouter db migrate`."
        )


async def read_meta(connection: Connection, key: str, default: str = "") -> str:
    """A value from `meta`; `default` where there is none yet."""
    value = await connection.fetchval("SELECT value FROM meta WHERE key = $1", key)
    return default if value is None else str(value)


async def keep_note(connection: Connection, key: str, value: str) -> None:
    """Set a value in `meta`, unless there is one."""
    await connection.execute("INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", key, value)


async def set_note(connection: Connection, key: str, value: str) -> None:
    """Set a value in `meta`."""
    await connection.execute(
        "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value
    )


async def note_languages(connection: Connection, languages: Iterable[str]) -> None:
    """Note languages whose stems chunks have, each in a row of its own, so that writers do not wait for one
    another.
    """
    for language in sorted(languages):
        await keep_note(connection, _LANGUAGE + language, language)


async def languages(connection: Connection) -> list[str]:
    """The languages other than English whose stems chunks have, and perhaps some whose chunks are gone."""
    rows = await connection.fetch("SELECT value FROM meta WHERE starts_with(key, $1) ORDER BY key", _LANGUAGE)
    return [row["value"] for row in rows]


async def forget_languages(connection: Connection) -> None:
    """Note that no chunk has stems other than English."""
    await connection.execute("DELETE FROM meta WHERE starts_with(key, $1)", _LANGUAGE)


async def content_version(connection: Connection) -> str:
    """What changes with every write, and when the store is emptied."""
    sql = (
        "SELECT (SELECT value FROM meta WHERE key = 'store') || ':' || coalesce(sum(generation), 0) FROM"
        " counts"
    )
    return str(await connection.fetchval(sql))


async def versions(connection: Connection) -> dict[str, int | str]:
    """Versions of the server and of pgvector ("": not there), the schema's, and the one this package would
    make of it.
    """
    row = await connection.fetchrow(
        "SELECT current_setting('server_version') AS server,"
        " coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), '') AS pgvector"
    )
    return {**dict(row), "schema": await version(connection), "newest": VERSION}
