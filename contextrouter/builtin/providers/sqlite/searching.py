"""Search of a SQLite store: the queries of a batch on one snapshot of the file, which share what is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.providers.job_runs import add_run_times
from contextrouter.builtin.providers.queries import query_direction, terms_of
from contextrouter.builtin.providers.sqlite import lookup, mentions_leg, schema
from contextrouter.builtin.providers.sqlite.file import Stop, begin_snapshot, end_snapshot
from contextrouter.builtin.providers.sqlite.filter import admitted
from contextrouter.builtin.providers.sqlite.score_sums import Contributions
from contextrouter.builtin.providers.sqlite.search_batches import Answers
from contextrouter.builtin.providers.sqlite.text_leg import TextIndex, TextQuery
from contextrouter.builtin.providers.sqlite.vector_leg import CodeIndex, StaleSnapshot, VectorQuery
from contextrouter.builtin.providers.vector_slots import answering, choose
from contextrouter.errors import SourceError
from contextrouter.model import Document, Hit, Query, Vector
from contextrouter.vectors import unit_array

Numbered = Sequence[tuple[int, float]]
"""Numbers of chunks and their scores."""


class Ranking(NamedTuple):
    """Chunks that were found, best first, and vectors of these and others."""

    ranked: Numbered
    vectors: Mapping[int, Vector]


class Snapshot:
    """One look at a store. `model` and `dimensions` are those of the embedder whose vectors it is asked with.

    A number stands for the same chunk in every snapshot, so that what was read stays right in a later one.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        stop: Stop,
        text: TextIndex,
        vector_indexes: Mapping[tuple[str, str], CodeIndex],
        embedded_by: tuple[str, int],
    ) -> None:
        self.connection, self.stop = connection, stop
        self._text_index, self._vector_indexes, self._embedded_by = text, vector_indexes, embedded_by
        self._read_notes()
        self._documents: dict[int, Document] = {}
        self._unread: dict[int, None] = {}  # chunks that were found
        self._vectors_at: dict[tuple[str, str], dict[int, Any]] = {each: {} for each in vector_indexes}
        self._contributions: Contributions = {}

    def _read_notes(self) -> None:
        """Read when jobs were run, and the languages of the chunks."""
        self._runs = schema.runs(self.connection)
        self._languages = schema.languages(self.connection)

    def answer(self, queries: Sequence[Query], answers: Answers) -> None:
        """Add the hits of each query to `answers`, or the error that kept it from having any."""
        rankings: list[Ranking | SourceError] = []
        for query in queries:
            try:
                rankings.append(self.rank(query))
            except SourceError as error:
                rankings.append(error)
        self._read_documents()
        answers += [each if isinstance(each, SourceError) else self._hits(each) for each in rankings]

    def rank(self, query: Query) -> Ranking:
        """The chunks that a query finds, best first; ties by id. Raises SourceError, SourceTimeout at the
        deadline.
        """
        self.stop.check()
        return self._rank_texts(query) if query.leg == "text" else self._rank_vectors(query)

    def mentions(self, query: Query) -> list[Hit]:
        """A chunk of each document that names an entity of a query."""
        condition = admitted(query, terms_of(query, self._languages).without_phrases())
        best = mentions_leg.find_mentions(self.connection, query, condition, self.stop)
        ranking = self._ranking(best, query.limit, self._vectors_of(best))
        self._read_documents()
        return self._hits(ranking)

    def _rank_texts(self, query: Query) -> Ranking:
        schema.refuse_other_analysis(self.connection)
        question = terms_of(query, self._languages)
        condition = admitted(query, question)
        best = self._text_index.search(
            self.connection,
            TextQuery(question.words, query.scope, condition, query.limit),
            self._contributions,
            self.stop,
        )
        return self._ranking(best, query.limit, self._vectors_of(best))

    def _rank_vectors(self, query: Query) -> Ranking:
        vector = query_direction(query, unit_array)
        while True:
            self.stop.check()
            slot = choose(schema.slots(self.connection), *self._embedded_by)
            if vector is None:
                return Ranking([], {})
            place = slot.suffix, query.leg
            condition = admitted(query, terms_of(query, self._languages).without_phrases())
            try:
                best = self._vector_indexes[place].search(
                    self.connection,
                    VectorQuery(vector, condition, query.limit),
                    self._vectors_at[place],
                    self.stop,
                )
                return self._ranking(best, query.limit, self._vectors_at[place])
            except StaleSnapshot:
                self._read_documents()  # a later snapshot may lack them, and have vectors of another model
                self._vectors_at = {each: {} for each in self._vector_indexes}
                end_snapshot(self.connection)
                begin_snapshot(self.connection)
                self._read_notes()

    def _ranking(self, best: Numbered, limit: int, vectors: Mapping[int, Vector]) -> Ranking:
        """The best, whose documents are to be read; equal scores in the order of ids, whatever the order of
        writing.
        """
        ranked = lookup.rank(self.connection, best, limit)
        self._unread.update(dict.fromkeys([number for number, _ in ranked]))
        return Ranking(ranked, vectors)

    def _read_documents(self) -> None:
        """Read what the rankings of this snapshot found, each chunk once."""
        numbers = [number for number in self._unread if number not in self._documents]
        self._unread.clear()
        if numbers:
            chunks = add_run_times(lookup.texts(self.connection, numbers), self._runs)
            self._documents.update(zip(numbers, chunks, strict=True))

    def _hits(self, ranking: Ranking) -> list[Hit]:
        documents, vector = self._documents, ranking.vectors.get
        return [
            Hit(document=documents[number], score=score, vector=vector(number))
            for number, score in ranking.ranked
        ]

    def _vectors_of(self, best: Numbered) -> Mapping[int, Vector]:
        """The vectors of chunks, where they are of the model that questions have."""
        slot = answering(schema.slots(self.connection), *self._embedded_by) if self._vector_indexes else None
        if slot is None:
            return {}
        place, chunks = (slot.suffix, "vector"), [number for number, _ in best]
        self._vector_indexes[place].read_vectors(self.connection, chunks, self._vectors_at[place])
        return self._vectors_at[place]
