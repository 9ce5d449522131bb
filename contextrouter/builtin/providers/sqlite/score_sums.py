"""Sums of BM25 over the words of a question, the rarest first: the commonest are looked up only in chunks
that can still be among the best.
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
_WORTH = 8
"""A word is looked up in the chunks that can be among the best, where it has so many times as many chunks:
otherwise it costs less to add it to all.
"""
_LARGE = 10_000
"""Postings of a word from which it is worth finding out which chunks can be among the best."""


class Postings(NamedTuple):
    """The chunks that have a term, each once, and how often: a count for each field, weighted."""

    chunks: Numbers
    frequencies: Scores

    def at(self, indexes: Numbers) -> Postings:
        """Those at some indexes."""
        return Postings(self.chunks.take(indexes), self.frequencies.take(indexes))

    def without(self, gone: Numbers) -> Postings:
        """The same without chunks that are gone."""
        if not len(gone):
            return self
        np = numpy()
        at = np.minimum(np.searchsorted(self.chunks, gone), len(self.chunks) - 1)
        at = at[self.chunks[at] == gone]
        return Postings(np.delete(self.chunks, at), np.delete(self.frequencies, at)) if len(at) else self


Contributions: TypeAlias = "dict[int, tuple[Postings, Scores]]"
"""What terms contribute to the scores of their chunks, before their weight; by `id()` of their postings."""
Admit: TypeAlias = "Callable[[Numbers], Numbers]"
"""Indexes into numbers of chunks of those that are admitted."""


class WeightedWord(NamedTuple):
    """A word: the postings of its terms, which have no chunk in common, and its weight."""

    postings: Sequence[Postings]
    idf: float

    @property
    def size(self) -> int:
        """How many chunks have the word."""
        return sum([len(each.chunks) for each in self.postings])


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
    bounds = [sums.bound(word) for word in words]
    for count, word in enumerate(words):
        coming = sum(bounds[count:])
        if word.size >= _LARGE and sums.chosen is None and sum(bounds[:count]) > coming:
            sums.choose(limit, coming, word.size // _WORTH)
        if sums.chosen is None:
            sums.add(word, contributions)
        else:
            sums.add_to_chosen(word)
    return best(*sums.of_admissible(), limit, _DECIMALS)


class _Sums:
    """The scores so far: of all chunks, by number; or of those that are chosen."""

    def __init__(self, lengths: Lengths, average: float, admit: Admit | None) -> None:
        self._lengths, self._average, self._admit = lengths, average, admit
        self._summed: Scores = numpy().zeros(len(lengths.values))
        self.chosen: Numbers | None = None

    def bound(self, word: WeightedWord) -> float:
        """The most that a word can add to a score."""
        frequency = max([float(postings.frequencies.max()) for postings in word.postings])
        return word.idf * bm25.saturation(frequency, 0.0) if frequency else 0.0

    def add(self, word: WeightedWord, contributions: Contributions) -> None:
        """Add a word to the scores of all its chunks: sorting the postings costs more than sums by chunk."""
        for postings in word.postings:
            contribution = contributions.get(id(postings))
            if contribution is None:
                relative = self._lengths.of(postings.chunks) / self._average
                contribution = postings, bm25.saturation(postings.frequencies, relative)
                contributions[id(postings)] = contribution  # it keeps them: no others get their id
            self._summed[postings.chunks - self._lengths.base] += word.idf * contribution[1]

    def choose(self, limit: int, bound: float, size: int) -> None:
        """Go on with the chunks that can be among the best if no score grows by more than `bound`, where
        there are at most `size` of them.
        """
        np = numpy()
        chunks, summed = self.of_admissible()
        if len(chunks) <= limit:
            return
        threshold = np.partition(summed, len(summed) - limit)[len(summed) - limit]
        threshold -= bound + 10.0 ** (1 - _DECIMALS)
        likely = np.flatnonzero(summed >= threshold)
        if (
            threshold > 0.0 and len(likely) <= size
        ):  # otherwise a chunk without a score so far can be among them
            self.chosen, self._summed = chunks[likely], summed[likely]

    def add_to_chosen(self, word: WeightedWord) -> None:
        """Add a word to the scores of the chosen chunks."""
        np = numpy()
        assert self.chosen is not None
        for chunks, frequencies in word.postings:
            at = np.minimum(np.searchsorted(chunks, self.chosen), len(chunks) - 1)
            having = np.flatnonzero(chunks[at] == self.chosen)
            relative = self._lengths.of(self.chosen[having]) / self._average
            self._summed[having] += word.idf * bm25.saturation(frequencies[at[having]], relative)

    def of_admissible(self) -> tuple[Numbers, Scores]:
        """The chunks that have a score and are admitted, and their scores."""
        if self.chosen is not None:
            return self.chosen, self._summed
        np = numpy()
        at = np.flatnonzero(self._summed > 0.0)
        if self._admit is not None:
            at = at[self._admit(at + self._lengths.base)]
        return at + self._lengths.base, self._summed[at]
