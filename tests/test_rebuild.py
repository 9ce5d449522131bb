"""A store is built again while others read it: they have the former content, or the new one, and no part."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from contextrouter import Connector, ContextRouter, Document, Hit, IngestError, Query
from contextrouter.ingest import run
from contextrouter.testing.fakes import Hashing


class Shelf(Connector):
    """Lists documents; waits after the first, and fails after it if it must."""

    def __init__(self, word: str) -> None:
        self.word, self.failing = word, False
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def search(self, query: Query) -> Sequence[Hit]:
        return []

    async def crawl(self) -> AsyncIterator[Document]:
        for number in range(3):
            yield Document(id=f"{number}", content=f"{self.word} number {number} swims")
            self.begun.set()
            await self.go.wait()
            if self.failing:
                raise OSError("the shelf broke")


def open_router(folder: Path, shelf: Shelf) -> ContextRouter:
    settings = {
        "rag": {"cache_enabled": False, "interpreters": []},
        "providers": {"docs": {"use": "sqlite", "path": str(folder / "store.db"), "embedder": "letters"}},
        "ingest": {"all": {"from": "shelf", "to": "docs", "transforms": []}},
    }
    return ContextRouter(settings, connectors={"shelf": shelf}, embedders={"letters": Hashing()})


async def shown(router: ContextRouter) -> tuple[list[str], bool]:
    """The contents of an answer, by the text leg and by the vector leg, and whether it lacks something."""
    contents: set[str] = set()
    degraded = False
    for leg in ("text", "vector"):
        context = await router.route("heron otter vole number swims", legs=[leg], sources=["docs"])
        contents |= {f"{leg} {envelope.document.content}" for envelope in context.envelopes}
        degraded |= context.degraded
    return sorted(contents), degraded


def whole(word: str) -> tuple[list[str], bool]:
    return [f"{leg} {word} number {n} swims" for leg in ("text", "vector") for n in range(3)], False


@pytest.mark.case("OPS-01")
async def test_readers_see_the_former_store_until_the_new_one_is_whole(tmp_path: Path):
    first, second = Shelf("otter"), Shelf("heron")
    async with open_router(tmp_path, first) as filling:
        await run(filling, batch=1)
    async with open_router(tmp_path, first) as reader, open_router(tmp_path, second) as writer:
        assert await shown(reader) == whole("otter")
        second.go.clear()
        building = asyncio.create_task(run(writer, rebuild=True, batch=1))
        await second.begun.wait()
        assert await shown(reader) == whole("otter")
        assert await shown(writer) == whole("otter")
        second.go.set()
        assert (await building)["all"].documents == 3
        assert await shown(reader) == whole("heron")
        assert await shown(writer) == whole("heron")
        second.word = "vole"
        await run(writer, batch=1)
        assert await shown(reader) == whole("vole")
    assert sorted(os.listdir(tmp_path)) == ["store.db", "store.db-turn"]


@pytest.mark.case("OPS-01")
async def test_a_rebuild_that_breaks_off_leaves_the_store_as_it_was(tmp_path: Path):
    shelf = Shelf("otter")
    async with open_router(tmp_path, shelf) as router:
        await run(router)
        shelf.word, shelf.failing = "heron", True
        with pytest.raises(IngestError, match="the shelf broke"):
            await run(router, rebuild=True, batch=1)
        assert await shown(router) == whole("otter")
        shelf.failing = False
        await run(router, rebuild=True)
        assert await shown(router) == whole("heron")


@pytest.mark.case("OPS-01")
async def test_a_rebuild_that_is_killed_leaves_the_store_as_it_was(tmp_path: Path):
    shelf = Shelf("otter")
    async with open_router(tmp_path, shelf) as router:
        await run(router)
        code = (
            "import asyncio, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
            "from test_rebuild import Shelf, open_router, run\n"
            "async def main():\n"
            "    shelf = Shelf('heron'); shelf.go.clear()\n"
            "    async with open_router(Path(sys.argv[1]), shelf) as router:\n"
            "        task = asyncio.create_task(run(router, rebuild=True, batch=1))\n"
            "        await shelf.begun.wait(); print('begun', flush=True); await task\n"
            "asyncio.run(main())\n"
        )
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it takes no time
            [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "begun\n"
        os.kill(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.communicate)
        assert await shown(router) == whole("otter")
        shelf.word = "heron"
        await run(router, rebuild=True)
        assert await shown(router) == whole("heron")


async def test_a_rebuild_may_be_the_first_run(tmp_path: Path):
    async with open_router(tmp_path, Shelf("otter")) as router:
        await run(router, rebuild=True)
        assert await shown(router) == whole("otter")


@pytest.mark.case("OPS-01")
async def test_a_store_of_other_pages_is_rebuilt(tmp_path: Path):
    shelf = Shelf("otter")
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("VACUUM")
    connection.close()
    async with open_router(tmp_path, shelf) as router:
        await run(router)
        shelf.word = "heron"
        await run(router, rebuild=True)
        assert await shown(router) == whole("heron")
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (8192,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
