"""What questions ask for: a time, a number, a reason or a name; and whether a sentence has it."""

from __future__ import annotations

import re
from functools import lru_cache

from contextrouter.text.analysis import analyse

_KINDS = (
    (
        re.compile(
            r"(?i)^\W*(?:\w+\W+)?when (?:are|can|did|do|does|had|has|have|is|was|were|will)\b"
            r"|\bhow long ago\b|\b(?:what|which) (?:(?:year|date|day|month|time)s?|century)\b"
        ),
        re.compile(
            r"\b1\d{3}s?\b|\b20\d\ds?\b|\b\d{1,2}:\d\d\b|\b\d[\d,.]* ?(?:a\.?m|p\.?m|bp|bce?|ad|ce)\b|\bMay\b"
            r"|(?i:\b(?:january|february|march|april|june|july|august|september|october|november|december"
            r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|spring|summer|autumn|winter|noon|midnight|centur(?:y|ies)"
            r"|(?:second|minute|hour|day|week|month|year|decade)s?|daily|weekly|monthly|yearly|morning|afternoon|evening"
            r"|today|yesterday|tomorrow|o'clock"
            r"|at (?:\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve))\b)"
        ),
    ),
    (
        re.compile(
            r"(?i)\bhow (?:many|much|long|old|far|tall|high|large|big|fast|often)\b"
            r"|\bwhat (?:number|percentage)\b"
        ),
        re.compile(
            r"\d|(?i:\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|hundred|thousand|once|twice"
            r"|daily|weekly|monthly|every)\b)"
        ),
    ),
    (
        re.compile(r"(?i)\bwhy\b"),
        re.compile(r"(?i)\b(?:because|since|so that|due to|in order to|therefore|reason)\b"),
    ),
)
"""Questions, and what the sentence that answers one has."""
_ASKS_NAME = re.compile(
    r"(?i)\b(?:who|whom|whose)\b"
    r"|\b(?:which|what) (?:\w+ )?(?:company|person|individual|team|country|city|platform|firm|player)\b"
    r"|\b(?:which|what) (?:\w+ )?organi[sz]ation\b"
)
_ASKING_VERB = re.compile(
    r"(?i)\b(?:comes? from|looks? like|means?|happen(?:s|ed)?|(?:talk|speak|tell)s? (?:about|of)"
    r"|deals? with)\b"
)
NAME = re.compile(r"(?<=[a-z,;’'\"“(] )[A-Z][\w'’-]+|(?<=[A-Z][a-z] )[A-Z]\w+")
TIME, NUMBER, _ = _KINDS
_CONDITION = re.compile(r"(?i)\b(?:if|when|whenever|once|unless|as soon as)\b")


def has_answer(question: str, text: str) -> bool:
    """Whether a sentence has what a question asks for: a time, a number, a reason, or a name of its own."""
    has, asks_name = _asked_kind(question)
    if has is not None:
        return has.search(text) is not None
    return asks_name and any(name not in question for name in NAME.findall(text))


@lru_cache(maxsize=16)
def _asked_kind(question: str) -> tuple[re.Pattern[str] | None, bool]:
    """The pattern of what a question asks for, and whether it is a name."""
    has = next((has for asks, has in _KINDS if asks.search(question)), None)
    return has, has is None and _ASKS_NAME.search(question) is not None


def says_when(text: str) -> bool:
    """Whether a sentence names a time, or a condition: "When does it fail?" is answered by both."""
    return bool(TIME[1].search(text) or _CONDITION.search(text))


def terms_of_topic(question: str, terms: frozenset[str]) -> frozenset[str]:
    """The terms without verbs that an answer need not have: "Where does rain come from?"."""
    verbs = {term for match in _ASKING_VERB.finditer(question) for term in analyse(match[0])}
    return terms - verbs or terms


def kind_terms(question: str) -> frozenset[str]:
    """The words of a question that only say what it asks for, such as the day of "on which day"."""
    matches = (asks.search(question) for asks, _ in _KINDS)
    return frozenset(term for match in matches if match for term in analyse(match[0]))


def asks_for_kind(question: str) -> bool:
    """Whether a question says what it asks for: a time, a number, a reason or a name."""
    return any(asks.search(question) for asks in (_ASKS_NAME, *(asks for asks, _ in _KINDS)))


def asks_for_thing(question: str) -> bool:
    """Whether a question asks for a time, a number or a name: a sentence without one is no answer."""
    return any(asks.search(question) for asks in (_ASKS_NAME, TIME[0], NUMBER[0]))
