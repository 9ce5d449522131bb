"""Laws of every plugin on its lifecycle: open(), aclose(), event loops, and state that instances share."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from contextrouter.contracts import Plugin
from contextrouter.testing import measure
from contextrouter.testing.kit import Law, law
from contextrouter.testing.law_runs import run_apart
from contextrouter.testing.laws.calls import call_together, check_same
from contextrouter.testing.laws.construction import constructor_keywords
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject

LEFT_SECONDS = 2.0
"""Seconds that tasks and threads may take to end after aclose()."""
LOOKS = 100
OPEN_STALL = 0.5
"""Seconds for which open() or aclose() may keep the event loop to itself."""
_MUTABLE = (list, dict, set, bytearray)


@law
async def open_and_aclose_never_block(subject: Subject) -> None:
    """open() and aclose() do not block the event loop: blocking work runs in a thread."""

    name = ""

    async def attempt() -> float:
        nonlocal name
        plugin = subject.make()
        opening = await measure.stall(plugin.open)
        closing = await measure.stall(plugin.aclose)
        name = "open" if opening > closing else "aclose"
        return max(opening, closing)

    allowed = OPEN_STALL + 3 * await measure.idle()
    took = await measure.shortest(attempt, allowed)
    if took > allowed:
        raise Broken(
            f"{name}() kept the event loop to itself for {took:.2f} s; {allowed:.2f} s are allowed. Run what"
            " blocks in a thread"
        )


@law
async def aclose_twice_is_harmless(subject: Subject) -> None:
    """aclose() may be called again."""
    plugin = subject.make()
    await plugin.open()
    await plugin.aclose()
    await plugin.aclose()


@law
async def aclose_without_open_is_harmless(subject: Subject) -> None:
    """aclose() may be called on a plugin that was never opened."""
    await subject.make().aclose()


@law
async def open_twice_is_harmless(subject: Subject) -> None:
    """open() may be called again, and the plugin still answers."""
    plugin = subject.make()
    try:
        await plugin.open()
        await plugin.open()
        await subject.exercise.prepare(subject, plugin)
        await subject.answers(plugin)
    finally:
        await plugin.aclose()


@law
async def reopened_it_answers_as_before(subject: Subject) -> None:
    """After aclose() and open() the plugin gives the same answers as before."""
    plugin = subject.make()
    check_same(await subject.session(plugin), await subject.session(plugin), "opened again, it")


@law
async def works_in_a_second_event_loop(subject: Subject) -> None:
    """Nothing outlives its event loop: a plugin that was closed in one loop opens and works in another."""
    plugin = subject.make()

    def twice() -> tuple[list[Any], list[Any]]:
        answers = run_apart(lambda: _twenty(subject, plugin))
        return answers, run_apart(lambda: _twenty(subject, plugin))

    check_same(*await asyncio.to_thread(twice), "in a second event loop, it")


async def _twenty(subject: Subject, plugin: Plugin) -> list[Any]:
    try:
        await plugin.open()
        await subject.exercise.prepare(subject, plugin)
        return await call_together(subject, plugin)
    finally:
        await plugin.aclose()


@law
async def nothing_goes_on_after_aclose(subject: Subject) -> None:
    """After aclose() no task and no thread goes on that the plugin started. A thread that a library starts
    once, for all instances, may.
    """
    plugin, neighbour = subject.make(), subject.make()  # both live on, as in the router
    await subject.session(plugin)
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    await subject.session(neighbour)
    running = ""
    for _ in range(LOOKS):
        if not (running := _still_running(threads, tasks)):
            return
        await asyncio.sleep(LEFT_SECONDS / LOOKS)
    raise Broken(f"{running} goes on. End it in aclose()")


def _still_running(threads: set[threading.Thread], tasks: set[asyncio.Task[Any]]) -> str:
    """Name a task or a thread that is not among those before; empty: there is none. Idle threads of
    `asyncio.to_thread` belong to the event loop.
    """
    for task in asyncio.all_tasks() - tasks:
        return f"a task of {getattr(task.get_coro(), '__qualname__', task.get_name())}()"
    for thread in set(threading.enumerate()) - threads:
        if not thread.name.startswith("asyncio_"):
            return f"the thread {thread.name!r}"
    return ""


@law
async def instances_share_no_state(subject: Subject) -> None:
    """Using and closing one instance changes nothing for another, and leaves no trace in the class or its
    module.
    """
    instance, neighbour = subject.make(), subject.make()
    before = _mutable_state(subject.cls)
    alone = await subject.session(subject.make())
    try:
        await neighbour.open()
        await subject.session(instance)
        await _ask_something_new(subject)
        await subject.exercise.prepare(subject, neighbour)
        beside = await subject.answers(neighbour)
    finally:
        await neighbour.aclose()
    changed = [name for name, value in _mutable_state(subject.cls).items() if before.get(name) != value]
    if changed:
        raise Broken(f"use changed {changed[0]}, which all instances share")
    check_same(alone, beside, "after another instance was used and closed, it")


async def _ask_something_new(subject: Subject) -> None:
    """Ask an instance what no law asked before: a cache that all share has the other questions already."""
    plugin = subject.make()
    try:
        await plugin.open()
        await subject.exercise.prepare(subject, plugin)
        for item in subject.exercise.hostile(plugin, f"moon and tides of {uuid4().hex}"):
            with suppress(*subject.exercise.refusals):
                await subject.exercise.call(plugin, item)
    finally:
        await plugin.aclose()


def _mutable_state(cls: type[Plugin]) -> dict[str, str]:
    """Return the mutable state that instances share, as texts.

    It is in the class, its bases outside the contracts, its module and its defaults.
    """
    state = {
        f"the default of {name!r}": repr(p.default)
        for name, p in constructor_keywords(cls).items()
        if isinstance(p.default, _MUTABLE)
    }
    owners: list[tuple[str, Mapping[str, Any]]] = [
        (base.__qualname__, vars(base))
        for base in cls.__mro__
        if base.__module__ != Plugin.__module__ and base is not object
    ]
    module = sys.modules.get(cls.__module__)
    if module is not None:
        owners.append((module.__name__, vars(module)))
    for owner, names in owners:
        for name, value in list(names.items()):
            if isinstance(value, _MUTABLE) and not name.startswith("__") and not name.startswith("_abc_"):
                state[f"{owner}.{name}"] = repr(value) if len(value) < 1000 else str(len(value))
    return state


LAWS: tuple[Law, ...] = (
    open_and_aclose_never_block,
    aclose_twice_is_harmless,
    aclose_without_open_is_harmless,
    open_twice_is_harmless,
    reopened_it_answers_as_before,
    works_in_a_second_event_loop,
    nothing_goes_on_after_aclose,
    instances_share_no_state,
)
