"""Laws of every plugin on its methods: spelt as in the contract, async where due, with its arguments."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from typing import Any, get_origin

from contextrouter.runtime.contract_methods import contracts_of, lack, methods_of, misspelt, protocols
from contextrouter.testing.kit import Law, gate, law
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject


@gate
async def class_has_its_required_method(subject: Subject) -> None:
    """The class has the method that its kind requires."""
    if message := lack(subject.cls):
        raise Broken(message.rstrip(".?"))


@gate
async def methods_are_spelt_right(subject: Subject) -> None:
    """No method is close to one of the contract's that the class does not write: it would never be called."""
    for method, name in misspelt(subject.cls):
        raise Broken(f"it has {method}(), which nobody calls; the contract's method is {name}()")


@gate
async def methods_are_async(subject: Subject) -> None:
    """Methods that the contract awaits are `async def`, and those that it iterates are async generators."""
    for name, method, contract in _pairs(subject.cls):
        function = inspect.unwrap(method)
        if inspect.iscoroutinefunction(contract):
            if inspect.isasyncgenfunction(function):
                raise Broken(f"{name}() yields; it must return its answer")
            if not inspect.iscoroutinefunction(function) and not _returns(function, Awaitable, Coroutine):
                raise Broken(f"{name}() is a plain method; write `async def {name}`")
        elif not _iterates(function):
            raise Broken(f"{name}() is no async generator; write `async def {name}` with `yield`")


def _iterates(function: Any) -> bool:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return False
    return inspect.isasyncgenfunction(function) or _returns(function, AsyncIterator)


def _returns(function: Any, *types: type) -> bool:
    """Whether a plain method says that it returns what may be awaited, or iterated."""
    try:
        hint = inspect.get_annotations(function, eval_str=True).get("return")
    except Exception:  # an annotation is code, and may fail like any
        return False
    origin = get_origin(hint) or hint
    return isinstance(origin, type) and issubclass(origin, types)


@gate
async def methods_take_their_arguments(subject: Subject) -> None:
    """Every method of the contract takes the arguments that the router calls it with."""
    for name, method, contract in _pairs(subject.cls):
        parameters = list(inspect.signature(contract).parameters.values())
        places = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        keywords = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
        try:
            inspect.signature(method).bind(*[None] * len(places), **keywords)
        except TypeError as error:
            names = ", ".join(p.name for p in parameters[1:])
            raise Broken(f"{name}() does not take ({names}): {error}") from None


def _pairs(cls: type) -> Iterator[tuple[str, Any, Any]]:
    """Yield each method that the class writes, beside the contract's: its name and both functions."""
    for contract in contracts_of(cls):
        for name, expected in methods_of(contract).items():
            method = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
            if method is not expected and inspect.isfunction(method):
                yield name, method, expected


@law
async def abilities_are_whole(subject: Subject) -> None:
    """A plugin with one method of an ability has all of them: with some, the router does not see it."""
    for protocol in protocols():
        names = list(methods_of(protocol))
        there = [name for name in names if inspect.isfunction(getattr(subject.cls, name, None))]
        if there and len(there) < len(names):
            absent = " and ".join(f"{name}()" for name in names if name not in there)
            raise Broken(f"it has {there[0]}() and lacks {absent}, so it is no {protocol.__name__}")


GATES: tuple[Law, ...] = (
    class_has_its_required_method,
    methods_are_spelt_right,
    methods_are_async,
    methods_take_their_arguments,
)
LAWS: tuple[Law, ...] = (abilities_are_whole,)
