"""Text analysis and the web-search syntax, shared by the stores and by calibration: pure functions, and no input makes them fail.

`analyse` turns a text into index terms, `parse` a question into what is scored, what is required and what is forbidden.
The text of a user is data: nothing in it is ever read as the query language of a database.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log
from typing import Any, NamedTuple, TypeVar

from contextrouter.model import SEARCH_TEXT, Document
from contextrouter.stem import stem

ANALYSIS = 1
"""Version of `analyse`; an index built by another one is built again."""
K1, B = 0.9, 0.4
"""BM25's saturation and length normalisation, as in Anserini's defaults for passages."""
LONGEST = 20_000  # characters of a question that are read
MOST_BEGUN = 50  # terms that one beginning stands for
FURTHEST = "\U0010ffff"

_STOPS = (
    "a about am an and any are as at be been being but by can could did do does for from had has have he her him his how i "
    "if in into is it its just may me might must my no nor not of on or our shall she should so some such than that the "
    "their them then there these they this those to us was we were what when where which while who whom whose why will with "
    "would you your"
)
STOP_WORDS = frozenset(_STOPS.split())

# Scripts written without spaces, or with endings glued to the word: their runs are indexed as pairs of characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUNS = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\uff07\u02b9\u2032\u00b4\u055a\ua78c`", "'"))
_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\uff02\u300c\u300d\u300e\u300f", '"'))
_CONTRACTION = re.compile(r"(?<=\w)'(?:s|t|d|m|ll|re|ve)(?!\w)")
_ACCENTS = re.compile("(?<=[a-z\u0370-\u03ff\u0435])[\u0300-\u036f]+")
# An opening quotation mark does not follow a letter or digit (5" is a length), "-" negates only at the start of a word.
_SYNTAX = re.compile(r'(?P<no>(?<!\S)-(?=["\w]))?(?:(?<![0-9A-Za-z])"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')

Amount = TypeVar("Amount", bound=Any)
"""A number, or an array of them."""
Phrase = tuple[str, ...]
"""Index terms that stand side by side; one term is a word."""
Stemmed = Callable[[str], str]
"""A folded word -> its index term; "" for a stop word."""


class _Letters(dict[int, "int | str | None"]):
    """A translation table: letters, digits and marks stay, invisible characters go, all else becomes a space."""

    def __missing__(self, point: int) -> int | str | None:
        category = unicodedata.category(chr(point))
        value: int | str | None = point if category[0] in "LNM" else None if category == "Cf" else " "
        self[point] = value
        return value


_LETTERS = _Letters()


class WebQuery(NamedTuple):
    """A question, parsed.

    `terms` are scored, any of them suffices; of each group in `required` one phrase must occur; of `excluded` none may.
    A term that ends in `FURTHEST` is the beginning of a term: one character of a script without spaces.
    """

    terms: tuple[str, ...] = ()
    required: tuple[tuple[Phrase, ...], ...] = ()
    excluded: tuple[Phrase, ...] = ()


def words(text: str) -> list[str]:
    """Split a text of any script into folded words: no case, accents, compatibility forms, contracted endings, punctuation."""
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
    """Split a text into words, and runs of a script without spaces into characters: what names are compared by."""
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
    """Turn a text into index terms, in order: stems of words, and pairs of characters where a script has no spaces.

    A run of such characters is followed by its last one alone, so that every character begins some term. `stemmed` makes terms
    of words instead of the English stemmer; "" stands for a stop word, which keeps its place.
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


def parse(text: str, ways: Sequence[Stemmed | None] = (None,)) -> WebQuery:
    """Read a question as web searches are: `"a phrase"`, `one OR other`, `-without`, and plain words.

    Words are alternatives, the rarer the weightier; a phrase is required; OR between phrases asks for one of them. Stop words
    are scored only when nothing else is left. Whatever has no meaning is ignored; nothing raises. `ways` are the stemmers of
    `analyse` that a text may have been indexed with: any of them may find it.
    """
    text = text[:LONGEST].translate(_QUOTES)
    groups: list[list[tuple[Phrase, bool]]] = []
    excluded: dict[Phrase, None] = {}
    alternative = False
    for token in _SYNTAX.finditer(text):
        if token["word"] == "OR" and not token["no"]:
            alternative = bool(groups)
            continue
        quoted = token["phrase"] is not None
        spoken = token["phrase"] if quoted else token["word"]
        phrases = [phrase for stemmed in ways if (phrase := _phrase(spoken, stemmed))]
        if not phrases:
            continue
        if token["no"]:
            excluded.update(dict.fromkeys(phrases))
        elif alternative:
            groups[-1].extend((phrase, quoted) for phrase in phrases)
        else:
            groups.append([(phrase, quoted) for phrase in phrases])
        alternative = False
    required = [tuple(phrase for phrase, _ in group) for group in groups if any(quoted for _, quoted in group)]
    return WebQuery(_scored(groups), tuple(dict.fromkeys(required)), tuple(excluded))


def words_of(texts: Iterable[str]) -> list[str]:
    """The words of queries that are scored, folded: what sources are asked statistics of."""
    asked: dict[str, None] = {}
    for text in texts:
        scored = {*parse(text).terms}
        for word in words(text[: LONGEST]):
            if scored.intersection(analyse(word)):
                asked[word] = None
    return list(asked)


def weight(documents: int, frequency: int) -> float:
    """Inverse document frequency as Lucene has it: never negative, whatever the counts."""
    return log(1.0 + (max(documents, frequency) - frequency + 0.5) / (frequency + 0.5))


def saturation(frequency: Amount, relative_length: Amount) -> Amount:
    """What a term's (weighted) frequency contributes in a chunk of `relative_length`: its length over the average one."""
    contribution: Amount = frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * relative_length))
    return contribution


def fields(document: Document) -> tuple[str, str, str]:
    """What is searched of a document: title, heading path and body."""
    return document.title, " ".join(document.path), body(document)


def body(document: Document) -> str:
    """The text that is searched: `metadata["search_text"]` where a transform made one, else the content, which is what is shown."""
    text = document.metadata.get(SEARCH_TEXT)
    return text if isinstance(text, str) else document.content


def length(terms: Iterable[Iterable[str]]) -> int:
    """How many terms there are in all fields together, stop words left out."""
    return sum(bool(term) and term not in _STOPPED for field in terms for term in field)


def rarest(frequencies: Sequence[tuple[str, int]], budget: int) -> list[str]:
    """Those terms that occur, rarest first, until reading them would touch more than `budget` postings; at least one."""
    chosen: list[str] = []
    for term, frequency in sorted((p for p in frequencies if p[1]), key=lambda p: (p[1], p[0])):
        budget -= frequency
        if chosen and budget < 0:
            break
        chosen.append(term)
    return chosen


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run))]


def _phrase(text: str, stemmed: Stemmed | None) -> Phrase:
    """The terms of a phrase; a single character of a script without spaces stands for all terms it begins."""
    terms = analyse(text, stemmed)
    while terms and not terms[-1]:
        terms.pop()
    while terms and not terms[0]:
        terms.pop(0)
    if terms and len(terms[-1]) == 1 and _HAS_UNSPACED.match(terms[-1]):
        if len(terms) > 1 and len(terms[-2]) == 2 and terms[-2][1] == terms[-1]:
            terms.pop()  # the run may go on in the document
        else:
            terms[-1] += FURTHEST
    return tuple(terms)


def _scored(groups: Sequence[Sequence[tuple[Phrase, bool]]]) -> tuple[str, ...]:
    every = dict.fromkeys(term for group in groups for phrase, _ in group for term in phrase if term)
    telling = tuple(term for term in every if term not in _STOPPED)
    return telling or tuple(every)


_STOPPED = frozenset(term for word in STOP_WORDS for term in analyse(word))
