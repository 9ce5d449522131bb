"""Counts the terms of a question in documents, without analysing their whole text."""

from __future__ import annotations

from collections.abc import Iterable

from contextrouter.model import Document
from contextrouter.text import analysis
from contextrouter.text.stemming import begins, stem

READ = 20_000
"""Characters of a candidate that are read."""
TITLE, PATH = 3, 2
"""How often a term counts in the title and in the heading path, as the stores count it."""


def _fold(text: str) -> str:
    """The words of a text in any order, parted by spaces; to fold what is not ASCII costs ten times as much,
    so only that is.
    """
    if text.isascii():
        return analysis.fold(text)
    parts = text.split()
    odd = [part for part in parts if not part.isascii()]
    return f"{analysis.fold(' '.join(filter(str.isascii, parts)))} {analysis.fold(' '.join(odd))}"


class TermCounter:
    """Counts terms in texts. Words that could be of a term are looked for by how they begin, so that few are
    looked at.
    """

    def __init__(self, terms: Iterable[str]) -> None:
        self.place = {term: at for at, term in enumerate(terms)}
        self.begun = [(" " + begins(term), term, at) for term, at in self.place.items()]

    def count(self, document: Document) -> tuple[dict[int, float], int]:
        """How often each term occurs, by place, fields weighted; and how many letters the document has."""
        counts: dict[int, float] = {}
        length = 0
        for text, weight in (
            (document.title, TITLE),
            (" ".join(document.path), PATH),
            (document.content[:READ], 1),
        ):
            if text:
                folded = f" {_fold(text)} "
                length += len(folded) - folded.count(" ")
                self._count(folded, weight, counts)
        return counts, length

    def _count(self, folded: str, weight: int, counts: dict[int, float]) -> None:
        if not folded.isascii() and analysis.has_unspaced(folded):
            for term in analysis.analyse(folded):
                if (place := self.place.get(term)) is not None:
                    counts[place] = counts.get(place, 0.0) + weight
            return
        find = folded.find
        for begin, term, at in self.begun:
            start = find(begin)
            while start >= 0:
                end = find(" ", start + 1)
                word = folded[start + 1 : end]
                if word == term or (word.isalpha() and word.isascii() and stem(word) == term):
                    counts[at] = counts.get(at, 0.0) + weight
                start = find(begin, end)
