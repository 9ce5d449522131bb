"""Query expansion and query rewriting without a model. Also date phrases and entities of a question."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from contextrouter.contracts import Interpreter, InterpreterContext
from contextrouter.model import Intent, Period
from contextrouter.text.query_syntax import drop_exclusions, parse, write_exclusions
from contextrouter.text.stop_words import REQUEST_WORDS

_WORD = re.compile(r"\w+(?:[-'’.&+#]\w+)*[+#]*")
_QUOTED = re.compile(r"\"([^\"]{2,80})\"|“([^”]{2,80})”|«([^»]{2,80})»|„([^“”]{2,80})[“”]")
_SENTENCE = re.compile(r"(?<=[.!?;。！？；])\s*")
_BETWEEN = re.compile(
    r"\b(?:differences?\s+between|compare[sd]?|relations?(?:hips?)?\s+between)\s+(.+?)\s+(?:and|with|to)\s+(.+)",
    re.I,
)
_VERSUS = re.compile(r"^(.*?\w)\s+(?:vs\.?|versus|compared\s+(?:to|with)|as\s+opposed\s+to)\s+(.+)$", re.I)
_ISO = r"(\d{4}-\d{2}-\d{2})"
_READ = 2_000  # characters of a question in which aspects are looked for; the question itself is asked whole
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}


class Normalize(Interpreter):
    """Splits the question into aspects, names its entities, and reads its period; no model, nothing leaves
    the process.

    `max_queries` counts the original question. `extract_period` reads "last 7 days", "yesterday", "since
    2026-01-31" and the like as a filter on the time of documents, on days in `timezone`; it is off by
    default, for a date in a question is not always one of its documents.
    """

    def __init__(self, *, max_queries: int = 3, extract_period: bool = False, timezone: str = "UTC") -> None:
        if not 1 <= max_queries <= 3:
            raise ValueError(f"max_queries {max_queries!r} is not between 1 and 3.")
        try:
            self._zone = ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"timezone {timezone!r} is not a time zone. Use a name such as 'Europe/Berlin'."
            ) from None
        self._timezone, self._max_queries, self._extract_period = timezone, max_queries, extract_period

    @classmethod
    def example(cls) -> Self:
        """As it is by default."""
        return cls()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with queries, entities and, where asked for, a period added to those it has."""
        question = intent.question
        before = intent.queries or (question,)
        queries = _distinct([*before, *aspects(question)])[: self._max_queries]
        derived = (*intent.derived, *(query for query in queries if query not in before))
        without_syntax = re.sub(r"\bOR\b", "|", drop_exclusions(question))
        entities = _distinct([*intent.entities, *entity_names(without_syntax)])
        period = intent.period
        if self._extract_period and period is None:
            period = period_of(question, context.now.astimezone(self._zone).date(), self._timezone)
        return intent.replace(
            queries=tuple(queries), derived=derived, entities=tuple(entities), period=period
        )


def _distinct(texts: Iterable[str]) -> list[str]:
    return list({text.casefold(): text for text in reversed(list(texts)) if text.strip()}.values())[::-1]


def aspects(question: str) -> list[str]:
    """Queries beside the question itself: its parts where it has several; else its content words, then its
    longest phrase.

    Each has the question's exclusions, and the phrases of its part: the router lets a part without them count
    only where the question's phrases found nothing.
    """
    question = question[:_READ]
    parsed = parse(question)
    plain = drop_exclusions(question)
    queries = _keep_phrases(plain) if parsed.required else _plain_aspects(plain)
    return [" ".join(filter(None, (query, write_exclusions(parsed.excluded)))) for query in queries]


def _keep_phrases(question: str) -> list[str]:
    """Return the content words and the phrases of each part; nothing where OR offers a choice."""
    if any(len(part.alternatives) > 1 for part in parse(question).parts):
        return []
    parts = _parts(question)
    if any(part.count('"') % 2 for part in parts):  # an end of a sentence within a phrase
        parts = [question]
    queries = []
    for part in parts:
        texts = [(entry.alternatives[0], entry.required) for entry in parse(part).parts]
        words = [f'"{text}"' if required else " ".join(_content(text)) for text, required in texts]
        queries.append(" ".join(filter(None, words)))
    return [query for query in queries if query]


def _plain_aspects(question: str) -> list[str]:
    parts = _parts(question)
    if len(parts) > 1:
        queries = [" ".join(_content(part)) for part in parts]
        return [query for query in queries if query]
    phrases = _content_runs(question)
    words = " ".join(_content(question))
    longest = max(phrases, key=lambda phrase: len(phrase.split()), default="")
    phrase_queries = [longest] if len(longest.split()) > 1 else []
    return [query for query in (words, *phrase_queries) if query]


def _parts(question: str) -> list[str]:
    compared = _BETWEEN.search(question) or _VERSUS.search(question.strip(" ?!."))
    if compared:
        return [part for part in compared.groups() if _content(part)]
    sentences = [part for part in _SENTENCE.split(question) if len(_content(part)) > 1]
    return sentences if len(sentences) > 1 else [question]


def _content(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word.casefold() not in REQUEST_WORDS]


def _content_runs(text: str) -> list[str]:
    """Runs of content words that stand together."""
    runs: list[list[str]] = [[]]
    end = 0
    for match in _WORD.finditer(text):
        if text[end : match.start()].strip():
            runs.append([])
        end = match.end()
        if match.group().casefold() in REQUEST_WORDS:
            runs.append([])
        else:
            runs[-1].append(match.group())
    return [" ".join(run) for run in runs if run]


def entity_names(text: str) -> list[str]:
    """Quoted phrases and runs of capitalised words; a first word counts when more than its first letter says
    so.
    """
    entities = ["".join(match) for match in _QUOTED.findall(text)]
    for sentence in _SENTENCE.split(_QUOTED.sub(" | ", text)):
        run: list[str] = []
        words = list(_WORD.finditer(sentence))
        for index, match in enumerate(words):
            word = match.group()
            gap = sentence[words[index - 1].end() : match.start()] if index else ""
            if run and gap.strip():
                entities.append(" ".join(run))
                run = []
            if word[0].isupper() and not (word.casefold() in REQUEST_WORDS and (index == 0 or word == "I")):
                run.append(word)
            elif run:
                entities.extend(_name_in_run(run, words, index))
                run = []
        entities.extend(_name_in_run(run, words, len(words)))
    return _distinct(entities)


def _name_in_run(run: list[str], words: list[re.Match[str]], end: int) -> list[str]:
    if not run:
        return []
    begins_sentence = end == len(run)  # the run began the sentence
    if begins_sentence and len(run) == 1 and run[0][1:].islower() and len(words) > 1:
        return []  # capitalised because it comes first
    return [" ".join(run)]


def period_of(text: str, today: date, zone: str) -> Period | None:
    """The days a question restricts itself to, counted from `today`; None when it names none."""
    low = text.casefold()
    if match := re.search(rf"\b(?:between|from)\s+{_ISO}\s+(?:and|to|until)\s+{_ISO}", low):
        return _period(match.group(1), match.group(2), zone)
    if match := re.search(rf"\b(?:since|from|after)\s+{_ISO}", low):
        after = timedelta(days=1) if match.group(0).startswith("after") else timedelta()
        return _period(match.group(1), None, zone, shift_start=after)
    if match := re.search(rf"\b(before|until|by)\s+{_ISO}", low):
        before = timedelta(days=-1) if match.group(1) == "before" else timedelta()
        return _period(None, match.group(2), zone, shift_end=before)
    if match := re.search(rf"\bon\s+{_ISO}", low):
        return _period(match.group(1), match.group(1), zone)
    if match := re.search(r"\b(?:last|past|previous)\s+(\d{1,4})\s+(day|week|month|year)s?\b", low):
        return Period(
            start=today - timedelta(days=int(match.group(1)) * _UNITS[match.group(2)]), end=today, zone=zone
        )
    return _phrase_period(low, today, zone)


def _phrase_period(low: str, today: date, zone: str) -> Period | None:
    monday = today - timedelta(days=today.weekday())
    month_start = today.replace(day=1)
    last_month = month_start - timedelta(days=1)
    periods = {
        "today": (today, today),
        "yesterday": (today - timedelta(days=1),) * 2,
        "this week": (monday, today),
        "last week": (monday - timedelta(days=7), monday - timedelta(days=1)),
        "this month": (month_start, today),
        "last month": (last_month.replace(day=1), last_month),
        "this year": (today.replace(month=1, day=1), today),
        "last year": (date(today.year - 1, 1, 1), date(today.year - 1, 12, 31)),
        "recently": (today - timedelta(days=7), today),
        "recent": (today - timedelta(days=7), today),
    }
    for phrase, (start, end) in periods.items():
        if re.search(rf"\b{phrase}\b", low):
            return Period(start=start, end=end, zone=zone)
    return None


def _period(
    start: str | None,
    end: str | None,
    zone: str,
    *,
    shift_start: timedelta = timedelta(),
    shift_end: timedelta = timedelta(),
) -> Period | None:
    try:
        start_day = date.fromisoformat(start) + shift_start if start else None
        end_day = date.fromisoformat(end) + shift_end if end else None
    except (ValueError, OverflowError):
        return None  # 2026-02-31 is no day
    return Period(start=start_day, end=end_day, zone=zone)
