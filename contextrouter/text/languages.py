"""Languages of an index: each text has the stems of its own language, and a question is asked in each of
them.

A word of a question occurs in a text when both have one stem in the language of the text. So "news" does not
find "new" in an English text, although that is its French stem; and "Berlin" is found in every language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from contextrouter.text.analysis import Phrase, analyse
from contextrouter.text.query_syntax import QueryTerms, obeys, query_terms
from contextrouter.text.stemming import ENGLISH, STEMMED, stemmer

Languages: TypeAlias = "frozenset[str] | None"
"""Values of `stem_language`; None: all of them."""


class LanguageTerms(NamedTuple):
    """A question in the terms of an index, for the texts of each language.

    `by_language` has one item at least; a text in a language without one is asked in English, or, where there
    is none, as the only item says.
    """

    by_language: Mapping[str, QueryTerms]

    def of(self, language: str) -> QueryTerms:
        """Return the question for texts whose `stem_language` is `language`."""
        asked = self.by_language
        return asked.get(language) or asked.get(ENGLISH) or next(iter(asked.values()))

    def terms(self) -> dict[str, Languages]:
        """Return the terms that are scored, each with the languages of the texts in which it is looked for.

        They come in the order of the question's words.
        """
        languages: dict[str, set[str]] = {}
        for row in zip_longest(*(asked.terms for asked in self.by_language.values())):
            for language, term in zip(self.by_language, row, strict=True):
                if term is not None:
                    languages.setdefault(term, set()).add(language)
        return {term: self._together(found) for term, found in languages.items()}

    def phrases(self) -> list[tuple[Languages, QueryTerms]]:
        """Return what must and what must not occur, with the languages of the texts for which it holds."""
        languages: dict[QueryTerms, set[str]] = {}
        for language, asked in self.by_language.items():
            if asked.required or asked.excluded:
                languages.setdefault(asked._replace(terms=()), set()).add(language)
        return [(self._together(found), asked) for asked, found in languages.items()]

    def without_phrases(self) -> LanguageTerms:
        """Return the question without what must occur."""
        return LanguageTerms({key: asked._replace(required=()) for key, asked in self.by_language.items()})

    def obeyed_by(self, fields: Sequence[Sequence[str]], language: str) -> bool:
        """Whether a text in a language, given as the terms of its fields, has a phrase of each required
        group, and no excluded one.
        """
        return obeys(self.of(language), fields)

    def _together(self, languages: set[str]) -> Languages:
        return None if len(languages) == len(self.by_language) else frozenset(languages)


def language_terms(
    text: str,
    languages: Iterable[str] = (),
    *,
    required: Iterable[Sequence[str]] = (),
    excluded: Iterable[str] = (),
) -> LanguageTerms:
    """Return a question in the terms of an index that holds English and texts in `languages`, which are
    values of `stem_language`.
    """
    required, excluded = tuple(required), tuple(excluded)
    return LanguageTerms(
        {
            language: query_terms(text, required=required, excluded=excluded, language=language)
            for language in _all(languages)
        }
    )


def analyses(text: str, languages: Iterable[str]) -> dict[Phrase, Languages]:
    """Return the index terms of a text in each language, and which languages give them.

    A text has one language, so the texts that have them, counted in those languages, add up.
    """
    held = _all(languages)
    found: dict[Phrase, set[str]] = {}
    for language in held:
        found.setdefault(tuple(analyse(text, stemmer(language))), set()).add(language)
    return {
        terms: None if len(given) == len(held) else frozenset(given)
        for terms, given in found.items()
        if terms
    }


def others(languages: frozenset[str]) -> list[str]:
    """Return the languages that have stems of their own and are not among these.

    A text without a language counts as English, so English texts are known by what they are not.
    """
    return sorted(STEMMED - languages)


def _all(languages: Iterable[str]) -> list[str]:
    return [ENGLISH, *sorted({*languages} - {ENGLISH})]
