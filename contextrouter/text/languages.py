"""Languages of an index: each text has the stems of its own language, and a question is asked in each of
them.

A word of a question occurs in a text when both have one stem in the language of the text. So "news" does not
find "new" in an English text, although that is its French stem; and "Berlin" is found in every language.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple, Self, TypeAlias

from contextrouter.text.analysis import Phrase, analyse
from contextrouter.text.query_syntax import QueryTerms, obeys, query_terms, terms_of_words
from contextrouter.text.stemming import ENGLISH, STEMMED, stemmer

Languages: TypeAlias = "frozenset[str] | None"
"""Values of `stem_language`; None: all of them."""
Word: TypeAlias = Mapping[str, Languages]
"""A word of a question: its index terms, each with the languages of the texts in which it is that term."""


class LanguageTerms(NamedTuple):
    """A question in the terms of an index, for the texts of each language.

    `words` are scored, any of them suffices. A word is as frequent as its terms together: each text is
    counted in its own language. `by_language` says what must and what must not occur in texts of a language;
    it has English, which also counts for languages that it lacks.
    """

    words: Sequence[Word]
    by_language: Mapping[str, QueryTerms]

    @classmethod
    def of_all(cls, question: QueryTerms) -> Self:
        """Return a question that has the same terms in all languages."""
        return cls([{term: None} for term in question.terms], {ENGLISH: question})

    def phrases(self) -> list[tuple[Languages, QueryTerms]]:
        """Return what must and what must not occur, with the languages of the texts for which it holds."""
        languages: dict[QueryTerms, set[str]] = {}
        for language, question in self.by_language.items():
            if question.required or question.excluded:
                languages.setdefault(question._replace(terms=()), set()).add(language)
        return [(_some(group, self.by_language), phrases) for phrases, group in languages.items()]

    def without_phrases(self) -> Self:
        """Return the question without what must occur."""
        return self._replace(by_language={k: q._replace(required=()) for k, q in self.by_language.items()})

    def allows(self, fields: Sequence[Sequence[str]], language: str) -> bool:
        """Whether a text in a language, given as the terms of its fields, has a phrase of each required
        group, and no excluded one.
        """
        return obeys(self.by_language.get(language) or self.by_language[ENGLISH], fields)


def language_terms(
    text: str,
    languages: Iterable[str] = (),
    *,
    required: Iterable[Sequence[str]] = (),
    excluded: Iterable[str] = (),
) -> LanguageTerms:
    """Return a question in the terms of an index that holds English texts and texts in `languages`, which are
    values of `stem_language`.
    """
    return _language_terms(
        text, tuple(_with_english(languages)), tuple([tuple(group) for group in required]), tuple(excluded)
    )


@lru_cache(maxsize=1_000)
def _language_terms(
    text: str, languages: tuple[str, ...], required: tuple[Phrase, ...], excluded: tuple[str, ...]
) -> LanguageTerms:
    """Kept, because each query is asked of several legs."""
    by_language = {
        language: query_terms(text, required=required, excluded=excluded, language=language)
        for language in languages
    }
    if len(by_language) == 1:
        return LanguageTerms.of_all(by_language[ENGLISH])
    return LanguageTerms(_words(text, by_language), by_language)


def _words(text: str, by_language: Mapping[str, QueryTerms]) -> list[Word]:
    """Return the words of a question that are scored, each term of a language once."""
    remaining = {language: {*question.terms} for language, question in by_language.items()}
    words: list[Word] = []
    for row in zip_longest(*(terms_of_words(text, stemmer(language)) for language in by_language)):
        languages: dict[str, set[str]] = {}
        for language, term in zip(by_language, row, strict=True):
            if term in remaining[language]:
                remaining[language].remove(term)
                languages.setdefault(term, set()).add(language)
        if languages:
            words.append({term: _some(group, by_language) for term, group in languages.items()})
    return words


def analyses(text: str, languages: Iterable[str]) -> dict[Phrase, Languages]:
    """Return the index terms of a text in English and in each of `languages`, and which of them give them.

    A text has one language, so counts of texts that have the terms, each in those languages, add up.
    """
    codes = _with_english(languages)
    groups: dict[Phrase, set[str]] = {}
    for language in codes:
        groups.setdefault(tuple(analyse(text, stemmer(language))), set()).add(language)
    return {terms: _some(group, codes) for terms, group in groups.items() if terms}


def others(languages: frozenset[str]) -> list[str]:
    """Return the languages that have stems of their own and are not among these.

    A text without a language counts as English, so English texts are known by what they are not.
    """
    return sorted(STEMMED - languages)


def _some(languages: set[str], codes: Collection[str]) -> Languages:
    return None if len(languages) == len(codes) else frozenset(languages)


def _with_english(languages: Iterable[str]) -> list[str]:
    return [ENGLISH, *sorted({*languages} - {ENGLISH})]
