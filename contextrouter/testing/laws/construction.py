"""Laws of every plugin on construction: its example, its constructor and keywords, the imports."""

from __future__ import annotations

import asyncio
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from contextrouter.contracts import Plugin, router_keys
from contextrouter.errors import MissingDependency
from contextrouter.runtime.plugin_calls import CLOSE_SECONDS
from contextrouter.settings import schema
from contextrouter.settings.pydantic_types import is_pydantic
from contextrouter.testing.imports import third_party
from contextrouter.testing.kinds import settings_kind
from contextrouter.testing.kit import Law, NotApplicable, gate, law
from contextrouter.testing.messages import Broken, describe_error, shorten
from contextrouter.testing.side_effects import watch_constructor
from contextrouter.testing.subject import Subject

_PYDANTIC = ("pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions")
"""pydantic, and the packages that it needs."""
_SCALARS = (str, int, float, bool, date, datetime, time, Any, object)


@gate
async def example_works(subject: Subject) -> None:
    """example() is an instance of the class that opens, pings, answers and closes with nothing but what the
    package ships.
    """
    plugin = _make(subject)
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
        raise Broken(describe_error(error)) from error
    finally:
        await _close(plugin)


def _make(subject: Subject) -> Plugin:
    try:
        return subject.make()
    except TypeError as error:
        keywords = constructor_keywords(subject.cls).items()
        required = [name for name, parameter in keywords if parameter.default is parameter.empty]
        example, inherited = subject.cls.example, Plugin.example
        if not required or getattr(example, "__func__", None) is not getattr(inherited, "__func__", None):
            raise
        raise Broken(
            "the class has no example() of its own, and the constructor needs"
            f" {', '.join(map(repr, required))}. Write a classmethod example() that returns an"
            " instance which works without a server"
        ) from error


async def _close(plugin: Plugin) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await plugin.aclose()
    except TimeoutError:
        raise Broken(f"aclose() did not end within {CLOSE_SECONDS:g} s; the router gives it up") from None


@law
async def constructor_does_no_io(subject: Subject) -> None:
    """The constructor opens no file, socket or process; open() does."""
    with watch_constructor(subject.cls) as (effects, _):
        try:
            subject.make()
        except Exception:
            if not effects:
                raise
    if effects:
        raise Broken(f"the constructor touched {effects[0]}")


@law
async def keywords_are_typed_for_toml(subject: Subject) -> None:
    """Every constructor keyword has a type that TOML can express, and a default of that type."""
    hints = typing.get_type_hints(subject.cls.__init__, include_extras=True)
    for name, parameter in constructor_keywords(subject.cls).items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise Broken(f"{name!r} cannot be given by name")
        if name not in hints:
            raise Broken(f"{name!r} has no type")
        if is_pydantic(hints[name]):
            continue  # pydantic checks the value, and knows its types
        if not _fits_toml(hints[name]):
            raise Broken(f"{name!r} is a {schema.type_name(hints[name])}, which no TOML holds")
        default = parameter.default
        if default not in (parameter.empty, None) and not _reference(hints[name]):
            _convertible(name, default, hints[name])


def _convertible(name: str, default: Any, hint: Any) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(default), hint)
    except (msgspec.ValidationError, TypeError) as error:
        raise Broken(f"the default of {name!r}, {shorten(default)}, is not of its type: {error}") from None


def constructor_keywords(cls: type[Plugin]) -> dict[str, inspect.Parameter]:
    if cls.__init__ is object.__init__:
        return {}
    every = list(inspect.signature(cls.__init__).parameters.items())[1:]
    return {name: p for name, p in every if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def _reference(hint: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, Plugin) for part in (hint, *get_args(hint)))


def _fits_toml(hint: Any) -> bool:
    if hint in _SCALARS or hint is type(None) or _reference(hint):
        return True
    origin = get_origin(hint)
    if origin is Annotated:
        return _fits_toml(get_args(hint)[0])
    if origin is Literal:
        return all(isinstance(value, str | int | float | bool) for value in get_args(hint))
    if origin in (Union, types.UnionType, list, tuple, dict, set, frozenset, Sequence, Mapping):
        return all(_fits_toml(part) for part in get_args(hint) if part is not Ellipsis)
    return isinstance(hint, type) and (
        issubclass(hint, msgspec.Struct) or hint in (list, tuple, dict, set, frozenset)
    )


@law
async def router_keys_are_left_alone(subject: Subject) -> None:
    """No constructor keyword has the name of one of the router's own keys in the plugin's table."""
    taken = sorted(set(constructor_keywords(subject.cls)) & set(router_keys(settings_kind(subject.cls))))
    if taken:
        raise Broken(f"{taken[0]!r} is the router's own in a {settings_kind(subject.cls)}'s table")


@law
async def unknown_keyword_is_refused(subject: Subject) -> None:
    """An unknown constructor keyword raises TypeError, so that a misspelt setting is noticed."""
    with watch_constructor(subject.cls, watch=False) as (_, calls):
        subject.make()
    args, keywords = calls[0] if calls else ((), {})
    try:
        subject.cls(*args, **keywords, no_such_keyword=1)  # type: ignore[call-arg]  # a keyword that does not exist is the point
    except TypeError:
        return
    raise Broken("the constructor takes a keyword 'no_such_keyword'")


@law
async def module_imports_nothing_heavy(subject: Subject) -> None:
    """Importing the plugin's module imports no third-party package; open() does. Types of keywords may be
    pydantic's.
    """
    module = subject.cls.__module__.rpartition(".")[2]
    if module == "__main__" or module.startswith("test_"):
        raise NotApplicable(
            "the class is defined among tests, or in a program, and not in a module of plugins"
        )
    packages = [
        package
        for package in await asyncio.to_thread(third_party, subject.cls)
        if package not in _PYDANTIC or not _uses_pydantic(subject.cls)
    ]
    if packages:
        raise Broken(f"importing its module imports {', '.join(packages[:5])}")


GATES: tuple[Law, ...] = (example_works,)


def _uses_pydantic(cls: type[Plugin]) -> bool:
    return any(map(is_pydantic, typing.get_type_hints(cls.__init__, include_extras=True).values()))


LAWS: tuple[Law, ...] = (
    constructor_does_no_io,
    keywords_are_typed_for_toml,
    router_keys_are_left_alone,
    unknown_keyword_is_refused,
    module_imports_nothing_heavy,
)
