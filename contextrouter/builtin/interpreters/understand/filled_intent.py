"""Fills an intent with what a model said: checked once more, and never wider than the request. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from contextrouter.builtin.interpreters.understand.answer_shape import Choices, show_value
from contextrouter.builtin.interpreters.understand.query_variants import choose_variants, wording
from contextrouter.model import Intent, Period
from contextrouter.text.prompt_injection import clean

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-\w+)*\Z")
_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})(?:T00:00(?::00)?(?:Z|\+00:00)?)?\Z")
_MOST_ENTITIES, _LONGEST_ENTITY = 8, 100
_LONGEST_ATTRIBUTE = 60


class Reading(NamedTuple):
    """What an answer is read with: its choices, the turns before the question, the limits, the zone."""

    choices: Choices
    history: Sequence[Mapping[str, str]]
    max_characters: int
    max_query_characters: int
    zone: str


def fill_intent(intent: Intent, answer: Any, reading: Reading, notes: list[str]) -> Intent:
    """Return the intent with what an answer says; what it may not say is left out and noted."""
    values: dict[str, Any] = {name: getattr(answer, name, None) for name in reading.choices.fields}
    values = {name: value for name, value in values.items() if value is not None}
    changes: dict[str, Any] = {
        name: values[name] for name in ("kind", "should_search", "confidence") if name in values
    }
    language = _language_of(intent, values, notes)
    if "queries" in values:
        changes["queries"] = _queries(intent, values["queries"], reading, notes)
    if "text" in values and (text := _standalone(intent, values["text"], language, reading, notes)):
        changes["text"] = text
        if not _is_translated(language, reading):  # the question alone says too little: it stands behind
            changes["derived"] = (intent.question, *intent.derived)
    if "labels" in values:
        changes["labels"] = tuple(values["labels"])
    if "facets" in values:
        changes["facets"] = tuple(dict.fromkeys((*intent.facets, *values["facets"])))
    if "filters" in values:
        changes["filters"] = {**_filters(values["filters"]), **intent.filters}
    if "period" in values and (period := _period(values["period"], reading.zone, notes)):
        changes["period"] = period
    if "entities" in values:
        changes["entities"] = _entities(intent, values["entities"], reading, notes)
    if "attribute" in values and (attribute := _attribute(values["attribute"], notes)):
        changes["attribute"] = attribute
    return intent.replace(**changes) if changes else intent


def language_code(text: str) -> str:
    """Return the main part of a language code: "en" of "en-US"."""
    return text.strip().casefold().partition("-")[0]


def _language_of(intent: Intent, values: Mapping[str, Any], notes: list[str]) -> str:
    """Return the language of the question: as it is known, else the model's word; "": unknown."""
    if intent.language:
        return language_code(intent.language)
    code = str(values.get("language", "")).strip().casefold()
    if code and not _LANGUAGE.match(code):
        notes.append(f"language: {show_value(code)} is no code")
        return ""
    return language_code(code)


def _queries(intent: Intent, texts: Sequence[str], reading: Reading, notes: list[str]) -> tuple[str, ...]:
    """Return the queries with variants behind the question, before those that rules made."""
    choices, before = reading.choices, intent.queries or (intent.question,)
    variants = choose_variants(
        texts,
        intent.text,
        limit=choices.alternatives,
        longest=reading.max_query_characters,
        translated=bool(choices.language),
        notes=notes,
    )
    by_rules = [query for query in before if query in intent.derived]
    plain = [query for query in before if query not in intent.derived]
    return tuple(dict.fromkeys((*plain, *variants, *by_rules)))


def _standalone(intent: Intent, text: str, language: str, reading: Reading, notes: list[str]) -> str:
    """Return a translation, or the question on its own; "" where neither is called for."""
    wanted, translated = reading.choices.language, _is_translated(language, reading)
    if not translated and not reading.history:
        if wanted and not language:
            notes.append("text: the language of the question is unknown, so it is not translated")
        return ""
    line, problem = wording(text, intent.text, longest=reading.max_characters, translated=translated)
    if problem:
        notes.append(f"text: {show_value(text)} {problem}")
        return ""
    return line


def _is_translated(language: str, reading: Reading) -> bool:
    """Whether a text is a translation: the question is in another language than the corpus."""
    corpus_language = reading.choices.language
    return bool(corpus_language) and bool(language) and language != language_code(corpus_language)


def _filters(chosen: Any) -> dict[str, Any]:
    values = {key: list(value) for key, value in chosen.model_dump(by_alias=True).items() if value}
    return {key: value[0] if len(value) == 1 else value for key, value in values.items()}


def _period(days: Any, zone: str, notes: list[str]) -> Period | None:
    try:
        start, end = _day(days.start), _day(days.end)
        if start is None and end is None:
            return None
        if start is not None and end is not None and start > end:
            raise ValueError("it ends before it starts")
        return Period(start=start, end=end, zone=zone)
    except Exception as error:  # days that are none, or in the wrong order
        notes.append(f"period: {show_value(f'{days.start} to {days.end}')} is dropped: {error}")
        return None


def _day(text: str | None) -> date | None:
    if text is None or not text.strip():
        return None
    if not (match := _DAY.match(text.strip())):
        raise ValueError("a day is written as YYYY-MM-DD")
    return date.fromisoformat(match[1])


def _entities(intent: Intent, names: Sequence[str], reading: Reading, notes: list[str]) -> tuple[str, ...]:
    """Return the entities with those that stand in the question or the turns before it."""
    texts = [intent.question, intent.text, *(turn["content"] for turn in reading.history)]
    source = " ".join(" ".join(texts).casefold().split())
    named = {name.casefold(): name for name in reversed(intent.entities)}
    for name in [" ".join(clean(name)[0].split()) for name in names]:
        if not name or len(name) > _LONGEST_ENTITY or name.casefold() not in source:
            notes.append(f"entities: {show_value(name)} is not in the question")
        elif len(named) < len(intent.entities) + _MOST_ENTITIES:
            named.setdefault(name.casefold(), name)
    return (*intent.entities, *(name for name in named.values() if name not in intent.entities))


def _attribute(text: str, notes: list[str]) -> str:
    line = " ".join(clean(text)[0].split())
    if len(line) > _LONGEST_ATTRIBUTE:
        notes.append(f"attribute: {show_value(line)} is too long")
        return ""
    return line
