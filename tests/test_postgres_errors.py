"""Errors of Postgres say the reason in words, and the remedy."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.postgres_server import open_store, run, uri

from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.postgres.error_messages import NoStore
from contextrouter.errors import SourceError
from contextrouter.model import Query


@asynccontextmanager
async def role() -> AsyncIterator[str]:
    """A role without rights; the dsn with which it connects."""
    name = f"guest_{uuid.uuid4().hex[:12]}"
    await run(f"CREATE ROLE {name} LOGIN")
    try:
        parts = urlsplit(await asyncio.to_thread(uri))
        yield parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}").geturl()
    finally:
        await run(f"DROP ROLE {name}")


@contextmanager
def free_port() -> Iterator[int]:
    """A port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.case("OPS-06")
async def test_a_refused_connection_is_said_in_words():
    with free_port() as port:
        store = Postgres(dsn=f"postgresql://127.0.0.1:{port}/x")
        with pytest.raises(SourceError, match=f"connection refused by 127.0.0.1:{port}; check dsn"):
            await store.open()


@pytest.mark.case("OPS-06")
async def test_a_role_without_rights_to_the_schema_is_told_so():
    async with open_store() as owned, role() as dsn:
        await owned.migrate()
        store = Postgres(dsn=dsn, schema=owned.pool.schema)
        await store.open()
        try:
            with pytest.raises(SourceError, match="No right to use schema") as caught:
                await store.search(Query(text="otter", leg="text"))
            assert not isinstance(caught.value, NoStore)
        finally:
            await store.aclose()


@pytest.mark.case("OPS-06")
async def test_migrating_without_rights_is_one_error(tmp_path: Path):
    async with role() as dsn:
        (tmp_path / "settings.toml").write_text(
            f'[providers.lib]\nuse = "postgres"\ndsn = "{dsn}"\nschema = "nobodys"\n'
        )
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "contextrouter", "db", "migrate"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 5
    assert "permission denied" in ran.stderr
    assert "Traceback" not in ran.stderr
