"""English stemming: the Porter2 algorithm (M. F. Porter, "The English (Porter2) stemming algorithm", 2002).

Index and question are stemmed alike, so that "connections" finds "connected". Words in other alphabets are
left alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WHOLE = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    "sky": "sky",
    "news": "news",
    "howe": "howe",
    "atlas": "atlas",
    "cosmos": "cosmos",
    "bias": "bias",
    "andes": "andes",
}
_KEPT = frozenset(("inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"))
_STEP2 = (
    ("ational", "ate"),
    ("ization", "ize"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("entli", "ent"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ousli", "ous"),
    ("iviti", "ive"),
    ("fulli", "ful"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("abli", "able"),
    ("izer", "ize"),
    ("ator", "ate"),
    ("alli", "al"),
    ("bli", "ble"),
    ("ogi", "og"),
    ("li", ""),
)
_STEP3 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ative", ""),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_STEP4 = (
    "ement",
    "ance",
    "ence",
    "able",
    "ible",
    "ment",
    "ant",
    "ent",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "ion",
    "al",
    "er",
    "ic",
)
_REGION = re.compile(r"[^aeiouy]*[aeiouy]+[^aeiouy]")
_FIRST = re.compile(r"(?:gener|commun|arsen)")
_VOWEL = re.compile(r"[aeiouy]")
_SHORT = re.compile(r"(?:^|.*[^aeiouy])[aeiouy][^aeiouywxY]$|^[aeiouy][^aeiouy]$")
_CONSONANT_Y = re.compile(r"^y|(?<=[aeiouy])y")


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """Return the stem of a lower-case word of letters a to z; what is shorter than three letters comes back
    as it is.
    """
    if len(word) < 3 or word in _WHOLE:
        return _WHOLE.get(word, word)
    word = _CONSONANT_Y.sub("Y", word)
    r1, r2 = _regions(word)
    word = _plural(word)
    if word in _KEPT:
        return word
    word = _final_y(_participle(word, r1))
    word = _replace(word, _STEP2, r1, r2)
    word = _replace(word, _STEP3, r1, r2)
    word = _residue(word, r2)
    return _final_e(word, r1, r2).lower()


def begins(term: str) -> str:
    """What every word begins with whose stem is `term`; such a word has at most its last two letters
    otherwise.
    """
    begin = term[: max(2, len(term) - 2)]
    for word in [word for word, stemmed in _WHOLE.items() if stemmed == term]:
        while not word.startswith(begin):
            begin = begin[:-1]
    return begin


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin: after the first consonant that follows a vowel, once and twice."""
    found = _FIRST.match(word) or _REGION.match(word)
    r1 = found.end() if found else len(word)
    found = _REGION.match(word, r1)
    return r1, found.end() if found else len(word)


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _VOWEL.search(word[:-2]):
        return word[:-1]
    return word


def _participle(word: str, r1: int) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            return word[: -len(suffix)] + "ee" if len(word) - len(suffix) >= r1 else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return _mended(base, r1) if _VOWEL.search(base) else word
    return word


def _mended(base: str, r1: int) -> str:
    """What is left of a participle, given back its e or rid of its doubled consonant."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if base.endswith(("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")):
        return base[:-1]
    return base + "e" if r1 >= len(base) and _SHORT.match(base) else base


def _final_y(word: str) -> str:
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in "aeiouy":
        return word[:-1] + "i"
    return word


def _replace(word: str, rules: tuple[tuple[str, str], ...], r1: int, r2: int) -> str:
    """Apply the rule of the longest suffix, where its region and its left neighbour allow it."""
    for suffix, new in rules:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            allowed = len(base) >= (r2 if suffix == "ative" else r1)
            if suffix == "ogi":
                allowed = allowed and base.endswith("l")
            if suffix == "li":
                allowed = allowed and base[-1:] in tuple("cdeghkmnrt")
            return base + new if allowed else word
    return word


def _residue(word: str, r2: int) -> str:
    for suffix in _STEP4:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            allowed = len(base) >= r2 and (suffix != "ion" or base.endswith(("s", "t")))
            return base if allowed else word
    return word


def _final_e(word: str, r1: int, r2: int) -> str:
    base = word[:-1]
    if word.endswith("e") and (len(base) >= r2 or (len(base) >= r1 and not _SHORT.match(base))):
        return base
    if word.endswith("ll") and len(base) >= r2:
        return base
    return word
