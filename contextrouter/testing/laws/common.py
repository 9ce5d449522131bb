"""The laws of every plugin: how it is made, opened, closed, shared, cancelled, and what it may not touch."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from contextrouter.contracts import Plugin, router_keys
from contextrouter.errors import MissingDependency
from contextrouter.settings import schema
from contextrouter.testing import measure
from contextrouter.testing.imports import third_party
from contextrouter.testing.kinds import settings_kind
from contextrouter.testing.kit import Law, NotApplicable, law
from contextrouter.testing.messages import Broken, explained, said
from contextrouter.testing.side_effects import constructing
from contextrouter.testing.subject import Subject
from contextrouter.testing.texts import HOSTILE

CALLS = 20
STALL = 0.1
"""Seconds for which a call may keep the event loop to itself."""
LEAVE = 0.25
"""Seconds a cancelled call may take to end."""
_MUTABLE = (list, dict, set, bytearray)
_SCALARS = (str, int, float, bool, date, datetime, time, Any, object)


@law
async def example_works(subject: Subject) -> None:
    """example() is an instance of the class that opens, pings, answers and closes with nothing but what the
    package ships.
    """
    plugin = subject.make()
    if not isinstance(plugin, subject.cls):
        raise Broken(f"example() returned a {type(plugin).__name__}")
    try:
        await plugin.open()
        await subject.exercise.prepare(subject, plugin)
        await plugin.ping()
        await subject.answers(plugin)
    except MissingDependency:
        raise
    except Exception as error:
        raise Broken(explained(error)) from error
    finally:
        await plugin.aclose()


@law
async def constructor_does_no_io(subject: Subject) -> None:
    """The constructor opens no file, socket or process; open() does."""
    with constructing(subject.cls) as (touched, _):
        try:
            subject.make()
        except Exception:
            if not touched:
                raise
    if touched:
        raise Broken(f"the constructor touched {touched[0]}")


@law
async def keywords_are_typed_for_toml(subject: Subject) -> None:
    """Every constructor keyword has a type that TOML can hold, and a default of that type."""
    hints = typing.get_type_hints(subject.cls.__init__, include_extras=True)
    for name, parameter in _keywords(subject.cls).items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise Broken(f"{name!r} cannot be given by name")
        if name not in hints:
            raise Broken(f"{name!r} has no type")
        if not _in_toml(hints[name]):
            raise Broken(f"{name!r} is a {schema.type_name(hints[name])}, which no TOML holds")
        default = parameter.default
        if default not in (parameter.empty, None) and not _reference(hints[name]):
            _convertible(name, default, hints[name])


def _convertible(name: str, default: Any, hint: Any) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(default), hint)
    except (msgspec.ValidationError, TypeError) as error:
        raise Broken(f"the default of {name!r}, {said(default)}, is not of its type: {error}") from None


def _keywords(cls: type[Plugin]) -> dict[str, inspect.Parameter]:
    if cls.__init__ is object.__init__:
        return {}
    every = list(inspect.signature(cls.__init__).parameters.items())[1:]
    return {name: p for name, p in every if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def _reference(hint: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, Plugin) for part in (hint, *get_args(hint)))


def _in_toml(hint: Any) -> bool:
    if hint in _SCALARS or hint is type(None) or _reference(hint):
        return True
    origin = get_origin(hint)
    if origin is Annotated:
        return _in_toml(get_args(hint)[0])
    if origin is Literal:
        return all(isinstance(value, str | int | float | bool) for value in get_args(hint))
    if origin in (Union, types.UnionType, list, tuple, dict, set, frozenset, Sequence, Mapping):
        return all(_in_toml(part) for part in get_args(hint) if part is not Ellipsis)
    return isinstance(hint, type) and (
        issubclass(hint, msgspec.Struct) or hint in (list, tuple, dict, set, frozenset)
    )


@law
async def router_keys_are_left_alone(subject: Subject) -> None:
    """No constructor keyword has the name of one of the router's own keys in the plugin's table."""
    taken = sorted(set(_keywords(subject.cls)) & set(router_keys(settings_kind(subject.cls))))
    if taken:
        raise Broken(f"{taken[0]!r} is the router's own in a {settings_kind(subject.cls)}'s table")


@law
async def unknown_keyword_is_refused(subject: Subject) -> None:
    """A keyword the constructor does not name is a TypeError, so that a misspelt setting is noticed."""
    with constructing(subject.cls, watch=False) as (_, calls):
        subject.make()
    args, keywords = calls[0] if calls else ((), {})
    try:
        subject.cls(*args, **keywords, no_such_keyword=1)  # type: ignore[call-arg]  # a keyword that does not exist is the point
    except TypeError:
        return
    raise Broken("the constructor takes a keyword 'no_such_keyword'")


@law
async def module_imports_nothing_heavy(subject: Subject) -> None:
    """Importing the plugin's module imports no third-party package; open() does."""
    module = subject.cls.__module__.rpartition(".")[2]
    if module == "__main__" or module.startswith("test_"):
        raise NotApplicable(
            "the class is defined among tests, or in a program, and not in a module of plugins"
        )
    found = await asyncio.to_thread(third_party, subject.cls)
    if found:
        raise Broken(f"importing its module imports {', '.join(found[:5])}")


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
    """After aclose() and open() the answers are those of before."""
    plugin = subject.make()
    _same(await subject.session(plugin), await subject.session(plugin), "opened again, it")


@law
async def works_in_a_second_event_loop(subject: Subject) -> None:
    """Nothing outlives the event loop it was opened in: closed there, the plugin opens and works in
    another.
    """
    plugin = subject.make()

    def twice() -> tuple[list[Any], list[Any]]:
        return asyncio.run(_twenty(subject, plugin)), asyncio.run(_twenty(subject, plugin))

    _same(*await asyncio.to_thread(twice), "in a second event loop, it")


async def _twenty(subject: Subject, plugin: Plugin) -> list[Any]:
    try:
        await plugin.open()
        await subject.exercise.prepare(subject, plugin)
        return await _together(subject, plugin)
    finally:
        await plugin.aclose()


@law
async def instances_share_no_state(subject: Subject) -> None:
    """Using and closing one instance changes nothing for another, and leaves no trace in the class or its
    module.
    """
    first, second = subject.make(), subject.make()
    before = _shared(subject.cls)
    alone = await subject.session(subject.make())
    try:
        await second.open()
        await subject.session(first)
        await subject.exercise.prepare(subject, second)
        _same(alone, await subject.answers(second), "after another instance was used and closed, it")
    finally:
        await second.aclose()
    changed = [name for name, value in _shared(subject.cls).items() if before.get(name) != value]
    if changed:
        raise Broken(f"use changed {changed[0]}, which all instances share")


def _shared(cls: type[Plugin]) -> dict[str, str]:
    """The mutable containers of the class, its bases outside the contracts, its module, and its defaults, as
    texts.
    """
    found = {
        f"the default of {name!r}": repr(p.default)
        for name, p in _keywords(cls).items()
        if isinstance(p.default, _MUTABLE)
    }
    places: list[tuple[str, Mapping[str, Any]]] = [
        (base.__qualname__, vars(base))
        for base in cls.__mro__
        if base.__module__ != Plugin.__module__ and base is not object
    ]
    module = sys.modules.get(cls.__module__)
    if module is not None:
        places.append((module.__name__, vars(module)))
    for place, names in places:
        for name, value in list(names.items()):
            if isinstance(value, _MUTABLE) and not name.startswith("__") and not name.startswith("_abc_"):
                found[f"{place}.{name}"] = repr(value) if len(value) < 1000 else str(len(value))
    return found


@law
async def same_answer_twice(subject: Subject) -> None:
    """The same input has the same answer, a moment later."""
    async with subject.opened() as plugin:
        first = await subject.answers(plugin)
        await asyncio.sleep(0.002)
        _same(first, await subject.answers(plugin), "asked again, it")


@law
async def concurrent_calls_agree_with_serial_ones(subject: Subject) -> None:
    """Twenty calls at once answer as the same calls one after the other."""
    async with subject.opened() as plugin:
        exercise = subject.exercise
        serial = [exercise.seen(await exercise.call(plugin, given)) for given in await _many(subject, plugin)]
        _same(serial, await _together(subject, plugin), "called twenty times at once, it")


async def _many(subject: Subject, plugin: Plugin) -> list[Any]:
    inputs: list[Any] = []
    while len(inputs) < CALLS:
        inputs += await subject.exercise.inputs(subject, plugin)
    return inputs[:CALLS]


async def _together(subject: Subject, plugin: Plugin) -> list[Any]:
    inputs = await _many(subject, plugin)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(subject.exercise.call(plugin, given)) for given in inputs]
    return [subject.exercise.seen(task.result()) for task in tasks]


@law
async def inputs_are_not_changed(subject: Subject) -> None:
    """What a plugin is given is as it was when it returns: no list, mapping or vector in it is changed."""
    async with subject.opened() as plugin:
        for given in await subject.exercise.inputs(subject, plugin):
            before = subject.exercise.shown(given)
            await subject.exercise.call(plugin, given)
            if (after := subject.exercise.shown(given)) != before:
                raise Broken(f"it changed {_difference(before, after)}")


def _difference(before: str, after: str) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    start = max(0, at - 20)
    return f"…{before[start : at + 30]}… to …{after[start : at + 30]}…"


@law
async def no_text_is_an_error(subject: Subject) -> None:
    """Quotes, operators, NULs, emoji, markup, SQL, 10 kB of anything and texts of many scripts are texts like
    others.
    """
    async with subject.opened() as plugin:
        for text in HOSTILE:
            for given in subject.exercise.hostile(plugin, text):
                try:
                    await subject.exercise.call(plugin, given)
                except subject.exercise.refusals:
                    continue
                except Exception as error:
                    raise Broken(f"for {said(text, 60)} {explained(error)}") from error


@law
async def cancelled_it_leaves_at_once(subject: Subject) -> None:
    """A cancelled call ends at once, as cancelled, and the plugin still works."""
    async with subject.opened() as plugin:
        inputs = await subject.exercise.inputs(subject, plugin)
        expected = subject.exercise.seen(await subject.exercise.call(plugin, inputs[0]))

        async def cancelled_after(pause: float) -> float:
            return await _cancelled(subject, plugin, inputs[0], pause)

        for pause in (0.0, 0.003):
            took = await measure.least(lambda pause=pause: cancelled_after(pause), LEAVE)  # type: ignore[misc]  # mypy cannot infer a lambda that has a default
            if took > LEAVE:
                raise Broken(f"a cancelled call took {took:.2f} s and more to end")
        _same(
            expected,
            subject.exercise.seen(await subject.exercise.call(plugin, inputs[0])),
            "after a cancelled call, it",
        )


async def _cancelled(subject: Subject, plugin: Plugin, given: Any, pause: float) -> float:
    async def call() -> None:
        await subject.exercise.call(plugin, given)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(call())
        await asyncio.sleep(0)
        await asyncio.sleep(pause)
        if task.done():
            return 0.0
        task.cancel()
        took = await measure.ended(task, 1.0)
        answered = task.done() and not task.cancelled() and task.exception() is None
    if answered:
        raise Broken("a cancelled call returned an answer; it must let CancelledError pass")
    return took


@law
async def event_loop_is_never_stalled(subject: Subject) -> None:
    """A call leaves the event loop to others: what blocks or computes for long runs in a thread."""

    async def attempt() -> float:
        longest = 0.0
        async with subject.opened() as plugin:
            for given in await subject.exercise.inputs(subject, plugin):
                call = functools.partial(subject.exercise.call, plugin, given)
                longest = max(longest, await measure.stall(call))
        return longest

    async with subject.opened():
        pass  # questions are found here, so that the first call of an attempt is a first call
    allowed = STALL + 3 * await measure.idle()
    took = await measure.least(attempt, allowed)
    if took > allowed:
        raise Broken(f"a call kept the event loop to itself for {took:.2f} s; {allowed:.2f} s are allowed")


def _same(before: Sequence[Any], after: Sequence[Any], who: str) -> None:
    if before == after:
        return
    pairs = [(a, b) for a, b in zip(before, after, strict=False) if a != b]
    first, second = pairs[0] if pairs else (before, after)
    raise Broken(f"{who} answered {said(second)}, before {said(first)}")


LAWS: tuple[Law, ...] = (
    example_works,
    constructor_does_no_io,
    keywords_are_typed_for_toml,
    router_keys_are_left_alone,
    unknown_keyword_is_refused,
    module_imports_nothing_heavy,
    aclose_twice_is_harmless,
    aclose_without_open_is_harmless,
    open_twice_is_harmless,
    reopened_it_answers_as_before,
    works_in_a_second_event_loop,
    instances_share_no_state,
    same_answer_twice,
    concurrent_calls_agree_with_serial_ones,
    inputs_are_not_changed,
    no_text_is_an_error,
    cancelled_it_leaves_at_once,
    event_loop_is_never_stalled,
)
