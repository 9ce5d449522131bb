"""A folder with jobs whose workers are processes or actors, plugins that end them, and what a store holds."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

PLUGINS = '''
import asyncio, os, signal
from hashlib import sha256
from pathlib import Path
from contextrouter import Embedder, Transform

class Counting(Embedder):
    """Vectors of a digest; refuses a text that says so."""
    dimensions = 4
    model = "counting"
    def __init__(self, *, api_key: str = "") -> None:
        self.api_key = api_key
    async def embed(self, texts, *, query=False):
        if any("unembeddable" in text for text in texts):
            raise RuntimeError("no vector for this")
        return [[byte / 255 + 0.01 for byte in sha256(text.encode()).digest()[:4]] for text in texts]

class Hazard(Transform):
    """Does what a document says: fails, ends its process once or always, or waits for a file."""
    def __init__(self, *, folder: str) -> None:
        self.folder = Path(folder)
    async def transform(self, document):
        (self.folder / f"pid-{os.getpid()}").touch()
        if "fails" in document.content:
            raise ValueError("this one fails")
        if "dies once" in document.content and not (self.folder / "died").exists():
            (self.folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if "dies always" in document.content:
            os.kill(os.getpid(), signal.SIGKILL)
        if "waits" in document.content:
            (self.folder / f"waits-{os.getpid()}").touch()
            while not (self.folder / "go").exists():
                await asyncio.sleep(0.01)
        return [document]
'''
SETTINGS = """
[plugins]
paths = ["plugins"]
[providers.docs]
use = "postgres"
dsn = "{dsn}"
schema = "{schema}"
[embedders.default]
use = "hazards"
api_key = "${{RUNNER_KEY}}"
[transforms.hazard]
use = "hazards"
folder = "{folder}/marks"
[ingest]
{ingest}
[ingest.notes]
from = "notes"
to = "docs"
transforms = ["hazard", "chunk", "keywords"]
"""
ROWS = """
SELECT concat_ws('|', 'd', tenant, id, kind, labels, updated_at, fingerprint, payload) AS line FROM documents
UNION ALL SELECT concat_ws('|', 'c', document, place, id, length, filters, terms, vector, keywords, payload) FROM chunks
UNION ALL SELECT concat_ws('|', 'n', tenant, compartment, sensitivity, chunks, length) FROM counts
ORDER BY 1
"""


class Folder:
    """A settings file, notes, plugins, and the marks that the plugins leave."""

    def __init__(self, path: Path, dsn: str, **notes: str) -> None:
        self.path, self.dsn, self.marks, self.notes = path, dsn, path / "marks", path / "notes"
        for folder in (self.marks, self.notes, path / "plugins"):
            folder.mkdir(parents=True)
        (path / "plugins" / "hazards.py").write_text(PLUGINS)
        for name, text in notes.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        """Write a note. Its time is fixed, so that stores of several runs can be compared."""
        path = self.notes / f"{name}.md"
        path.write_text(f"# {name}\n\n{text}\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))

    def settings(self, schema: str, **ingest: Any) -> Path:
        """Write the settings of a store in this schema; return their path."""
        lines = "\n".join(f"{name} = {value!r}" for name, value in ingest.items())
        path = self.path / f"{schema}.toml"
        path.write_text(SETTINGS.format(dsn=self.dsn, schema=schema, folder=self.path, ingest=lines))
        return path

    def pids(self, mark: str = "pid") -> set[int]:
        """Processes that left a mark."""
        return {int(path.name.partition("-")[2]) for path in self.marks.glob(f"{mark}-*")}


def many(count: int) -> dict[str, str]:
    """So many notes of several chunks."""
    return {
        f"n{number:04}": "\n\n".join(
            f"## Part {part}\n\nThe tide of day {number} moves sand {part} times. "
            + "Waves come and go. " * 30
            for part in range(3)
        )
        for number in range(count)
    }


async def rows(dsn: str, schema: str) -> list[str]:
    """What a store holds, line by line."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'SET search_path = "{schema}", public')
        return [row["line"] for row in await connection.fetch(ROWS)]
    finally:
        await connection.close()


def alive(pids: set[int]) -> set[int]:
    """Those of the processes that run; one that ended and that nobody waited for does not."""
    running = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.add(pid)
    return running


async def until(true: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until something is true, and return it; raises TimeoutError on a machine that never gets there."""
    end = time.monotonic() + seconds
    while not (value := true()):
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        await asyncio.sleep(0.02)
    return value
