"""Text analysis: a text of any language into index terms, and which of them are stop words. Pure functions
that never raise.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from contextrouter.model import SEARCH_TEXT, Document
from contextrouter.text.stemming import stem

ANALYSIS = 1
"""Version of `analyse`; an index built by another one is built again."""
LONGEST = 20_000  # characters of a question that are read

_STOPS = (
    "a about am an and any are as at be been being but by can could did do does for from had has have he her"
    " him his how i if in into is it its just may me might must my no nor not of on or our shall she should"
    " so some such than that the their them then there these they this those to us was we were what when"
    " where which while who whom whose why will with would you your"
)
STOP_WORDS = frozenset(_STOPS.split())

# Scripts written without spaces, or with endings glued to the word: their runs are indexed as pairs of
# characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUNS = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\uff07\u02b9\u2032\u00b4\u055a\ua78c`", "'"))
_CONTRACTION = re.compile(r"(?<=\w)'(?:s|t|d|m|ll|re|ve)(?!\w)")
_ACCENTS = re.compile("(?<=[a-z\u0370-\u03ff\u0435])[\u0300-\u036f]+")
Phrase = tuple[str, ...]
"""Index terms that stand side by side; one term is a word."""
Stemmed = Callable[[str], str]
"""A folded word -> its index term; "" for a stop word."""


class _Letters(dict[int, "int | str | None"]):
    """A translation table: letters, digits and marks stay, invisible characters go, all else becomes a
    space.
    """

    def __missing__(self, point: int) -> int | str | None:
        category = unicodedata.category(chr(point))
        value: int | str | None = point if category[0] in "LNM" else None if category == "Cf" else " "
        self[point] = value
        return value


_LETTERS = _Letters()


def words(text: str) -> list[str]:
    """Split a text of any script into folded words: no case, accents, compatibility forms, contracted
    endings, punctuation.
    """
    return folded(text).split()


def folded(text: str) -> str:
    """The same words in one text, parted by spaces."""
    if text.isascii():
        text = text.lower()
    else:
        text = unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)).casefold()
        text = unicodedata.normalize("NFKD", text).translate(_APOSTROPHES)
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", text))
    if "'" in text:
        text = _CONTRACTION.sub("", text)
    return text.translate(_LETTERS)


def has_unspaced(text: str) -> bool:
    """Whether a text has characters of a script without spaces."""
    return _HAS_UNSPACED.search(text) is not None


def atoms(text: str) -> list[str]:
    """Split a text into words, and runs of a script without spaces into characters: what names are compared
    by.
    """
    found: list[str] = []
    for word in words(text):
        if word.isascii():
            found.append(word)
        else:
            for run in _RUNS.findall(word):
                found.extend(run if _HAS_UNSPACED.match(run) else (run,))
    return found


def spaced(text: str) -> Iterator[str]:
    """The folded words of a text, without those of scripts that have no spaces."""
    for word in words(text):
        if word.isascii() or not _HAS_UNSPACED.search(word):
            yield word
        else:
            yield from (run for run in _RUNS.findall(word) if not _HAS_UNSPACED.match(run))


def analyse(text: str, stemmed: Stemmed | None = None) -> list[str]:
    """Turn a text into index terms, in order: stems of words, and pairs of characters where a script has no
    spaces.

    A run of such characters is followed by its last one alone, so that every character begins some term.
    `stemmed` makes terms of words instead of the English stemmer; "" stands for a stop word, which keeps its
    place.
    """
    terms: list[str] = []
    for word in words(text):
        if word.isascii():
            terms.append(stemmed(word) if stemmed else stem(word) if word.isalpha() else word)
        elif _HAS_UNSPACED.search(word):
            for run in _RUNS.findall(word):
                terms.extend(_pairs(run) if _HAS_UNSPACED.match(run) else (stemmed(run) if stemmed else run,))
        else:
            terms.append(stemmed(word) if stemmed else word)
    return terms


def fields(document: Document) -> tuple[str, str, str]:
    """What is searched of a document: title, heading path and body."""
    return document.title, " ".join(document.path), body(document)


def body(document: Document) -> str:
    """The text that is searched: `metadata["search_text"]` where a transform made one, else the content,
    which is what is shown.
    """
    text = document.metadata.get(SEARCH_TEXT)
    return text if isinstance(text, str) else document.content


def length(terms: Iterable[Iterable[str]]) -> int:
    """How many terms there are in all fields together, stop words left out."""
    return sum(bool(term) and term not in _STOPPED for field in terms for term in field)


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run))]


_STOPPED = frozenset(term for word in STOP_WORDS for term in analyse(word))
