"""Search of a SQLite store: the queries of a batch on one snapshot of the file, which share what is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from contextrouter.builtin.providers.job_runs import add_run_times
from contextrouter.builtin.providers.sqlite import lookup, mentions_leg, schema
from contextrouter.builtin.providers.sqlite.file import Stop, begin_snapshot, end_snapshot
from contextrouter.builtin.providers.sqlite.filter import admitted
from contextrouter.builtin.providers.sqlite.search_batches import Answers
from contextrouter.builtin.providers.sqlite.text_leg import TextIndex
from contextrouter.builtin.providers.sqlite.vector_leg import CodeIndex, StaleSnapshot
from contextrouter.builtin.providers.vector_slots import choose
from contextrouter.errors import SourceError
from contextrouter.model import Document, Hit, Query, Vector
from contextrouter.text.languages import LanguageTerms, language_terms
from contextrouter.vectors import unit_array

Numbered = Sequence[tuple[int, float]]
"""Numbers of chunks and their scores."""


class Snapshot:
    """One look at a store. `model` and `dimensions` are those of the embedder whose vectors it is asked with.

    A number stands for the same chunk in every snapshot, so that what was read stays right in a later one.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        stop: Stop,
        text: TextIndex,
        nearby: Mapping[tuple[str, str], CodeIndex],
        embedded_by: tuple[str, int],
    ) -> None:
        self.connection, self.stop = connection, stop
        self._text_index, self._nearby, self._embedded_by = text, nearby, embedded_by
        self._runs = schema.runs(connection)
        self._languages = schema.languages(connection)
        self._documents: dict[int, Document] = {}

    def answer(self, queries: Sequence[Query], answers: Answers) -> None:
        """Add the hits of each query to `answers`, or the error that kept it from having any."""
        for query in queries:
            try:
                answers.append(self.search(query))
            except SourceError as error:
                answers.append(error)

    def search(self, query: Query) -> list[Hit]:
        """The hits of a query, best first; ties by id. Raises SourceError, SourceTimeout at the deadline."""
        self.stop.check()
        return self._search_text(query) if query.leg == "text" else self._search_vectors(query)

    def mentions(self, query: Query) -> list[Hit]:
        """A chunk of each document that names an entity of a query."""
        condition = admitted(query, self._terms_of(query).without_phrases())
        best = mentions_leg.find_mentions(self.connection, query, condition, self.stop)
        return self._hits(best, query.limit, self._vectors_of(best))

    def _terms_of(self, query: Query) -> LanguageTerms:
        required, excluded = query.required, query.excluded
        return language_terms(query.text, self._languages, required=required, excluded=excluded)

    def _search_text(self, query: Query) -> list[Hit]:
        schema.refuse_other_analysis(self.connection)
        question = self._terms_of(query)
        condition = admitted(query, question)
        best = self._text_index.search(
            self.connection, question.words, query.scope, condition, query.limit, self.stop
        )
        return self._hits(best, query.limit, self._vectors_of(best))

    def _search_vectors(self, query: Query) -> list[Hit]:
        if query.vector is None:
            raise SourceError(
                f"Leg {query.leg!r} needs a query vector and got none; set `embedder` to a defined embedder."
            )
        nearby = self._nearby[self._suffix(), query.leg]
        try:
            vector = unit_array(query.vector)
        except (ValueError, TypeError) as error:
            raise SourceError(f"Query on the leg {query.leg!r} {error}.") from error
        if vector is None:
            return []
        while True:
            self.stop.check()
            condition = admitted(query, self._terms_of(query).without_phrases())
            try:
                near = nearby.search(self.connection, vector, condition, query.limit, self.stop)
                return self._hits(near.ranked, query.limit, near.vectors)
            except StaleSnapshot:
                end_snapshot(self.connection)
                begin_snapshot(self.connection)

    def _hits(self, best: Numbered, limit: int, vectors: Mapping[int, Vector]) -> list[Hit]:
        """The best as hits; equal scores in the order of ids, whatever the order of writing."""
        ranked, known = lookup.rank(self.connection, best, limit), self._documents
        unread = [number for number, _ in ranked if number not in known]
        chunks = add_run_times(lookup.texts(self.connection, unread), self._runs) if unread else ()
        known.update(zip(unread, chunks, strict=True))
        return [
            Hit(document=known[number], score=score, vector=vectors.get(number)) for number, score in ranked
        ]

    def _vectors_of(self, best: Numbered) -> Mapping[int, Vector]:
        """The vectors of chunks, where they are of the model that questions have."""
        if not self._nearby:
            return {}
        try:
            nearby = self._nearby[self._suffix(), "vector"]
        except SourceError:  # other models filled the store
            return {}
        return nearby.vectors_of(self.connection, [number for number, _ in best])

    def _suffix(self) -> str:
        """The place of the vectors that questions are compared with. Raises SourceError."""
        return choose(schema.slots(self.connection), *self._embedded_by).suffix


def terms_of(connection: sqlite3.Connection, query: Query) -> LanguageTerms:
    """A query in the terms of the index, for the languages that the store holds."""
    languages = schema.languages(connection)
    return language_terms(query.text, languages, required=query.required, excluded=query.excluded)
