"""Laws of every plugin on calls: repeatable answers, concurrency, hostile texts, cancellation, event loop."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from contextrouter.contracts import Plugin
from contextrouter.testing import measure
from contextrouter.testing.fresh_process import answers_elsewhere
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, describe_error, shorten
from contextrouter.testing.subject import Subject
from contextrouter.testing.texts import HOSTILE

CALLS = 20
ROUNDING = 0.01
STALL = 0.1
"""Seconds for which a call may keep the event loop to itself."""
LEAVE = 0.25
"""Seconds a cancelled call may take to end."""
FOR_GOOD = 5.0
"""Seconds after which a cancelled call that goes on counts as one that never ends."""


@law
async def same_answer_twice(subject: Subject) -> None:
    """The same input gets the same answer a moment later."""
    async with subject.open_plugin() as plugin:
        before = await subject.answers(plugin)
        await asyncio.sleep(0.002)
        check_same(before, await subject.answers(plugin), "asked again, it")


@law
async def concurrent_calls_agree_with_serial_ones(subject: Subject) -> None:
    """Twenty concurrent calls give the same answers as twenty calls in a row."""
    async with subject.open_plugin() as plugin:
        exercise = subject.exercise
        serial = [
            subject.summarize(await exercise.call(plugin, item)) for item in await _many(subject, plugin)
        ]
        check_same(serial, await call_together(subject, plugin), "called twenty times at once, it")


async def _many(subject: Subject, plugin: Plugin) -> list[Any]:
    inputs: list[Any] = []
    while len(inputs) < CALLS:
        inputs += await subject.exercise.inputs(subject, plugin)
    return inputs[:CALLS]


async def call_together(subject: Subject, plugin: Plugin) -> list[Any]:
    inputs = await _many(subject, plugin)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(subject.exercise.call(plugin, item)) for item in inputs]
    return [subject.summarize(task.result()) for task in tasks]


@law
async def inputs_are_not_changed(subject: Subject) -> None:
    """A call leaves its inputs as they were: it changes no list, mapping or vector in them."""
    async with subject.open_plugin() as plugin:
        for item in await subject.exercise.inputs(subject, plugin):
            before = subject.exercise.describe(item)
            await subject.exercise.call(plugin, item)
            if (after := subject.exercise.describe(item)) != before:
                raise Broken(f"it changed {_difference(before, after)}")


def _difference(before: str, after: str) -> str:
    at = _first_place(before, after)
    start = max(0, at - 20)
    return f"…{before[start : at + 30]}… to …{after[start : at + 30]}…"


def _first_place(before: str, after: str) -> int:
    """Return where two texts begin to differ."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(before), len(after)))


@law
async def no_text_is_an_error(subject: Subject) -> None:
    """No text raises an error: quotes, operators, NULs, emoji, markup, SQL, 10 kB of anything, any script."""
    async with subject.open_plugin() as plugin:
        for text in HOSTILE:
            for item in subject.exercise.hostile(plugin, text):
                try:
                    await subject.exercise.call(plugin, item)
                except subject.exercise.refusals:
                    continue
                except Exception as error:
                    raise Broken(f"for {shorten(text, 60)} {describe_error(error)}") from error


@law
async def nothing_is_printed(subject: Subject) -> None:
    """No method prints: stdout belongs to the program, which may write JSON there. Use `logging`."""
    with redirect_stdout(StringIO()) as printed:
        await subject.session(subject.make())
    if printed.getvalue():
        raise Broken(f"it printed {shorten(printed.getvalue())}")


@law
async def cancelled_it_leaves_at_once(subject: Subject) -> None:
    """A cancelled call ends at once, as cancelled, and the plugin still works."""
    async with subject.open_plugin() as plugin:
        inputs = await subject.exercise.inputs(subject, plugin)
        expected = subject.summarize(await subject.exercise.call(plugin, inputs[0]))

        async def cancel_after(pause: float) -> float:
            return await _cancel_call(subject, plugin, inputs[0], pause)

        for pause in (0.0, 0.003):
            took = await measure.shortest(lambda pause=pause: cancel_after(pause), LEAVE)  # type: ignore[misc]  # mypy cannot infer a lambda that has a default
            if took > LEAVE:
                raise Broken(f"a cancelled call took {took:.2f} s and more to end")
        check_same(
            expected,
            subject.summarize(await subject.exercise.call(plugin, inputs[0])),
            "after a cancelled call, it",
        )


async def _cancel_call(subject: Subject, plugin: Plugin, item: Any, pause: float) -> float:
    async def call() -> None:
        await subject.exercise.call(plugin, item)

    task = asyncio.get_running_loop().create_task(call())
    await asyncio.sleep(0)
    await asyncio.sleep(pause)
    if task.done():
        task.result()
        return 0.0
    task.cancel()
    took = await measure.measure_end(task, FOR_GOOD)
    if not task.done():
        raise Broken("a cancelled call goes on for good; it must let CancelledError pass")
    if not task.cancelled():
        task.result()
        raise Broken("a cancelled call returned an answer; it must let CancelledError pass")
    return took


@law
async def event_loop_is_never_stalled(subject: Subject) -> None:
    """A call does not block the event loop: blocking or long computation runs in a thread."""

    async def attempt() -> float:
        longest = 0.0
        async with subject.open_plugin() as plugin:
            for item in await subject.exercise.inputs(subject, plugin):
                call = functools.partial(subject.exercise.call, plugin, item)
                longest = max(longest, await measure.stall(call))
        return longest

    async with subject.open_plugin():
        pass  # questions are found here, so that the first call of an attempt is a first call
    allowed = STALL + 3 * await measure.idle()
    took = await measure.shortest(attempt, allowed)
    if took > allowed:
        raise Broken(f"a call kept the event loop to itself for {took:.2f} s; {allowed:.2f} s are allowed")


def check_same(before: Sequence[Any], after: Sequence[Any], who: str) -> None:
    if before == after:
        return
    old, new = _first_difference(before, after)
    raise Broken(f"{who} answered {shorten(new)}, before {shorten(old)}")


def _first_difference(before: Any, after: Any) -> tuple[Any, Any]:
    """Return the first two parts that differ: of lists an item, of items a field behind their id."""
    while isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        pairs = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        if not pairs or (isinstance(before, tuple) and len(pairs) > 1):
            break
        if isinstance(before, tuple) and not isinstance(pairs[0][0], list | tuple):
            return (before[0], pairs[0][0]), (after[0], pairs[0][1])
        before, after = pairs[0]
    if isinstance(before, str) and isinstance(after, str):
        start = max(0, _first_place(before, after) - 30)
        return before[start:], after[start:]
    return before, after


@law
async def same_answer_in_another_process(subject: Subject) -> None:
    """The example gives the same answer in a fresh process: vectors and ids are stored, and compared later.
    Python's `hash()` of a text is another in each process.
    """
    if (elsewhere := await asyncio.to_thread(answers_elsewhere, subject.cls)) is None:
        return
    here = json.loads(json.dumps(await subject.session(subject.cls.example())))
    if not _alike(here, elsewhere):
        old, new = _first_difference(here, elsewhere)
        raise Broken(f"in another process it answered {shorten(new)}, here {shorten(old)}")


def _alike(here: Any, elsewhere: Any) -> bool:
    """Whether two answers are equal; numbers may differ by what rounding does."""
    if isinstance(here, list) and isinstance(elsewhere, list):
        pairs = zip(here, elsewhere, strict=False)
        return len(here) == len(elsewhere) and all(_alike(a, b) for a, b in pairs)
    if isinstance(here, float) and isinstance(elsewhere, float):
        return abs(here - elsewhere) < ROUNDING
    return bool(here == elsewhere)


OF_WHAT_IS_STORED: tuple[Law, ...] = (same_answer_in_another_process,)
LAWS: tuple[Law, ...] = (
    same_answer_twice,
    concurrent_calls_agree_with_serial_ones,
    inputs_are_not_changed,
    no_text_is_an_error,
    nothing_is_printed,
    cancelled_it_leaves_at_once,
    event_loop_is_never_stalled,
)
