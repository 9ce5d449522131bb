"""Text analysis: a text of any language into index terms. Stores, connectors and the pipeline
share it. Pure functions that never raise.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache

from contextrouter.text.scripts import UNSPACED
from contextrouter.text.stemming import ENGLISH, stem, stemmer
from contextrouter.text.stop_words import STOP_WORDS

ANALYSIS = 2
"""Version of `analyse`. An index built by another version must be built again."""
LONGEST = 20_000  # characters of a question that are read

# `re` compiles these when they are first used, and keeps them.
_RUNS = f"[{UNSPACED}]+|[^{UNSPACED}]+"
_HAS_UNSPACED = f"[{UNSPACED}]"
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\uff07\u02b9\u2032\u00b4\u055a\ua78c`", "'"))
_CONTRACTION = r"(?<=\w)'(?:s|t|d|m|ll|re|ve)(?!\w)"
_ACCENTS = "(?<=[a-z\u0370-\u03ff\u0435])[\u0300-\u036f]+"
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
_ASCII = bytes([ord(chr(code).translate(_LETTERS)) for code in range(128)]) + bytes(128)
"""The same of ASCII, which is translated fifteen times as fast in bytes."""


def words(text: str) -> list[str]:
    """Split a text of any script into folded words: no case, accents, compatibility forms, contracted
    endings, punctuation.
    """
    return fold(text).split()


def fold(text: str) -> str:
    """Return the same words in one text, parted by spaces."""
    if text.isascii():
        text = text.lower()
        if "'" in text:
            text = re.sub(_CONTRACTION, "", text)
        return text.encode().translate(_ASCII).decode()
    text = unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)).casefold()
    text = unicodedata.normalize("NFKD", text).translate(_APOSTROPHES)
    text = unicodedata.normalize("NFC", re.sub(_ACCENTS, "", text))
    if "'" in text:
        text = re.sub(_CONTRACTION, "", text)
    return text.translate(_LETTERS)


def has_unspaced(text: str) -> bool:
    """Whether a text has characters of a script without spaces."""
    return re.search(_HAS_UNSPACED, text) is not None


def atoms(text: str) -> list[str]:
    """Split a text into words, and runs of a script without spaces into characters: what names are compared
    by.
    """
    parts: list[str] = []
    for word in words(text):
        if word.isascii():
            parts.append(word)
        else:
            for run in re.findall(_RUNS, word):
                parts.extend(run if re.match(_HAS_UNSPACED, run) else (run,))
    return parts


def stemmable_words(text: str) -> Iterator[str]:
    """Yield the folded words of a text that have a stem: those of scripts with spaces."""
    for word in words(text):
        if word.isascii() or not re.search(_HAS_UNSPACED, word):
            yield word
        else:
            yield from (run for run in re.findall(_RUNS, word) if not re.match(_HAS_UNSPACED, run))


def analyse(text: str, stemmed: Stemmed | None = None) -> list[str]:
    """Turn a text into index terms, in order: stems of words, and pairs of characters where a script has no
    spaces.

    A run of such characters is followed by its last one alone, so that every character begins some term.
    `stemmed` makes terms of words instead of the English stemmer; "" stands for a stop word, which keeps its
    place.
    """
    folded = fold(text)
    if folded.isascii() and stemmed is None:
        return [*map(_english_term, folded.split())]
    terms: list[str] = []
    for word in folded.split():
        if word.isascii():
            terms.append(stemmed(word) if stemmed else stem(word) if word.isalpha() else word)
        elif re.search(_HAS_UNSPACED, word):
            for run in re.findall(_RUNS, word):
                terms.extend(
                    _pairs(run) if re.match(_HAS_UNSPACED, run) else (stemmed(run) if stemmed else run,)
                )
        else:
            terms.append(stemmed(word) if stemmed else word)
    return terms


@lru_cache(maxsize=50_000)
def _english_term(word: str) -> str:
    """Return the index term of a word in ASCII; most words of a text are in others as well."""
    return stem(word) if word.isalpha() else word


def length(terms: Iterable[Sequence[str]]) -> int:
    """Return how many terms there are in all fields together, stop words left out."""
    is_stop = _stops_and_none().__contains__
    return sum([len(field) - sum(map(is_stop, field)) for field in terms])


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run))]


@cache
def _stops_and_none() -> frozenset[str]:
    return stop_terms() | {""}


@cache
def stop_terms(language: str = ENGLISH) -> frozenset[str]:
    """Return the index terms that the English stop words have in texts of a language."""
    return frozenset(term for word in STOP_WORDS for term in analyse(word, stemmer(language)))


def says_something(text: str) -> bool:
    """Whether a text has a letter, a digit, or a sign such as an emoji: "???" and "-" say nothing."""
    return any(char.isalnum() or unicodedata.category(char) == "So" for char in text)
