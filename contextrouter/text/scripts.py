"""Scripts: which one a letter is of, and ranges of those without spaces between words (Chinese, Thai, …).

The ranges are text for a character class of `re`. Nothing is compiled here: to compile takes longer than to
import.
"""

from __future__ import annotations

import unicodedata

IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters, also in Japanese and Korean texts."""
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"
"""The syllables of Japanese."""
HANGUL = "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"
"""Korean parts words by spaces, but glues endings to them."""
WITHOUT_SPACES = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2e80-\u2fdf\u3005-\u3007\u3100-\u312f"
    f"\u31a0-\u31bf\ua9e0-\ua9ff\uaa60-\uaa7f{KANA}{IDEOGRAPHS}"
)
"""Scripts that put no space between words."""
UNSPACED = WITHOUT_SPACES + HANGUL
"""Scripts whose words cannot be found by spaces: an index reads pairs of their characters."""


def script_of(letter: str) -> str:
    """Return the script of a letter by its Unicode name: "LATIN", "CYRILLIC", "CJK", "HIRAGANA", …"""
    return unicodedata.name(letter, "?").split(" ")[0].split("-")[0]
