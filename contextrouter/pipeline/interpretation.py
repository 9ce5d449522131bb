"""Step 1: what is really asked. `interpret` turns a request into an intent, through the interpreters in
turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from itertools import compress
from operator import attrgetter, is_not
from types import CoroutineType, coroutine
from typing import Any

from contextrouter.contracts import Interpreter
from contextrouter.errors import PluginError, RequestRefused
from contextrouter.model import Intent, Period, Request
from contextrouter.runtime.masking import mask
from contextrouter.scope import Scope
from contextrouter.settings import InterpreterKeys

FAILED = "failed_interpreters"
"""Key in `Intent.attributes`: name of each interpreter that failed and was passed over -> why."""


def request_of(
    question: str | Request,
    scope: Scope | None,
    sources: Sequence[str] | None,
    legs: Sequence[str] | None,
    deadline: float | None,
) -> Request:
    """The request that a call makes; arguments lie over what a Request says. Raises RequestRefused for a
    blank question.
    """
    request = question if isinstance(question, Request) else Request(question=question)
    if not request.question.strip():
        raise RequestRefused("The question is empty. Ask with at least one word.")
    if scope is None and sources is None and legs is None and deadline is None:
        return request
    given: dict[str, Any] = {"scope": scope, "deadline": deadline, "sources": sources, "legs": legs}
    changes = {name: value for name, value in given.items() if value is not None}
    return request.replace(**changes)


async def interpret(
    request: Request,
    interpreters: Mapping[str, Interpreter],
    *,
    keys: Mapping[str, InterpreterKeys] | None = None,
    deadline: float | None = None,
    max_queries: int = 3,
    ready: Callable[[str, str], Awaitable[None]] | None = None,
    secrets: Sequence[str] = (),
) -> Intent:
    """Return the intent of `request`. The original question is always its first query.

    `ready`, where given, is called with ("interpreter", name) before each, and opens what is not open yet. An
    interpreter that fails or is late (own `timeout`, or `deadline` on the loop's clock) is passed over and
    named in `attributes`, unless its `on_error` is "raise". Raises RequestRefused for a blank question, or
    when an interpreter refuses.
    """
    question = request.question.strip()
    if not question:
        raise RequestRefused("The question is empty. Ask with at least one word.")
    intent = Intent(question=question, queries=(question,), kind=request.mode or "default")
    failed: dict[str, str] = {}
    for name, interpreter in interpreters.items():
        own = (keys or {}).get(name) or InterpreterKeys()
        if not own.enabled:
            continue
        until = deadline if own.timeout is None else _earlier(deadline, own.timeout)
        try:
            if ready is not None:
                async with asyncio.timeout_at(until):
                    await ready("interpreter", name)
            intent = _checked(await _within(interpreter.interpret(intent), until), intent)
        except RequestRefused:
            raise
        except Exception as error:
            why = (
                "timed out"
                if isinstance(error, TimeoutError)
                else mask(f"{type(error).__name__}: {error}", secrets)
            )
            if own.on_error == "raise":
                raise PluginError(
                    f"Interpreter {name!r} failed: {why}.", plugin=name, kind="interpreter"
                ) from error
            failed[name] = why
    if failed or FAILED in intent.attributes:
        intent = intent.replace(attributes={**intent.attributes, FAILED: failed})
    return _settled(intent, question, request, max_queries)


def failures(intent: Intent) -> str:
    """Which interpreters failed, for the trace; empty: none."""
    failed = intent.attributes.get(FAILED)
    return "failed: " + "; ".join(f"{name}: {why}" for name, why in failed.items()) if failed else ""


async def _within(answer: Awaitable[Intent], until: float | None) -> Intent:
    """Await an interpreter's answer. The clock is set only for one that waits: most work with what they
    have.
    """
    if not isinstance(answer, CoroutineType):
        async with asyncio.timeout_at(until):
            return await answer
    try:
        first = answer.send(None)
    except StopIteration as done:
        found: Intent = done.value
        return found
    async with asyncio.timeout_at(until):
        return await _rest(answer, first)


@coroutine
def _rest(begun: CoroutineType[Any, Any, Intent], first: Any) -> Generator[Any, Any, Intent]:
    """Go on with a coroutine that has begun and waits for `first`."""
    waits_for = first
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                waits_for = begun.throw(error)
            else:
                waits_for = begun.send(sent)
    except StopIteration as done:
        found: Intent = done.value
        return found


def _earlier(deadline: float | None, timeout: float) -> float:
    own = asyncio.get_running_loop().time() + timeout
    return own if deadline is None else min(own, deadline)


_LISTED = (tuple, list)
_TEXTS = ("queries", "concepts", "labels", "entities", "facets")
_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "kind": (str, "a text"),
    "language": ((str, type(None)), "a text or None"),
    "lookup": ((str, type(None)), "a text or None"),
    "period": ((Period, type(None)), "a Period or None"),
    "confidence": ((int, float), "a number"),
    "attributes": (Mapping, "a mapping"),
}
_FIELDS = (*_TEXTS, *_TYPES)
_VALUES = attrgetter(*_FIELDS)


def _checked(found: object, given: Intent) -> Intent:
    """What an interpreter made of `given`, if every later step can work with it. Raises TypeError that names
    the wrong field.
    """
    if not isinstance(found, Intent):
        raise TypeError(f"interpret() returned {type(found).__name__}, not Intent")
    changes = {}
    for name in compress(_FIELDS, map(is_not, _VALUES(found), _VALUES(given))):
        value = getattr(found, name)
        if name not in _TEXTS:
            types, wanted = _TYPES[name]
            if not isinstance(value, types):
                raise TypeError(f"interpret() returned {name} {value!r}, not {wanted}")
        elif not isinstance(value, _LISTED) or not all([isinstance(text, str) for text in value]):
            raise TypeError(f"interpret() returned {name} {value!r}, not a tuple of texts")
        elif isinstance(value, list):
            changes[name] = tuple(value)
    return found.replace(**changes) if changes else found


def _settled(intent: Intent, question: str, request: Request, limit: int) -> Intent:
    if intent.queries == (question,) and intent.question == question and request.mode is None:
        return intent
    met = {question.casefold(): question}
    for query in intent.queries:
        if stripped := query.strip():
            met.setdefault(stripped.casefold(), stripped)
    distinct = tuple(met.values())[:limit]
    kind = request.mode or intent.kind
    if distinct == intent.queries and kind == intent.kind and intent.question == question:
        return intent
    return intent.replace(question=question, queries=distinct, kind=kind)
