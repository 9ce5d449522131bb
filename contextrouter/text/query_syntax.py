"""Query syntax: words, "phrases", OR and -exclusions, as web searches have them. It never raises.

The text of a user is data: nothing in it is ever read as the query language of a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from contextrouter.text.analysis import _HAS_UNSPACED, _STOPPED, LONGEST, Phrase, Stemmed, analyse, words

MOST_BEGUN = 50  # terms that one beginning stands for
FURTHEST = "\U0010ffff"
_QUOTES = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\uff02\u300c\u300d\u300e\u300f", '"')
)
# An opening quotation mark does not follow a letter or digit (5" is a length), "-" negates only at the start
# of a word.
_SYNTAX = re.compile(r'(?P<no>(?<!\S)-(?=["\w]))?(?:(?<![0-9A-Za-z])"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')


class WebQuery(NamedTuple):
    """A question, parsed.

    `terms` are scored, any of them suffices; of each group in `required` one phrase must occur; of `excluded`
    none may. A term that ends in `FURTHEST` is the beginning of a term: one character of a script without
    spaces.
    """

    terms: tuple[str, ...] = ()
    required: tuple[tuple[Phrase, ...], ...] = ()
    excluded: tuple[Phrase, ...] = ()


def parse(text: str, ways: Sequence[Stemmed | None] = (None,)) -> WebQuery:
    """Read a question as web searches are: `"a phrase"`, `one OR other`, `-without`, and plain words.

    Words are alternatives, the rarer the weightier; a phrase is required; OR between phrases asks for one of
    them. Stop words are scored only when nothing else is left. Whatever has no meaning is ignored; nothing
    raises. `ways` are the stemmers of `analyse` that a text may have been indexed with: any of them may find
    it.
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
    required = [
        tuple(phrase for phrase, _ in group) for group in groups if any(quoted for _, quoted in group)
    ]
    return WebQuery(_scored(groups), tuple(dict.fromkeys(required)), tuple(excluded))


def words_of(texts: Iterable[str]) -> list[str]:
    """The words of queries that are scored, folded: what sources are asked statistics of."""
    asked: dict[str, None] = {}
    for text in texts:
        scored = {*parse(text).terms}
        for word in words(text[:LONGEST]):
            if scored.intersection(analyse(word)):
                asked[word] = None
    return list(asked)


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
