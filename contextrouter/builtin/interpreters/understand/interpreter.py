"""The interpreter `understand`: asks one language model once for whatever the question leaves open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Self, get_args
from zoneinfo import ZoneInfo

from contextrouter.builtin.interpreters.understand.answer_shape import Choices, Fill, make_shape
from contextrouter.builtin.interpreters.understand.filled_intent import Reading, fill_intent, language_code
from contextrouter.builtin.interpreters.understand.question_messages import PROMPT_VERSION, make_messages
from contextrouter.builtin.shared.structured_output import AnswerError, ask, check_pydantic
from contextrouter.contracts import FAILURE, Generator, Interpreter, InterpreterContext
from contextrouter.model import Intent, Request
from contextrouter.runtime.lru import Lru
from contextrouter.text.prompt_injection import clean

NOTE = "understand"
"""Key in `Intent.attributes`: what of the model's answer was dropped, and why."""
_KEPT_ANSWERS = 1_000
_SHARE = 0.25  # of a request's own deadline; all interpreters together have 0.3
_OTHERWISE = ("kind", "confidence")


class Understand(Interpreter):
    """Asks `generator` for whatever `fill` lists, in one call, as an object of closed sets.

    `alternatives` wordings of at most `max_query_characters` are asked for beside the question, of which
    `max_characters` are sent, with the last `history` turns. `filters` maps metadata keys to allowed values,
    `facets` lists what may be counted. With `corpus_language`, a question in another language is translated.
    A kind is one of the routes with a description, a label one of those the intent has. `otherwise` is the
    kind and the confidence of the intent where the model fails, in `answer_seconds` at most.
    """

    switch = "use_enhancements"

    def __init__(
        self,
        *,
        generator: Generator,
        fill: Sequence[Fill] = ("queries",),
        alternatives: int = 2,
        max_characters: int = 500,
        max_query_characters: int = 300,
        history: int = 4,
        corpus_language: str = "",
        filters: dict[str, list[str]] | None = None,
        facets: Sequence[str] = (),
        otherwise: dict[str, Any] | None = None,
        answer_seconds: float = 2.5,
        timezone: str = "",
        enable_multi_query: bool = True,
    ) -> None:
        self._generator, self._fill = generator, _check_fill(fill)
        numbers = {"alternatives": alternatives, "history": history}
        limits = {"max_characters": max_characters, "max_query_characters": max_query_characters}
        for name, number in {**numbers, **limits, "answer_seconds": answer_seconds}.items():
            if number < 0 or (name not in numbers and number <= 0):
                raise ValueError(f"{name} {number!r} is too small.")
        self._alternatives, self._history = alternatives, history
        self._max_characters, self._max_query_characters = max_characters, max_query_characters
        self._language, self._seconds = corpus_language.strip(), answer_seconds
        self._filters = {key: tuple(values) for key, values in (filters or {}).items() if values}
        self._facets = tuple(dict.fromkeys(facets))
        self._otherwise = _check_otherwise(otherwise or {})
        self._zone = _check_zone(timezone)
        self._multi_query = enable_multi_query
        if set(self._fill) == {"queries"}:  # nothing is left of it without them
            self.switch = "enable_multi_query"
        self._answers = Lru[bytes, tuple[Any, tuple[str, ...]]](_KEPT_ANSWERS)
        self._opens_generator = False

    @classmethod
    def example(cls) -> Self:
        """With a model of its own: a server on this machine, which runs from open() to aclose()."""
        from contextrouter.builtin.generators.openai import OpenAI  # nobody else needs it

        fill: tuple[Fill, ...] = ("queries", "text", "period", "entities", "should_search", "confidence")
        interpreter = cls(generator=OpenAI.example(), fill=fill)
        interpreter._opens_generator = True
        return interpreter

    async def open(self) -> None:
        """Raises MissingDependency without pydantic."""
        check_pydantic()
        if self._opens_generator:
            await self._generator.open()

    async def aclose(self) -> None:
        """Close the generator of an example, and forget its answers."""
        self._answers.clear()
        if self._opens_generator:
            await self._generator.aclose()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return a fuller intent; where the model fails, the intent with `otherwise`, and why it failed."""
        request = context.request
        now = context.now.astimezone(self._zone) if self._zone else context.now
        question = clean(intent.text)[0].strip()[: self._max_characters]  # as it reads on its own
        history = self._turns(request)
        choices = self._choices(intent, context, bool(history))
        if not choices.fields or not question:
            return intent
        messages = make_messages(choices, question, history, now)
        seconds = min(self._seconds, _SHARE * request.deadline if request.deadline else self._seconds)
        try:
            answer, dropped = await self._ask(choices, messages, now, seconds)
        except AnswerError as error:
            return self._give_up(intent, context, str(error))
        reading = Reading(choices, history, self._max_characters, self._max_query_characters, _zone_name(now))
        notes = list(dropped)
        intent = fill_intent(intent, answer, reading, notes)
        return _with_attribute(intent, NOTE, "; ".join(notes)) if notes else intent

    def _choices(self, intent: Intent, context: InterpreterContext, follows: bool) -> Choices:
        """Return what is left to ask for, and what the model may choose from."""
        request = context.request
        kinds = {name: text for name, text in context.routes.items() if text}
        keys = {
            k: v for k, v in self._filters.items() if k not in request.filters and k not in intent.filters
        }
        facets = tuple(facet for facet in self._facets if facet not in intent.facets)
        language = language_code(self._language)
        foreign = bool(language) and (not intent.language or language_code(intent.language) != language)
        is_open = {
            "queries": self._multi_query and self._alternatives > 0,
            "text": foreign or (follows and intent.text == intent.question),
            "kind": bool(kinds) and request.mode is None and intent.kind == "default",
            "labels": bool(intent.labels) and not request.labels,
            "filters": bool(keys),
            "period": intent.period is None and request.period is None,
            "attribute": intent.attribute is None,
            "facets": bool(facets),
            "should_search": intent.should_search,
        }
        fields: list[str] = [name for name in self._fill if is_open.get(name, True)]
        if fields == ["confidence"] and len(self._fill) > 1:
            fields = []  # in nothing
        if "text" in fields and foreign and not intent.language:
            fields.append("language")
        return Choices(tuple(fields), self._alternatives, kinds, intent.labels, keys, facets, self._language)

    def _turns(self, request: Request) -> list[dict[str, str]]:
        """Return the last turns before the question, each cut as the question is."""
        turns = [turn for turn in request.history if turn.get("role") in ("user", "assistant")]
        return [
            {"role": turn["role"], "content": clean(turn["content"])[0][: self._max_characters]}
            for turn in turns[-self._history :]
            if self._history and turn["content"].strip()
        ]

    async def _ask(
        self, choices: Choices, messages: Sequence[Mapping[str, str]], now: datetime, seconds: float
    ) -> tuple[Any, tuple[str, ...]]:
        """Return the answer with what it dropped: that of an equal question on this day, or a new one."""
        model = getattr(self._generator, "model", "")
        inputs = [PROMPT_VERSION, model, messages, choices, now.date().isoformat(), _zone_name(now)]
        key = sha256(json.dumps(inputs).encode()).digest()
        entry = self._answers.get(key)
        if entry is None:
            dropped: list[str] = []
            answer = await ask(self._generator, messages, make_shape(choices, dropped), seconds=seconds)
            entry = (answer, tuple(dict.fromkeys(dropped)))
            self._answers.put(key, entry)
        return entry

    def _give_up(self, intent: Intent, context: InterpreterContext, why: str) -> Intent:
        """Return the plain question with `otherwise`, and why the model gave nothing."""
        changes: dict[str, Any] = dict(self._otherwise)
        kind = changes.get("kind", "default")
        if context.request.mode is not None or intent.kind != "default":
            changes.pop("kind", None)
        elif kind != "default" and kind not in context.routes:
            changes.pop("kind")
            why += f" There is no route {kind!r}, so it is not taken."
        return _with_attribute(intent.replace(**changes), FAILURE, why)


def _with_attribute(intent: Intent, key: str, value: str) -> Intent:
    return intent.replace(attributes={**intent.attributes, key: value})


def _check_fill(fill: Sequence[Fill]) -> tuple[Fill, ...]:
    fields = get_args(Fill)
    if isinstance(fill, str) or not fill:
        raise ValueError(f"fill {fill!r} is not a list of fields. Give some of {', '.join(fields)}.")
    if wrong := [name for name in fill if name not in fields]:
        raise ValueError(f"fill: {wrong[0]!r} is no field. Fields: {', '.join(fields)}.")
    return tuple(dict.fromkeys(fill))


def _check_otherwise(otherwise: Mapping[str, Any]) -> dict[str, Any]:
    if wrong := [key for key in otherwise if key not in _OTHERWISE]:
        raise ValueError(f"otherwise: {wrong[0]!r} is neither 'kind' nor 'confidence'.")
    kind, confidence = otherwise.get("kind", ""), otherwise.get("confidence", 1.0)
    if not isinstance(kind, str):
        raise ValueError(f"otherwise: kind {kind!r} is not the name of a route.")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise ValueError(f"otherwise: confidence {confidence!r} is not a number from 0 to 1.")
    return dict(otherwise)


def _check_zone(timezone: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(timezone) if timezone else None
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"timezone {timezone!r} is not a time zone. Use a name such as 'Europe/Berlin'."
        ) from None


def _zone_name(now: datetime) -> str:
    return getattr(now.tzinfo, "key", None) or "UTC"
