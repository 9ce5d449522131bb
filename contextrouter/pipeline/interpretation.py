"""Query interpretation (step 1): runs the interpreters, which turn the request into an intent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import compress
from operator import attrgetter, is_not

from contextrouter.contracts import FAILURE, InterpreterContext
from contextrouter.errors import PluginError, RequestRefused
from contextrouter.filters import own_filters
from contextrouter.model import Clarification, Intent, Period, Request, RequestFields
from contextrouter.pipeline.call_limits.blocking import Steps
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.pipeline.planning.restrictions import may_ask
from contextrouter.runtime.masking import mask
from contextrouter.runtime.plugin_calls import as_plain, text_of
from contextrouter.text.analysis import says_something

FAILED = "failed_interpreters"
"""Key in `Intent.attributes`: name of each interpreter that failed and was skipped -> why."""


def request_of(question: str | Request, fields: RequestFields) -> Request:
    """Return the request of a call; `fields` that are not None override a Request's own.

    Raises RequestRefused for a blank question.
    """
    request = question if isinstance(question, Request) else Request(question=question)
    if not request.question.strip():
        raise RequestRefused("The question is empty. Ask with at least one word.")
    changes = {name: value for name, value in fields.items() if value is not None}
    return request.replace(**changes) if changes else request


async def interpret(
    request: Request, engine: Engine, deadline: Deadline | None = None, *, now: datetime | None = None
) -> Intent:
    """Return the intent of `request`. The question is its first query; another text to search is the second.

    An interpreter that fails or is late (its own `timeout`, or `deadline`) is skipped and named in
    `attributes`, unless its `on_error` is "raise". Raises RequestRefused for a blank question, or when an
    interpreter refuses.
    """
    question = request.question.strip()
    if not question:
        raise RequestRefused("The question is empty. Ask with at least one word.")
    deadline = deadline or Deadline()
    intent = Intent(question=question, queries=(question,), kind=request.mode or "default")
    failed: dict[str, str] = {}
    context = _context(request, engine, now)
    for name, interpreter, keys in engine.interpreters:
        try:
            await engine.ensure_open("interpreter", name, deadline)
            until = deadline.within(keys.timeout)
            steps = Steps(interpreter.interpret(intent, context))
            intent = _check_types(
                await until.run(steps, engine.limits.abandoned.of("interpreter", name)), intent
            )
            if why := steps.blocked(until):
                failed[name] = why
            if failure := intent.attributes.get(FAILURE):  # it went on without its model: the intent stays
                others = {key: value for key, value in intent.attributes.items() if key != FAILURE}
                intent = intent.replace(attributes=others)
                raise PluginError(str(failure))
        except RequestRefused as refusal:
            refusal.interpreter = name
            raise
        except Exception as error:
            why = (
                "timed out"
                if isinstance(error, TimeoutError)
                else mask(f"{type(error).__name__}: {text_of(error)}", engine.secrets)
            )
            if keys.on_error == "raise":
                message = f"Interpreter {name!r} failed: {why}."
                raise PluginError(message, plugin=name, kind="interpreter") from error
            failed[name] = why
    if failed or FAILED in intent.attributes:
        intent = intent.replace(attributes={**intent.attributes, FAILED: failed})
    if intent.should_search and intent.confidence < engine.settings.rag.least_confidence:
        intent = intent.replace(should_search=False)
    if intent.should_search and not _demands(request) and not _says_something(intent):
        intent = intent.replace(should_search=False)
    return _with_distinct_queries(intent, question, request, engine.settings.rag.queries)


def _says_something(intent: Intent) -> bool:
    return any(map(says_something, (intent.text, *intent.queries)))


def _demands(request: Request) -> bool:
    """Whether a request says more than its question, such as a filter or a leg: then any question will do."""
    demands = (request.legs, request.kinds, request.filters, request.labels, request.period, request.mode)
    return any(demands)


def _context(request: Request, engine: Engine, now: datetime | None) -> InterpreterContext:
    names, scope, sources = request.sources, request.scope, dict(engine.sources)
    if names is not None or scope is not None:
        sources = {
            name: source
            for name, source in sources.items()
            if (names is None or name in names) and may_ask(scope, engine.source_keys[name])
        }
    return InterpreterContext(
        request=request.replace(filters=own_filters(request.filters)) if request.filters else request,
        routes={kind: route.description for kind, route in engine.settings.routes.items()},
        sources=sources,
        now=now or engine.now(),
    )


def failures(intent: Intent) -> str:
    """Which interpreters failed, for the trace; empty: none."""
    failed = intent.attributes.get(FAILED)
    return "failed: " + "; ".join(f"{name}: {why}" for name, why in failed.items()) if failed else ""


_LISTS = ("queries", "derived", "concepts", "labels", "entities", "facets")
_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "text": (str, "a text"),
    "kind": (str, "a text"),
    "language": ((str, type(None)), "a text or None"),
    "lookup": ((str, type(None)), "a text or None"),
    "period": ((Period, type(None)), "a Period or None"),
    "filters": (Mapping, "a mapping"),
    "attribute": ((str, type(None)), "a text or None"),
    "confidence": ((int, float), "a number"),
    "clarify": ((Clarification, type(None)), "a Clarification or None"),
    "attributes": (Mapping, "a mapping"),
}
_FIELDS = (*_LISTS, *_TYPES)
_values = attrgetter(*_FIELDS)


def _check_types(intent: object, before: Intent) -> Intent:
    """Return an interpreter's intent if every later step can work with it. Raises TypeError that names the
    field.
    """
    if not isinstance(intent, Intent):
        raise TypeError(f"interpret() returned {type(intent).__name__}, not Intent")
    changes = {}
    for name in compress(_FIELDS, map(is_not, _values(intent), _values(before))):
        value = getattr(intent, name)
        if name in _TYPES:
            types, wanted = _TYPES[name]
            if not isinstance(value, types):
                raise TypeError(f"interpret() returned {name} {value!r}, not {wanted}")
            continue
        texts = as_plain(value)
        if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"interpret() returned {name} {value!r:.200}, not a tuple of texts")
        if type(value) is not tuple:
            changes[name] = tuple(texts)
    return intent.replace(**changes) if changes else intent


def _with_distinct_queries(intent: Intent, question: str, request: Request, limit: int) -> Intent:
    """Put the question first and the text that is searched behind it, leave out repeated and blank queries,
    keep at most `limit`; `mode` names the route.

    Beside another text the question itself may be named in `derived`, to stand behind it.
    """
    text = intent.text.strip() or question
    distinct = {question.casefold(): question}
    for query in (text, *intent.queries):
        if stripped := query.strip():
            distinct.setdefault(stripped.casefold(), stripped)
    text = distinct[text.casefold()]
    queries, kind = (
        tuple(distinct.values())[: max(limit, 1 if text == question else 2)],
        request.mode or intent.kind,
    )
    by_rules = {query.strip().casefold() for query in intent.derived} - {text.casefold()}
    derived = tuple([query for query in queries if query.casefold() in by_rules]) if by_rules else ()
    before = (intent.question, intent.text, intent.queries, intent.derived, intent.kind)
    if before == (question, text, queries, derived, kind):
        return intent
    return intent.replace(question=question, text=text, queries=queries, derived=derived, kind=kind)
