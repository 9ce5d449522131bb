"""Whether an answer is what it should be: cited, and in the script of the question. Not whether it is
right.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from contextrouter.model import Context

AGAIN = (
    "Write that answer again, in the language of my question, and put behind every statement the number of"
    " the context block it comes from, in brackets. If the context does not answer the question, say so."
)
_ENOUGH = 4


def judged(question: str, answer: str, cited: Sequence[int], context: Context) -> Mapping[str, bool]:
    """What was looked at -> whether it is as it should be."""
    found = {}
    if context.envelopes:
        found["cited"] = bool(cited)
    asked, written = script(question), script(answer)
    if asked and written:
        found["language"] = asked == written
    return found


def script(text: str) -> str:
    """The script that most letters of a text are of: LATIN, CYRILLIC, …; of Chinese and Japanese texts CJK.
    "": too few.
    """
    names = Counter(
        unicodedata.name(sign, "?").split(" ")[0].split("-")[0] for sign in text if sign.isalpha()
    )
    for kana in ("HIRAGANA", "KATAKANA"):
        names["CJK"] += names.pop(kana, 0)
    name, count = names.most_common(1)[0] if names else ("", 0)
    return name if count >= _ENOUGH or (name == "CJK" and count) else ""
