"""A command ends soon after its answer, whatever a plugin still does."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
from support.serving import start_server

from contextrouter.ingest import run

PLUGINS = {
    "thread": """
import time
from contextrouter import Connector, Document, Hit
from contextrouter.runtime.threads import Threads

class Plugin(Connector):
    async def search(self, query):
        await Threads(1, "hang").run(time.sleep, 3600)
""",
    "default_thread": """
import asyncio, time
from contextrouter import Connector

class Plugin(Connector):
    async def search(self, query):
        await asyncio.to_thread(time.sleep, 3600)
""",
    "closing": """
import asyncio
from contextrouter import Connector

class Plugin(Connector):
    async def search(self, query):
        return []

    async def aclose(self):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
""",
}


@pytest.mark.case("ASY-13")
@pytest.mark.case("OPS-05")
@pytest.mark.parametrize("name", PLUGINS)
def test_a_command_ends_soon_after_its_answer(name: str, tmp_path: Path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / f"{name}.py").write_text(PLUGINS[name])
    (tmp_path / "settings.toml").write_text(
        '[plugins]\npaths = ["plugins"]\n[providers.memory]\n'
        f'documents = [{{ content = "Otters swim." }}]\n[connectors.{name}]\n'
    )
    ran = subprocess.run(
        [sys.executable, "-m", "contextrouter", "route", "otters", "--deadline", "1", "--text"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,  # the plugin takes an hour
        check=False,
    )
    assert "Otters swim." in ran.stdout
    assert ran.returncode == 0


ENDLESS = """
ALTER TABLE chunks RENAME TO former;
CREATE VIEW chunks AS
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
SELECT former.* FROM former, n WHERE x < 0;
"""
SETTINGS = """
[providers.memory]
documents = [{ content = "Otters swim." }]
[providers.docs]
use = "sqlite"
path = "store.db"
[ingest.notes]
from = "notes"
to = "docs"
"""


@pytest.mark.case("OPS-05")
async def test_a_store_whose_query_never_ends_keeps_no_command_and_no_server(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Otter\n\nAn otter swims.\n")
    (tmp_path / "settings.toml").write_text(SETTINGS + "[serve]\ndrain_seconds = 1\n")
    await run(tmp_path / "settings.toml")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.executescript(ENDLESS)
    command = [sys.executable, "-m", "contextrouter", "route", "otters", "--deadline", "1", "--text"]
    answered = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Otters swim." in answered.stdout
    assert answered.returncode == 0
    process, url = await asyncio.to_thread(start_server, tmp_path)
    async with aiohttp.ClientSession(url) as session:
        async with session.post("/v1/route", json={"question": "otters", "deadline": 1}) as response:
            assert "Otters swim." in await response.text()
        waiting = asyncio.create_task(session.post("/v1/route", json={"question": "otter", "deadline": 60}))
        await asyncio.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.communicate, timeout=120)
        assert process.returncode == 0
        await asyncio.wait([waiting])
        waiting.exception()
