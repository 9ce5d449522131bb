"""Answerability: how well a context can answer its question, judged from its text.

Below the nouns, one of which says it of itself when it is asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from contextrouter.text.query_syntax import drop_exclusions
from contextrouter.text.scripts import UNSPACED
from contextrouter.text.stop_words import STOP_WORDS

Level = Literal["strong", "weak", "none", "skipped"]
_WORD = re.compile(r"\w+")
_RUN = f"[{UNSPACED}]+"
"""A run of a script without spaces: a pair of its characters is looked for in place of a word."""
NEEDED, LEAST, SLOPE = (0.65, 9.0), (0.4, 7.0), 3.0
"""The share of a question's n content words that one document holds: at least min(first, (second ÷
n)^1.5).
"""
_LEGS_BY_MEANING = frozenset(("vector", "keywords"))
_INFLECTED = frozenset(("", "s", "es", "d", "ed", "ing"))
_LONGEST = 3


class Answerability(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How well the context can answer, and what was read to say so."""

    level: Level
    confidence: float
    reason: str


def judged(question: str, envelopes: Sequence[Any], *, searched: bool = True) -> Answerability:
    """How well `envelopes` can answer: by the share of the question's content words that one of the best
    three documents holds.

    The more words a question has, the fewer of them stand together in one text. "strong": the share reaches
    `NEEDED`; "none": it does not even reach `LEAST`, and no leg by meaning found anything; else "weak".
    `confidence` is how many of as many questions with and without an answer had one at that share. All are
    fitted to judged collections; docs/ranking-measurements.md has the figures.
    """
    if not searched:
        return Answerability(level="skipped", confidence=0.0, reason="the question needs no search")
    if not envelopes:
        return Answerability(level="none", confidence=0.0, reason="no document was found")
    words = _content_words(drop_exclusions(question).casefold())
    if not words:
        return Answerability(
            level="weak", confidence=0.0, reason="the question has no content words to look for"
        )
    held: set[str] = set()
    for document in [envelope.document for envelope in envelopes[:3]]:
        text = " ".join((document.title, *document.path, document.content)).casefold()
        held = max(held, {word for word in words if _holds(text, word)}, key=len)
        if len(held) == len(words):
            break
    share = len(held) / len(words)
    needed, least = (_reached(len(words), *bound) for bound in (NEEDED, LEAST))
    level: Level = (
        "strong" if share >= needed else "weak" if share >= least or _by_meaning(envelopes) else "none"
    )
    enough = math.ceil(needed * len(words))
    reason = (
        f"{len(held)} of {len(words)} content words of the question are in one of the best three, {enough}"
        " speak for an answer"
    )
    if missing := sorted(words - held):
        reason += f"; missing: {', '.join(missing)}"
    return Answerability(
        level=level, confidence=1.0 / (1.0 + math.exp(-SLOPE * (share / needed - 1.0))), reason=reason
    )


def _by_meaning(envelopes: Sequence[Any]) -> bool:
    return any(seal.leg in _LEGS_BY_MEANING for envelope in envelopes for seal in envelope.provenance)


def _reached(words: int, most: float, half: float) -> float:
    """The share that a question of so many content words is asked for."""
    share: float = (half / words) ** 1.5
    return min(most, share)


def _content_words(question: str) -> set[str]:
    words = {*_WORD.findall(question)} - STOP_WORDS
    if question.isascii():
        return words
    for word in [word for word in words if not word.isascii() and re.search(_RUN, word)]:
        words.remove(word)
        words.update(part for part in re.sub(_RUN, " ", word).split() if part not in STOP_WORDS)
        for run in re.findall(_RUN, word):
            words.update([run[at : at + 2] for at in range(max(1, len(run) - 1))])
    return words


def _holds(text: str, word: str) -> bool:
    """Whether `text` holds `word` as a word of its own, in the singular or with a common ending; of a pair of
    signs, anywhere.
    """
    if not word.isascii() and re.match(_RUN, word):
        return word in text
    stem = word[:-1] if len(word) > 3 and word.endswith("s") else word
    at = text.find(stem)
    while at >= 0:
        if not at or not text[at - 1].isalnum():
            end = last = at + len(stem)
            while last - end <= _LONGEST and text[last : last + 1].isalnum():
                last += 1
            if end == last or text[end:last] in _INFLECTED:
                return True
        at = text.find(stem, at + len(stem))
    return False
