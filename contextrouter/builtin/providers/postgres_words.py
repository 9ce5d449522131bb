"""Words as a text-search configuration of Postgres has them, where the settings name one; else as all stores have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from contextrouter import websearch
from contextrouter.builtin.providers.postgres_schema import REBUILD
from contextrouter.errors import SourceError
from contextrouter.websearch import WebQuery

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres_pool import Connection

Stemmed = Callable[[str], str]
"""A folded word -> its index term; "" for a stop word."""
_MOST_KEPT = 100_000
_SQL = (
    "SELECT word, CASE cardinality(found) WHEN 0 THEN '' WHEN 1 THEN found[1] ELSE word END AS term FROM"
    " (SELECT word, tsvector_to_array(to_tsvector($1::text::regconfig, word)) AS found FROM unnest($2::text[]) AS word) w"
)


class Words:
    """Stems, and stop words, of one configuration of Postgres; "": of contextrouter's own analysis. What it was told, it keeps."""

    def __init__(self, configuration: str) -> None:
        self.configuration = configuration
        self._known: dict[str, str] = {}

    async def stemmed(self, connection: Connection, texts: Iterable[str]) -> Stemmed | None:
        """How the words of these texts are indexed; None: in the way of all stores. Asks Postgres for words that are new."""
        if not self.configuration:
            return None
        words = {word for text in texts for word in websearch.spaced(text)}
        terms = {word: self._known[word] for word in words if word in self._known}
        if len(terms) < len(words):
            new = dict(await connection.fetch(_SQL, self.configuration, sorted(words - terms.keys())))
            terms.update(new)
            if len(self._known) + len(new) > _MOST_KEPT:
                self._known.clear()
            self._known.update(new)
        return lambda word: terms.get(word, word)

    async def parsed(self, connection: Connection, text: str) -> WebQuery:
        """A question of a user, in index terms."""
        return websearch.parse(text, await self.stemmed(connection, [text[: websearch.LONGEST]]))

    def refuse_others(self, known: str | None) -> None:
        """Raise SourceError when the store was filled with the words of another configuration (None: it is empty)."""
        if known is not None and known != self.configuration:
            raise SourceError(
                f"Store was filled with text_search = {known!r}, the settings have {self.configuration!r};"
                f" name the former, or run {REBUILD}."
            )
