"""One router for threads, other event loops and programs without one: the portal."""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import Waiting

from contextrouter import (
    Answer,
    Context,
    ContextRouter,
    ContextRouterError,
    Portal,
    SettingsError,
    SourceReport,
)

MEMORY = {"providers": {"memory": {"documents": [{"id": "o", "content": "Otters swim in the sea."}]}}}


@pytest.mark.case("USE-15")
def test_threads_share_one_router_by_a_portal():
    with Portal(MEMORY) as portal, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(portal.route, [f"otters {n}" for n in range(18)]))
        assert isinstance(portal.answer("Do otters swim?"), Answer)
    assert [context.outcome for context in found] == ["answered"] * 18


def test_a_copy_of_what_has_a_portal_asks_the_same_one():
    with Portal(MEMORY) as portal:
        assert copy.deepcopy({"portal": portal})["portal"] is copy.copy(portal) is portal


@pytest.mark.case("USE-15")
def test_any_event_loop_asks_by_a_portal_and_a_running_one_too():
    async def ask(portal: Portal) -> tuple[Context, Context]:
        return await portal.aroute("otters", limit=1), portal.route("otters")  # as a cell of a notebook does

    with Portal(MEMORY) as portal:
        for _ in range(2):
            both = asyncio.run(ask(portal))
            assert [context.outcome for context in both] == ["answered", "answered"]


@pytest.mark.case("USE-15")
def test_a_portal_reads_streams_and_whatever_else_the_router_does():
    with Portal(MEMORY) as portal:
        parts = list(portal.iterate(lambda router: router.stream("otters")))
        first = next(iter(portal.iterate(lambda router: router.answer_stream("Do otters swim?"))))
        plan = portal.call(lambda router: router.plan("otters"))
    assert [type(part) for part in parts[-2:]] == [SourceReport, Context]
    assert str(first).startswith("Otters swim")
    assert {call.source for call in plan.calls} == {"memory"}


@pytest.mark.case("USE-15")
def test_who_cancels_a_question_cancels_the_calls_to_the_sources():
    source = Waiting()

    async def give_up(portal: Portal) -> None:
        task = asyncio.create_task(portal.aroute("otters"))
        assert await asyncio.to_thread(source.asked.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Portal(lambda: ContextRouter(connectors={"docs": source})) as portal:
        asyncio.run(give_up(portal))
        assert source.cancelled.wait(60)


@pytest.mark.case("USE-15")
def test_a_portal_says_what_is_wrong():
    with pytest.raises(SettingsError, match="providrs"):
        Portal({"providrs": {}})
    with Portal(MEMORY) as portal:

        async def inside(router: ContextRouter) -> Context:
            return portal.route("otters")

        with pytest.raises(ContextRouterError, match="its own event loop: await the router"):
            portal.call(inside)

        async def close_inside(router: ContextRouter) -> None:
            portal.close()

        with pytest.raises(ContextRouterError, match="its own event loop: close it outside"):
            portal.call(close_inside)
        stream = portal.iterate(lambda router: router.stream("otters"))
        next(stream)
    portal.close()
    with pytest.raises(ContextRouterError, match="portal is closed"):
        portal.route("otters")
    stream.close()  # type: ignore[attr-defined]  # it is a generator


@pytest.mark.case("USE-15")
def test_a_program_with_open_portals_ends_and_a_fork_has_its_own_router(tmp_path: Path):
    (tmp_path / "settings.toml").write_text('[providers.sqlite]\npath = "a.db"\n')
    code = """
import os
from contextrouter import Document, Entry, Portal
otters = Document(id="o", content="Otters.")
entry = Entry(document=otters, chunks=[otters])
portal = Portal("settings.toml")
portal.call(lambda router: router.instances.sources["sqlite"].upsert([entry]))
print(portal.route("otters").outcome, flush=True)
if (child := os.fork()) == 0:
    print(portal.route("otters").outcome, flush=True)
else:
    print(os.waitpid(child, 0)[1], portal.route("otters").outcome, flush=True)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code],
        cwd=tmp_path,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ran.returncode, ran.stdout.split("\n"), ran.stderr) == (
        0,
        ["answered", "answered", "0 answered", ""],
        "",
    )


@pytest.mark.case("USE-15")
def test_who_waits_in_another_loop_is_told_that_the_portal_was_closed():
    """And not that somebody cancelled the question: in that loop nobody did."""
    portal, begun = Portal(MEMORY), threading.Event()

    async def endless(router: ContextRouter) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def wait() -> None:
        waiting = asyncio.ensure_future(portal.acall(endless))
        await asyncio.to_thread(begun.wait)
        await asyncio.to_thread(portal.close)
        await waiting

    with pytest.raises(ContextRouterError, match="portal is closed"):
        asyncio.run(wait())


@pytest.mark.case("USE-15")
def test_a_portal_that_nobody_has_any_more_closes_when_the_program_ends():
    code = """
import gc
from contextrouter import ContextRouter, Portal
from contextrouter.testing.fakes import Fixed

class Told(Fixed):
    async def aclose(self):
        print("closed", flush=True)

def ask():
    print(Portal(lambda: ContextRouter(connectors={"docs": Told("a")})).route("a").outcome, flush=True)

ask()
gc.collect()
print("end", flush=True)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout.split()) == (0, ["answered", "end", "closed"]), ran.stderr
