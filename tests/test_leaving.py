"""A command ends soon after its answer, whatever a plugin still does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
