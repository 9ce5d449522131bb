"""BM25 ranking: the weight of a term, its saturation in a text, and an index over passages in memory.

Scores follow Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009): fields
are weighted by counting a term in a field `weight` times (BM25F with one length for all fields).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import log
from typing import Any, TypeVar

from contextrouter.text.analysis import analyse, length
from contextrouter.text.languages import Languages, LanguageTerms, Word
from contextrouter.text.query_syntax import FURTHEST, MOST_EXPANDED
from contextrouter.text.stemming import stem_language, stemmer

K1, B = 0.9, 0.4
"""BM25's saturation and length normalisation, as in Anserini's defaults for passages (Lin et al. 2016)."""
MOST_TERMS = 256
"""Terms of a question that are looked up in an index over passages; those beyond are left out."""

Amount = TypeVar("Amount", bound=Any)
"""A number, or an array of them."""


def weight(documents: int, frequency: int) -> float:
    """Inverse document frequency as Lucene has it: never negative, whatever the counts."""
    return log(1.0 + (max(documents, frequency) - frequency + 0.5) / (frequency + 0.5))


def saturation(frequency: Amount, relative_length: Amount) -> Amount:
    """What a term's (weighted) frequency contributes in a chunk of `relative_length`: its length over the
    average one.
    """
    contribution: Amount = frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * relative_length))
    return contribution


def rarest(frequencies: Sequence[tuple[str, int]], budget: int) -> list[str]:
    """Those terms that occur, rarest first, until reading them would touch more than `budget` postings; at
    least one.
    """
    chosen: list[str] = []
    for term, frequency in sorted((p for p in frequencies if p[1]), key=lambda p: (p[1], p[0])):
        budget -= frequency
        if chosen and budget < 0:
            break
        chosen.append(term)
    return chosen


class PassageIndex:
    """An index over a few thousand passages, each given as (text, weight) fields.

    `languages` are those of the passages, one for each; none at all: all passages are English. Built once,
    then only read: safe to share by threads.
    """

    def __init__(
        self, passages: Sequence[Sequence[tuple[str, float]]], languages: Sequence[str | None] = ()
    ) -> None:
        self._passages = passages
        self._languages = [*map(stem_language, languages or [None] * len(passages))]
        self.languages = frozenset(self._languages)
        """The languages in which a question has to be asked."""
        self._postings: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._lengths: list[int] = []
        for number, fields in enumerate(passages):
            analysed = [
                (terms, weight) for terms, (_, weight) in zip(self._analysed(number), fields, strict=True)
            ]
            for terms, weight in analysed:
                for term in terms:
                    postings = self._postings[term]
                    postings[number] = postings.get(number, 0.0) + weight
            self._lengths.append(length(terms for terms, _ in analysed))

    def __len__(self) -> int:
        return len(self._passages)

    def search(
        self,
        question: LanguageTerms,
        limit: int,
        admits: Callable[[int], bool] = lambda _: True,
        among: Collection[int] | None = None,
    ) -> list[tuple[int, float]]:
        """Return at most `limit` (passage number, score > 0), best first; equal scores in the passages'
        order.

        Phrases and exclusions of the question, and `admits`, are checked before the limit. `among` are the
        numbers of passages that exist for the caller (None: all): the others are neither found nor counted,
        so that they move no score.
        """
        if limit <= 0:
            return []
        scores = self._scores(question, among)
        results: list[tuple[int, float]] = []
        for number, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
            if admits(number) and self._obeys(number, question):
                results.append((number, score))
                if len(results) == limit:
                    break
        return results

    def _scores(self, question: LanguageTerms, among: Collection[int] | None) -> dict[int, float]:
        shown = range(len(self)) if among is None else among
        average = sum([self._lengths[number] for number in shown]) / len(shown) if shown else 0.0
        scores: dict[int, float] = {}
        for word in question.words[:MOST_TERMS]:
            for together in self._matching_postings(word, among):
                idf = weight(len(shown), sum(map(len, together)))
                for number, frequency in chain.from_iterable(postings.items() for postings in together):
                    relative = self._lengths[number] / (average or 1.0)
                    scores[number] = scores.get(number, 0.0) + idf * saturation(frequency, relative)
        return scores

    def _matching_postings(
        self, word: Word, among: Collection[int] | None
    ) -> Iterator[Sequence[Mapping[int, float]]]:
        """Yield the postings of a word's terms together, or of each term that begins with its one term; none
        without any.
        """
        (beginning, *_) = word
        if beginning.endswith(FURTHEST):
            names = sorted(name for name in self._postings if name.startswith(beginning[:-1]))
            every = (self._visible(name, None, among) for name in names)
            yield from ([postings] for postings in islice(filter(None, every), MOST_EXPANDED))
        else:
            yield [self._visible(name, languages, among) for name, languages in word.items()]

    def _visible(self, term: str, languages: Languages, among: Collection[int] | None) -> Mapping[int, float]:
        """Return the frequency of a term in the passages that exist for the caller and are in `languages`."""
        postings = self._postings.get(term, {})
        if among is None and languages is None:
            return postings
        return {
            number: frequency
            for number, frequency in postings.items()
            if (among is None or number in among)
            and (languages is None or self._languages[number] in languages)
        }

    def _obeys(self, number: int, question: LanguageTerms) -> bool:
        """Whether a passage has a phrase of each required group, and no excluded one."""
        return not question.phrases() or question.allows(self._analysed(number), self._languages[number])

    def _analysed(self, number: int) -> list[list[str]]:
        """Return the terms of a passage's fields."""
        stemmed = stemmer(self._languages[number])
        return [analyse(text, stemmed) for text, _ in self._passages[number]]
