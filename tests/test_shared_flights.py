"""Equal questions to several processes at once: one computes, the others wait for it, and never too long.

Two routers with one settings file stand for two processes: they share nothing but the server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

from support.resp import RespServer, resp_server

from contextrouter import ContextRouter

HELD = """
import asyncio
from contextrouter import Connector, Document, Hit

HERE = __import__("pathlib").Path(__file__).parent

class Plugin(Connector):
    async def search(self, query):
        with (HERE / "calls").open("a") as calls:
            calls.write("x")
        while not (HERE / "go").exists():
            await asyncio.sleep(0.01)
        if (HERE / "fail").exists():
            (HERE / "fail").unlink()
            raise OSError("broken")
        return [Hit(document=Document(id="a", content="a"))]
"""


def write(folder: Path, server: RespServer) -> Path:
    (folder / "plugins").mkdir()
    (folder / "plugins" / "held.py").write_text(HELD)
    path = folder / "settings.toml"
    path.write_text(
        f'[cache]\ntier = "redis"\nurl = "{server.url}"\ntimeout_seconds = 2.0\n[rag]\ntimeout_seconds = 60\n'
        '[plugins]\npaths = ["plugins"]\n[connectors.held]\n'
    )
    return path


def calls(folder: Path) -> int:
    return len((folder / "plugins" / "calls").read_text())


def flights(server: RespServer) -> int:
    """How many answers are being computed, as the server has it."""
    return sum(key.startswith(b"contextrouter-flight:") for key in server.data)


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)


async def two_answers(path: Path, server: RespServer) -> list[str]:
    """Ask two routers the same: the second while the first computes. Return the tiers of their answers."""
    async with ContextRouter.from_toml(path) as one, ContextRouter.from_toml(path) as two:
        first = asyncio.create_task(one.route("q"))
        await until((path.parent / "plugins" / "calls").exists)
        before = server.commands.count("SET")
        second = asyncio.create_task(two.route("q"))
        await until(lambda: server.commands.count("SET") >= before + 2)  # it tried again: it waits
        (path.parent / "plugins" / "go").touch()
        done = await asyncio.gather(first, second, return_exceptions=True)
    return [type(each).__name__ if isinstance(each, BaseException) else each.usage.cache for each in done]


async def test_an_equal_question_waits_for_the_answer_of_another_process(tmp_path: Path):
    async with resp_server() as server:
        assert await two_answers(write(tmp_path, server), server) == ["", "redis"]
        assert (calls(tmp_path), flights(server)) == (1, 0)


async def test_who_waited_for_a_failure_computes_itself(tmp_path: Path):
    async with resp_server() as server:
        path = write(tmp_path, server)
        (tmp_path / "plugins" / "fail").touch()
        assert await two_answers(path, server) == ["AllSourcesFailed", ""]
        assert (calls(tmp_path), flights(server)) == (2, 0)


async def test_a_process_that_died_costs_an_equal_question_half_of_its_time(tmp_path: Path):
    async with resp_server() as server:
        path = write(tmp_path, server)
        (tmp_path / "plugins" / "go").touch()
        async with ContextRouter.from_toml(path) as router:
            await router.route("q")
            await until(lambda: flights(server) == 0 and any(server.data))
            (entry,) = server.data
            lock = b"contextrouter-flight:default:" + entry.rpartition(b":")[2]
            server.data.clear()
            server.data[lock] = (b"of a process that died", monotonic() + 600)
        async with ContextRouter.from_toml(path) as router:
            started = monotonic()
            context = await router.route("q", deadline=6.0)
            waited = monotonic() - started
    assert (context.usage.cache, context.degraded, calls(tmp_path)) == ("", False, 2)
    assert waited > 2.5
