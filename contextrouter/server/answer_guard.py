"""Checks of a generated answer: it has citations, and is in the language script of the question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from contextrouter.model import Context
from contextrouter.text.scripts import script_of

AGAIN = (
    "Write that answer again, in the language of my question, and put behind every statement the number of"
    " the context block it comes from, in brackets. If the context does not answer the question, say so."
)
_MIN_LETTERS = 4


def check_answer(question: str, answer: str, cited: Sequence[int], context: Context) -> Mapping[str, bool]:
    """Check an answer. Returns the name of each check that applies, and whether the answer passes it."""
    checks = {}
    if context.envelopes:
        checks["cited"] = bool(cited)
    question_script, answer_script = script(question), script(answer)
    if question_script and answer_script:
        checks["language"] = question_script == answer_script
    return checks


def script(text: str) -> str:
    """Return the script of most letters in a text: LATIN, CYRILLIC, …; CJK for Chinese and Japanese.

    Returns "" for a text with too few letters.
    """
    names = Counter(script_of(letter) for letter in text if letter.isalpha())
    for kana in ("HIRAGANA", "KATAKANA"):
        names["CJK"] += names.pop(kana, 0)
    name, count = names.most_common(1)[0] if names else ("", 0)
    return name if count >= _MIN_LETTERS or (name == "CJK" and count) else ""
