"""Words of facts: which facts a question asks for, and which say the same. Pure, and without a model."""

from __future__ import annotations

import re
from functools import lru_cache

from contextrouter.text.analysis import analyse
from contextrouter.text.query_syntax import query_terms
from contextrouter.text.stemming import ENGLISH, stemmer

_INNER_CAPITAL = r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
PREDICATE_WEIGHT = 2
"""How much a word of the predicate counts. A word of the subject or the object counts 1."""


def spaced(predicate: str) -> str:
    """Return a predicate as it is and, where it has capitals inside, its words: `foundedBy founded By`.

    Underscores part words in every text.
    """
    apart = re.sub(_INNER_CAPITAL, " ", predicate)
    return predicate if apart == predicate else f"{predicate} {apart}"


def same_words(text: str) -> str:
    """Return a text without its case, and with single spaces: texts that differ in these only are one."""
    return " ".join(text.split()).casefold()


class QuestionWords:
    """The content words of a question, by stem; those of English and of the question's language."""

    def __init__(self, question: str, language: str | None = None) -> None:
        languages = dict.fromkeys((ENGLISH, language or ENGLISH))
        self._terms = {name: frozenset(query_terms(question, language=name).terms) for name in languages}

    def in_predicate(self, predicate: str) -> int:
        """Return how many words of the question a predicate has."""
        return max(len(terms & _terms(spaced(predicate), name)) for name, terms in self._terms.items())

    def points(self, subject: str, predicate: str, object: str) -> int:
        """Return how well a fact answers the question.

        A word of the question in the predicate counts 2, one in the subject or the object alone 1. "Who
        founded OpenAI?" gives `OpenAI founded_by Sam` 2 + 1 = 3 points, `OpenAI mentions Ada` 1.

        Where the predicate has none, the subject and the object count 1 each if they have any: sources find
        facts by names, and how many words a name has says nothing of what is asked about it.
        """
        best = 0
        for name, terms in self._terms.items():
            relation = terms & _terms(spaced(predicate), name)
            start, end = terms & _terms(subject, name), terms & _terms(object, name)
            if relation:
                best = max(best, PREDICATE_WEIGHT * len(relation) + len((start | end) - relation))
            else:
                best = max(best, bool(start) + bool(end))
        return best


@lru_cache(maxsize=10_000)
def _terms(text: str, language: str) -> frozenset[str]:
    return frozenset(analyse(text, stemmer(language)))
