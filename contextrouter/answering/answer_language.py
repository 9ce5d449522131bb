"""The language of an answer, compared with that of its question: by script, then by a detector."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from contextrouter.text.scripts import script_of

_LANGUAGES = (
    "ar bg cs da de el en es et fa fi fr he hi hu id it ja ko lt lv nb nl pl pt ro ru sk sl sv tr uk vi zh"
)
_QUESTION_LETTERS, _ANSWER_LETTERS = 12, 20  # fewer do not say which language it is
_SURE = 0.9
_MIN_LETTERS = 4
_LETTER = re.compile(r"[^\W\d_]")
_NO_PROSE = re.compile(
    r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1[^\n]*$|\Z)|`[^`\n]+`|https?://\S+"
    r"|\"[^\"\n]*\"|«[^»\n]*»|“[^”\n]*”|„[^“\n]*“",
    re.M | re.S,
)


def same_language(question: str, answer: str) -> bool | None:
    """Whether an answer is in the language of its question; None where that cannot be said.

    Another script is another language. Within a script the detector py3langid decides, where it is installed
    and sure of both texts; what stands in quotation marks or code is not read.
    """
    scripts = script(question), script(answer)
    if not all(scripts):
        return None
    if scripts[0] != scripts[1]:
        return False
    languages = (
        detect(question, minimum=_QUESTION_LETTERS),
        detect(_NO_PROSE.sub(" ", answer), minimum=_ANSWER_LETTERS),
    )
    return None in languages or languages[0] == languages[1]


def detect(text: str, *, minimum: int) -> str | None:
    """Return the language of a text; None with too few letters, or if the detector is absent or not sure."""
    if len(_LETTER.findall(text)) < minimum or (identifier := _identifier()) is None:
        return None
    code, share = identifier.classify(text)
    return str(code) if share >= _SURE else None


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages([code for code in _LANGUAGES.split() if code in identifier.labels])
    return identifier


def script(text: str) -> str:
    """Return the script of most letters in a text: LATIN, CYRILLIC, …; CJK for Chinese and Japanese.

    Returns "" for a text with too few letters.
    """
    names: dict[str, int] = {}
    for letter in text:
        if letter.isalpha():
            name = script_of(letter)
            name = "CJK" if name in ("HIRAGANA", "KATAKANA") else name
            names[name] = names.get(name, 0) + 1
    name, count = max(names.items(), key=lambda entry: entry[1], default=("", 0))
    return name if count >= _MIN_LETTERS or (name == "CJK" and count) else ""
