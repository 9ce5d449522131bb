"""BM25 sums over the words of a question, with pruning (MaxScore): the rarest words are added first. The
commonest are then looked up in those chunks only that can still be among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from contextrouter.builtin.providers.sqlite.rows import best, numpy
from contextrouter.builtin.providers.sqlite.snapshot_cache import Lengths
from contextrouter.text import bm25

if TYPE_CHECKING:
    from contextrouter.builtin.providers.sqlite.rows import Numbers, Scores

_DECIMALS = 9
_PRUNED_FROM = 10_000
"""Postings of a word from which it is worth finding out which chunks can still be among the best."""
_PRUNED_SHARE = 8
"""A word is looked up in these candidates where it has so many times as many chunks. Otherwise it costs less
to add it to all.
"""


class Postings(NamedTuple):
    """The chunks that have a term, ascending, and how often: its counts in the fields, weighted and added."""

    chunks: Numbers
    frequencies: Scores

    def at(self, indexes: Numbers) -> Postings:
        """Those at some indexes."""
        return Postings(self.chunks.take(indexes), self.frequencies.take(indexes))

    def without(self, removed: Numbers) -> Postings:
        """The same without chunks that were removed, which are ascending, too."""
        if not len(removed):
            return self
        np = numpy()
        at = np.minimum(np.searchsorted(self.chunks, removed), len(self.chunks) - 1)
        at = at[self.chunks[at] == removed]
        return Postings(np.delete(self.chunks, at), np.delete(self.frequencies, at)) if len(at) else self


Contributions: TypeAlias = "dict[int, tuple[Postings, Scores]]"
"""What terms contribute to the scores of their chunks, before their idf; by `id()` of their postings."""
Admit: TypeAlias = "Callable[[Numbers], Numbers]"
"""Chunks -> the indexes of those that are admitted."""


class WeightedWord(NamedTuple):
    """A word of a question: the postings of its terms, which have no chunk in common, and its idf."""

    postings: Sequence[Postings]
    idf: float

    @property
    def size(self) -> int:
        """How many chunks have the word."""
        return sum([len(each.chunks) for each in self.postings])

    @property
    def bound(self) -> float:
        """The most that the word can add to a score: at its highest frequency, in a chunk without length."""
        frequency = max([float(postings.frequencies.max()) for postings in self.postings])
        return self.idf * bm25.saturation(frequency, 0.0) if frequency else 0.0


def best_chunks(
    words: Sequence[WeightedWord],
    lengths: tuple[Lengths, float],
    contributions: Contributions,
    limit: int,
    admit: Admit | None,
) -> list[tuple[int, float]]:
    """The best admitted chunks (number, score) and those tied with the last, best first. `lengths` has the
    lengths of the chunks, and the average; `admit` None: all are admitted.
    """
    words = sorted(words, key=lambda word: word.size)
    sums = _Sums(*lengths, admit)
    bounds = [word.bound for word in words]
    for count, word in enumerate(words):
        coming = sum(bounds[count:])
        if word.size >= _PRUNED_FROM and sums.candidates is None and sum(bounds[:count]) > coming:
            sums.prune(limit, coming, word.size // _PRUNED_SHARE)
        if sums.candidates is None:
            sums.add(word, contributions)
        else:
            sums.add_to_candidates(word)
    return best(*sums.scored(), limit, _DECIMALS)


class _Sums:
    """The scores so far: of all chunks, by number; after pruning, of the candidates."""

    def __init__(self, lengths: Lengths, average: float, admit: Admit | None) -> None:
        self._lengths, self._average, self._admit = lengths, average, admit
        self._summed: Scores = numpy().zeros(len(lengths.values))
        self.candidates: Numbers | None = None

    def add(self, word: WeightedWord, contributions: Contributions) -> None:
        """Add a word to the scores of all its chunks. An array over all chunks takes this quicker than the
        postings of several words could be merged.
        """
        for postings in word.postings:
            contribution = contributions.get(id(postings))
            if contribution is None:
                relative = self._lengths.of(postings.chunks) / self._average
                contribution = postings, bm25.saturation(postings.frequencies, relative)
                contributions[id(postings)] = contribution  # it keeps them: no others get their id
            self._summed[postings.chunks - self._lengths.base] += word.idf * contribution[1]

    def prune(self, limit: int, coming: float, most: int) -> None:
        """Go on with the chunks that can be among the best if no score grows by more than `coming`, where
        these are `most` at most.
        """
        np = numpy()
        chunks, summed = self.scored()
        if len(chunks) <= limit:
            return
        threshold = np.partition(summed, len(summed) - limit)[len(summed) - limit]
        threshold -= coming + 10.0 ** (1 - _DECIMALS)
        likely = np.flatnonzero(summed >= threshold)
        # at a threshold of 0 or less, a chunk that has no score so far can be among them
        if threshold > 0.0 and len(likely) <= most:
            self.candidates, self._summed = chunks[likely], summed[likely]

    def add_to_candidates(self, word: WeightedWord) -> None:
        """Add a word to the scores of the candidates that have it."""
        np = numpy()
        assert self.candidates is not None
        for chunks, frequencies in word.postings:
            at = np.minimum(np.searchsorted(chunks, self.candidates), len(chunks) - 1)
            having = np.flatnonzero(chunks[at] == self.candidates)
            relative = self._lengths.of(self.candidates[having]) / self._average
            self._summed[having] += word.idf * bm25.saturation(frequencies[at[having]], relative)

    def scored(self) -> tuple[Numbers, Scores]:
        """The chunks that have a score and are admitted, and their scores."""
        if self.candidates is not None:
            return self.candidates, self._summed
        np = numpy()
        at = np.flatnonzero(self._summed > 0.0)
        if self._admit is not None:
            at = at[self._admit(at + self._lengths.base)]
        return at + self._lengths.base, self._summed[at]
