"""Words as text-search configurations of Postgres have them, where the settings name some; else as all stores
have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from contextrouter.builtin.providers.postgres import schema
from contextrouter.builtin.providers.queries import terms_of
from contextrouter.builtin.providers.vector_slots import REBUILD
from contextrouter.errors import SourceError
from contextrouter.model import Document, Query
from contextrouter.text import analysis, query_syntax
from contextrouter.text.analysis import Phrase, Stemmed
from contextrouter.text.fields import fields
from contextrouter.text.languages import Languages, LanguageTerms, analyses
from contextrouter.text.stemming import ALGORITHMS, stem_language, stemmer

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection

_UNKNOWN = ("cs", "en", "et", "pl")
CONFIGURATIONS = {code: name for code, name in ALGORITHMS.items() if code not in _UNKNOWN}
"""Language -> the configuration that Postgres has for it: the Snowball algorithm of the same name, and stop
words. English has the stems of all stores.
"""
_CONFIGURATION = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")
_OF = "\x1f"  # between a term and the language it is of, so that no chunk of another one has it
_VERSION = f"{analysis.ANALYSIS}:"  # of the analysis; stores of version 1 have none in their note
_MOST_KEPT = 100_000
_SQL = (
    "SELECT word, CASE cardinality(found) WHEN 0 THEN '' WHEN 1 THEN found[1] ELSE word END AS term FROM"
    " (SELECT word, tsvector_to_array(to_tsvector($1::text::regconfig, word)) AS found FROM"
    " unnest($2::text[]) AS word) w"
)


class Words:
    """Stems, and stop words: of a configuration of Postgres for all chunks, or of `languages` for those in
    one of them.

    Neither: those of all stores. What Postgres has told is kept. Raises ValueError for a language
    without configuration.
    """

    def __init__(self, configuration: str = "", languages: Sequence[str] = ()) -> None:
        if configuration and languages:
            raise ValueError(
                f"text_search {configuration!r} and languages {list(languages)!r} are both given; give one of"
                " them."
            )
        if configuration and not _CONFIGURATION.fullmatch(configuration):
            raise ValueError(
                f"text_search {configuration!r} is no name of a text-search configuration, such as 'german'."
            )
        for language in languages:
            if language not in CONFIGURATIONS:
                known = ", ".join(CONFIGURATIONS)
                raise ValueError(
                    f"languages {language!r} is none that Postgres has words of. It has: {known}."
                )
        self.configuration, self.languages = configuration, tuple(sorted(set(languages)))
        self.configured = bool(configuration or languages)
        self.note = _VERSION + (f"languages {' '.join(self.languages)}" if languages else configuration)
        self._known: dict[str, dict[str, str]] = {}

    async def ways(self, connection: Connection, texts: Sequence[str]) -> list[Stemmed | None]:
        """How the words of these texts may be indexed; None: with English stems. Asks Postgres for words that
        are new.
        """
        if self.configuration:
            return [await self._of(connection, self.configuration, texts)]
        return [None, *[await self._tagged(connection, language, texts) for language in self.languages]]

    async def of_chunks(
        self, connection: Connection, chunks: Sequence[Document]
    ) -> Callable[[Document], Stemmed | None]:
        """How the words of each of these chunks are indexed."""
        if self.configuration:
            texts = [text for chunk in chunks for text in fields(chunk)]
            way = await self._of(connection, self.configuration, texts)
            return lambda chunk: way
        by_language: dict[str, Stemmed] = {}
        for language in {stem_language(chunk.language) for chunk in chunks}.intersection(self.languages):
            of_language = [chunk for chunk in chunks if stem_language(chunk.language) == language]
            texts = [text for chunk in of_language for text in fields(chunk)]
            by_language[language] = await self._tagged(connection, language, texts)
        return lambda chunk: by_language.get(stem_language(chunk.language))

    async def query_terms(self, connection: Connection, query: Query) -> LanguageTerms:
        """Return a question of a user in index terms, of every way in which chunks may be indexed."""
        if not self.configured:
            return terms_of(query, await schema.languages(connection))
        groups = [text for group in query.required for text in group]
        texts = [query.text[: analysis.LONGEST], *groups, *query.excluded]
        terms = query_syntax.query_terms(
            query.text,
            required=query.required,
            excluded=query.excluded,
            stemmers=await self.ways(connection, texts),
        )
        return LanguageTerms.of_all(terms)

    async def analyses(
        self, connection: Connection, texts: Sequence[str]
    ) -> dict[str, dict[Phrase, Languages]]:
        """Return the index terms that each of these texts may have, and in chunks of which languages."""
        if not self.configured:
            languages = await schema.languages(connection)
            return {text: analyses(text, languages) for text in texts}
        ways = await self.ways(connection, texts)
        every = {text: [tuple(filter(None, analysis.analyse(text, way))) for way in ways] for text in texts}
        return {text: {terms: None for terms in found if terms} for text, found in every.items()}

    def refuse_others(self, known: str | None) -> None:
        """Raise SourceError when the store was filled with other words than these (None: it is empty)."""
        if known is not None and not known.startswith(_VERSION):
            raise SourceError(
                f"Store was indexed by an older text analysis than this contextrouter has; run {REBUILD}."
            )
        if known is not None and known != self.note:
            raise SourceError(
                f"Store was filled with {_described(known)}, the settings have {_described(self.note)};"
                f" name the former, or run {REBUILD}."
            )

    async def _tagged(self, connection: Connection, language: str, texts: Iterable[str]) -> Stemmed:
        of = await self._of(connection, CONFIGURATIONS[language], texts)

        def tagged(word: str) -> str:
            term = of(word)
            return term and f"{term}{_OF}{language}"

        return tagged

    async def _of(self, connection: Connection, configuration: str, texts: Iterable[str]) -> Stemmed:
        known = self._known.setdefault(configuration, {})
        words = {word for text in texts for word in analysis.stemmable_words(text)}
        terms = {word: known[word] for word in words if word in known}
        if len(terms) < len(words):
            new = dict(await connection.fetch(_SQL, configuration, sorted(words - terms.keys())))
            terms.update(new)
            if len(known) + len(new) > _MOST_KEPT:
                known.clear()
            known.update(new)
        return lambda word: terms.get(word, word)


def of_all_stores(chunk: Document) -> Stemmed | None:
    """How the words of a chunk are indexed where the settings name nothing: with the stems of its
    language.
    """
    return stemmer(chunk.language)


def _described(note: str) -> str:
    configuration = note.removeprefix(_VERSION)
    kind, _, languages = configuration.partition(" ")
    return (
        f"languages = {languages.split()!r}"
        if kind == "languages" and languages
        else f"text_search = {configuration!r}"
    )
