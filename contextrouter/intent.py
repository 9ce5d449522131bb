"""Step 1: what is really asked. `interpret` turns a request into an intent, through the interpreters in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from contextrouter.contracts import Interpreter
from contextrouter.errors import PluginError, RequestRefused
from contextrouter.model import Intent, Request
from contextrouter.settings import InterpreterKeys

FAILED = "failed_interpreters"
"""Key in `Intent.attributes`: name of each interpreter that failed and was passed over -> why."""


async def interpret(
    request: Request,
    interpreters: Mapping[str, Interpreter],
    *,
    keys: Mapping[str, InterpreterKeys] | None = None,
    deadline: float | None = None,
    max_queries: int = 3,
) -> Intent:
    """Return the intent of `request`. The original question is always its first query.

    An interpreter that fails or is late (own `timeout`, or `deadline` on the loop's clock) is passed over and named in
    `attributes`, unless its `on_error` is "raise". Raises RequestRefused for a blank question, or when an interpreter refuses.
    """
    question = request.question.strip()
    if not question:
        raise RequestRefused("The question is empty. Ask with at least one word.")
    intent = Intent(question=question, queries=(question,), kind=request.mode or "default")
    for name, interpreter in interpreters.items():
        own = (keys or {}).get(name) or InterpreterKeys()
        if not own.enabled:
            continue
        try:
            async with asyncio.timeout_at(_earlier(deadline, own.timeout)):
                found = await interpreter.interpret(intent)
            if not isinstance(found, Intent):
                raise TypeError(f"interpret() returned {type(found).__name__}, not Intent")
            intent = found
        except RequestRefused:
            raise
        except Exception as error:
            if own.on_error == "raise":
                raise PluginError(f"Interpreter {name!r} failed: {error!r}.", plugin=name, kind="interpreter") from error
            failed = {**intent.attributes.get(FAILED, {}), name: _why(error)}
            intent = intent.replace(attributes={**intent.attributes, FAILED: failed})
    return _settled(intent, question, request, max_queries)


def _earlier(deadline: float | None, timeout: float | None) -> float | None:
    if timeout is None:
        return deadline
    own = asyncio.get_running_loop().time() + timeout
    return own if deadline is None else min(own, deadline)


def _why(error: Exception) -> str:
    return "timed out" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"


def _settled(intent: Intent, question: str, request: Request, limit: int) -> Intent:
    queries = (question, *(query.strip() for query in intent.queries))
    distinct = tuple({query.casefold(): query for query in reversed(queries) if query}.values())[::-1][:limit]
    kind = request.mode or intent.kind
    if distinct == intent.queries and kind == intent.kind and intent.question == question:
        return intent
    return intent.replace(question=question, queries=distinct, kind=kind)
