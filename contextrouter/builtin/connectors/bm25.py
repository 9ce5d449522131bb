"""BM25 ranking (lexical search) over a few thousand passages, in memory and in plain Python.

Scores follow Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009): fields
are weighted by counting a term in a field `weight` times (BM25F with one length for all fields). k1 = 0.9 and
b = 0.4 are the values that Lin et al. use for passages in Anserini (2016).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

K1 = 0.9
B = 0.4
MAX_TERMS = 256
"""Distinct query terms that are looked up; the rest of an over-long question is left out."""

# Scripts written without spaces between words, and Hangul, whose words carry endings.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Marks that `\w` leaves out, without which words of Hebrew, Arabic and the scripts of India fall to pieces.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_TOKEN = re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[\\w{_MARKS}])+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_NEGATED = re.compile(r'(?:(?<=\s)|^)-(?:"([^"]*)"|([^\s"-]\S*))')
_POSSESSIVE = re.compile(r"['’]s\b")
_STOPS = (
    "a about an and any are as at be been but by can could did do does for from had has have how i if in into"
    " is it its me my no not of on or our please she he should so some talk tell than that the their them"
    " then there these they this those to was we were what when where which who whom why will with would you"
    " your"
)
STOP_WORDS = frozenset(_STOPS.split())


def _fold(text: str) -> str:
    """Fold case, compatibility forms and Latin accents, so that Café and CAFE are one term."""
    if text.isascii():
        return text.casefold()
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain).casefold()


def _singular(word: str) -> str:
    """Drop an English plural (Harman's S stemmer, 1991); a word of three letters or fewer stays."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("us", "ss", "is")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word[:-1]


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    for match in _TOKEN.finditer(_POSSESSIVE.sub("", _fold(text))):
        run = match.group()
        yield run, _IS_UNSPACED.match(run) is not None


def document_terms(text: str) -> list[str]:
    """Return the terms of a text in order. Runs without spaces give their characters and their bigrams."""
    terms: list[str] = []
    for run, unspaced in _runs(text):
        if unspaced:
            terms += run
            terms += (run[i : i + 2] for i in range(len(run) - 1))
        else:
            terms.append(_singular(run))
    return terms


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a question in order, without stop words unless nothing else is left."""
    terms: dict[str, None] = {}
    stops: dict[str, None] = {}
    for run, unspaced in _runs(text):
        if unspaced:
            found = [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
            terms.update(dict.fromkeys(found))
        elif run in STOP_WORDS:
            stops[_singular(run)] = None
        else:
            terms[_singular(run)] = None
        if len(terms) >= MAX_TERMS:
            break
    return list(terms or stops)[:MAX_TERMS]


def parse(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the terms looked for, and the words or phrases that a leading `-` excludes, each as its terms in
    order.
    """
    excluded = [document_terms(phrase or word) for phrase, word in _NEGATED.findall(text)]
    return query_terms(_NEGATED.sub(" ", text)), [terms for terms in excluded if terms]


class Bm25:
    """An index over passages, each given as (text, weight) fields. Built once, then only read: safe to share
    by threads.
    """

    def __init__(self, passages: Sequence[Sequence[tuple[str, float]]]) -> None:
        self._passages = passages
        self._postings: dict[str, list[tuple[int, float]]] = {}
        self._lengths: list[int] = []
        for number, fields in enumerate(passages):
            self._add(number, fields)
        self._average = sum(self._lengths) / len(self._lengths) if self._lengths else 0.0

    def __len__(self) -> int:
        return len(self._passages)

    def _add(self, number: int, fields: Sequence[tuple[str, float]]) -> None:
        counts: Counter[str] = Counter()
        weights: dict[str, float] = {}
        for text, weight in fields:
            terms = document_terms(text)
            counts.update(terms)
            for term in terms:
                weights[term] = weights.get(term, 0.0) + weight
        self._lengths.append(counts.total())
        for term, weight in weights.items():
            self._postings.setdefault(term, []).append((number, weight))

    def search(
        self,
        text: str,
        limit: int,
        keep: Callable[[int], bool] = lambda _: True,
        among: Collection[int] | None = None,
    ) -> list[tuple[int, float]]:
        """Return at most `limit` (passage number, score > 0), best first; equal scores in the passages'
        order.

        `keep` is asked before the limit. `among` are the numbers of passages that are there at all for who
        asks (None: all): the others are neither found nor counted, so that they move no score. Any text is a
        question: there is no syntax to get wrong.
        """
        if limit <= 0:
            return []
        terms, excluded = parse(text)
        scores: dict[int, float] = {}
        average = (
            self._average
            if among is None
            else sum([self._lengths[n] for n in among]) / len(among)
            if among
            else 0.0
        )
        for term in terms:
            self._score(term, scores, among, average)
        found = []
        for number, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
            if keep(number) and not any(self._has(number, phrase) for phrase in excluded):
                found.append((number, score))
                if len(found) == limit:
                    break
        return found

    def _score(
        self, term: str, scores: dict[int, float], among: Collection[int] | None, average: float
    ) -> None:
        postings: Sequence[tuple[int, float]] = self._postings.get(term, ())
        if among is not None:
            postings = [each for each in postings if each[0] in among]
        total = len(self) if among is None else len(among)
        idf = math.log(1 + (total - len(postings) + 0.5) / (len(postings) + 0.5))
        for number, frequency in postings:
            norm = K1 * (1 - B + B * self._lengths[number] / average)
            scores[number] = scores.get(number, 0.0) + idf * frequency * (K1 + 1) / (frequency + norm)

    def _has(self, number: int, phrase: list[str]) -> bool:
        size = len(phrase)
        for text, _ in self._passages[number]:
            terms = document_terms(text)
            if any(terms[i : i + size] == phrase for i in range(len(terms) - size + 1)):
                return True
        return False
