"""Query syntax: a question's words, "phrases", OR and -exclusions, as web searches have them.

Nothing a user writes raises, and nothing of it is ever read as the query language of a database. `parse`
reads the text; `query_terms` turns what it read into the terms of an index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from contextrouter.text.analysis import LONGEST, Phrase, Stemmed, analyse, has_unspaced, stop_terms, words
from contextrouter.text.stemming import ENGLISH, stem_language, stemmer

MOST_EXPANDED = 50  # terms that one beginning stands for
FURTHEST = "\U0010ffff"
_FEW = 3
_QUOTES = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\uff02\u300c\u300d\u300e\u300f", '"')
)
# An opening quotation mark does not follow a letter or digit (5" is a length), "-" negates only at the start
# of a word. `re` compiles the pattern when it is first used.
_SYNTAX = r'(?P<no>(?<!\S)-(?=["\w]))?(?:(?<![0-9A-Za-z])"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))'


class Part(NamedTuple):
    """A word or a phrase of a question; its alternatives where OR stands between several."""

    alternatives: tuple[str, ...]
    required: bool  # one of them is a phrase in quotation marks


class Question(NamedTuple):
    """A question, parsed. All of it is text as the user wrote it."""

    parts: tuple[Part, ...] = ()
    excluded: tuple[str, ...] = ()  # words and phrases after "-"

    @property
    def required(self) -> tuple[tuple[str, ...], ...]:
        """The phrases: of each group, one must occur."""
        return tuple(dict.fromkeys(part.alternatives for part in self.parts if part.required))

    @property
    def only_excludes(self) -> bool:
        """Whether there is nothing to look for, only what must not occur."""
        return bool(self.excluded) and not self.parts

    @property
    def text(self) -> str:
        """What is looked for, as plain text: no quotation marks, no exclusions."""
        return " ".join(text for part in self.parts for text in part.alternatives)


class QueryTerms(NamedTuple):
    """A question in the terms of an index.

    `terms` are scored, any of them suffices; of each group in `required` one phrase must occur; of `excluded`
    none may. A term that ends in `FURTHEST` is the beginning of a term: one character of a script without
    spaces.
    """

    terms: tuple[str, ...] = ()
    required: tuple[tuple[Phrase, ...], ...] = ()
    excluded: tuple[Phrase, ...] = ()


class _Token(NamedTuple):
    text: str
    start: int
    end: int
    excluded: bool
    quoted: bool

    @property
    def is_or(self) -> bool:
        return self.text == "OR" and not (self.excluded or self.quoted)


@lru_cache(maxsize=1_000)
def parse(text: str) -> Question:
    """Read a question: `"a phrase"`, `one OR other`, `-without`, and plain words. Whatever has no meaning is
    ignored.
    """
    parts: list[tuple[list[str], bool]] = []  # alternatives, and whether they are required
    excluded: dict[str, None] = {}
    joins = False  # OR stands before this word
    for token in _tokens(text):
        if token.is_or:
            joins = bool(parts)
            continue
        if not words(token.text):
            continue
        if token.excluded:
            excluded[token.text] = None
        elif joins:
            alternatives, required = parts.pop()
            alternatives.append(token.text)
            parts.append((alternatives, required or token.quoted))
        else:
            parts.append(([token.text], token.quoted))
        joins = False
    return Question(tuple([Part(tuple(texts), required) for texts, required in parts]), tuple(excluded))


def query_terms(
    text: str,
    *,
    required: Iterable[Sequence[str]] = (),
    excluded: Iterable[str] = (),
    language: str = ENGLISH,
    stemmers: Sequence[Stemmed | None] = (),
) -> QueryTerms:
    """Return the index terms of a question. Words are alternatives, the rarer the weightier.

    `required` and `excluded` come on top of those in the text. Stop words are scored only where OR stands
    beside them, or when nothing else is left. The terms are those of texts in `language`; or, where there are
    `stemmers`, of texts that were analysed with any of them (None: the English one). Those have stop words of
    their own.
    """
    question = parse(text)
    own = stemmer(language)
    stemmers = stemmers or (own,)
    terms = dict.fromkeys(
        term
        for stemmed in stemmers
        for term in _scored(
            question.parts, stemmed, stop_terms(stem_language(language)) if stemmed is own else frozenset()
        )
    )
    groups = dict.fromkeys((*question.required, *map(tuple, required)))
    return QueryTerms(
        tuple(terms),
        tuple(dict.fromkeys(phrases for group in groups if (phrases := _phrases(group, stemmers)))),
        _phrases((*question.excluded, *excluded), stemmers),
    )


def terms_of_words(text: str, stemmed: Stemmed | None = None) -> list[str]:
    """Return the index terms of what is looked for, stop words and repetitions too, in order: as many and in
    the same places for every stemmer that has no stop words of its own.
    """
    return [
        term for part in parse(text).parts for each in part.alternatives for term in _phrase(each, stemmed)
    ]


def scored_words(texts: Iterable[str]) -> list[str]:
    """Return the words of queries that are scored, folded: what sources are asked statistics of."""
    asked: dict[str, None] = {}
    for text in texts:
        scored = {*query_terms(text).terms}
        for word in words(text[:LONGEST]):
            if scored.intersection(analyse(word)):
                asked[word] = None
    return list(asked)


def loosen(text: str) -> str:
    """Return the words of a question without its phrases: plain words, and its exclusions."""
    question = parse(text)
    return " ".join(filter(None, (*words(question.text), write_exclusions(question.excluded))))


def drop_exclusions(text: str) -> str:
    """Return a question without the words and phrases that it excludes."""
    end, parts = 0, []
    for token in _tokens(text):
        if token.excluded:
            parts.append(text[end : token.start])
            end = token.end
    return "".join((*parts, text[end:]))


def write_exclusions(excluded: Iterable[str]) -> str:
    """Return exclusions as a question has them: `-word -"a phrase"`."""
    return " ".join(f"-{text}" if re.fullmatch(r"\w\S*", text) else f'-"{text}"' for text in excluded)


def occurs(phrase: Phrase, fields: Iterable[Sequence[str]]) -> bool:
    """Whether the terms of a phrase stand side by side in one of the fields, each given as its terms."""
    *head, tail = phrase
    beginning = tail.removesuffix(FURTHEST)
    size = len(head)
    for terms in fields:
        for end in range(size, len(terms)):
            term = terms[end]
            matches = term == tail or (beginning != tail and term.startswith(beginning))
            if matches and list(terms[end - size : end]) == head:
                return True
    return False


def any_occurs(phrases: Sequence[Phrase], fields: Sequence[Sequence[str]]) -> bool:
    """Whether one of the phrases occurs. The terms are read once, however many phrases there are."""
    if len(phrases) <= _FEW:
        return any([occurs(phrase, fields) for phrase in phrases])
    by_tail = _by_tail(tuple(phrases))
    for terms in fields:
        present = set(terms)
        likely = [*present, *{term[:1] for term in present}]
        if any([occurs(phrase, (terms,)) for tail in likely for phrase in by_tail.get(tail, ())]):
            return True
    return False


@lru_cache(maxsize=100)
def _by_tail(phrases: tuple[Phrase, ...]) -> dict[str, list[Phrase]]:
    """Return phrases by their last term, or by its first character where that is a beginning of terms."""
    by_tail: dict[str, list[Phrase]] = {}
    for phrase in phrases:
        tail = phrase[-1]
        by_tail.setdefault(tail[:1] if tail.endswith(FURTHEST) else tail, []).append(phrase)
    return by_tail


def obeys(asked: QueryTerms, fields: Sequence[Sequence[str]]) -> bool:
    """Whether a text, given as the terms of its fields, has a phrase of each required group, and no excluded
    one.
    """
    if any_occurs(asked.excluded, fields):
        return False
    return all(any(occurs(phrase, fields) for phrase in group) for group in asked.required)


def holds_any(texts: Sequence[str], fields: Sequence[str], language: str | None = None) -> bool:
    """Whether a word or phrase of `texts` occurs in a field, in any inflection.

    Inflections are those of English, and of `language` where it has stems.
    """
    for code in dict.fromkeys((ENGLISH, stem_language(language))):
        stemmed = stemmer(code)
        phrases = _phrases_of(tuple(texts), code)
        if any_occurs(phrases, [analyse(field, stemmed) for field in fields if field]):
            return True
    return False


@lru_cache(maxsize=100)
def _phrases_of(texts: tuple[str, ...], language: str) -> tuple[Phrase, ...]:
    """Return the phrases that texts stand for; kept, because every document is compared with them."""
    return _phrases(texts, (stemmer(language),))


def _tokens(text: str) -> Iterator[_Token]:
    text = text[:LONGEST].translate(_QUOTES)
    for match in re.finditer(_SYNTAX, text):
        quoted = match["phrase"] is not None
        spelled = match["phrase"] if quoted else match["word"]
        yield _Token(spelled, *match.span(), match["no"] is not None, quoted)


def _scored(parts: Sequence[Part], stemmed: Stemmed | None, stops: frozenset[str]) -> list[str]:
    """Return the terms that one stemmer makes of a question, without stop words that tell nothing."""
    tells: dict[str, bool] = {}
    for part in parts:
        chosen = len(part.alternatives) > 1
        for alternative in part.alternatives:
            for term in filter(None, _phrase(alternative, stemmed)):
                tells[term] = tells.get(term, False) or chosen or term not in stops
    return [term for term, tell in tells.items() if tell] or list(tells)


def _phrases(texts: Iterable[str], stemmers: Iterable[Stemmed | None]) -> tuple[Phrase, ...]:
    """Return the phrases that each text stands for, one for each stemmer."""
    stemmers = tuple(stemmers)
    phrases = (_phrase(text, stemmed) for text in texts for stemmed in stemmers)
    return tuple(dict.fromkeys(phrase for phrase in phrases if phrase))


@lru_cache(maxsize=10_000)
def _english_phrase(text: str) -> Phrase:
    """Kept, because the queries of a question have most of their words in common."""
    return _make_phrase(text, None)


def _phrase(text: str, stemmed: Stemmed | None) -> Phrase:
    """Return the terms of a word or phrase."""
    return _english_phrase(text) if stemmed is None else _make_phrase(text, stemmed)


def _make_phrase(text: str, stemmed: Stemmed | None) -> Phrase:
    """Return the terms of a phrase; a single character of a script without spaces stands for all terms that
    it begins.
    """
    terms = analyse(text, stemmed)
    while terms and not terms[-1]:
        terms.pop()
    while terms and not terms[0]:
        terms.pop(0)
    if terms and len(terms[-1]) == 1 and has_unspaced(terms[-1]):
        if len(terms) > 1 and len(terms[-2]) == 2 and terms[-2][1] == terms[-1]:
            terms.pop()  # the run may go on in the document
        else:
            terms[-1] += FURTHEST
    return tuple(terms)
