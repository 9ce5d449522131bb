# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""The leg `mentions`: documents whose facts or key phrases name an entity."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

from contextrouter.builtin.providers.filtering import PHRASES
from contextrouter.builtin.providers.mentions import (
    Chunk,
    FactNames,
    Mentions,
    PhraseName,
    mention_candidates,
)
from contextrouter.builtin.providers.sqlite.file import Stop
from contextrouter.builtin.providers.sqlite.filter import Condition, visible
from contextrouter.model import Query

_AMONG = "(SELECT value FROM json_each(?1))"


def find_mentions(
    connection: sqlite3.Connection, query: Query, condition: Condition, stop: Stop
) -> list[tuple[int, float]]:
    """(chunk number, score) of the documents that name entities of a query, best first; `condition` is what
    chunks must meet.
    """
    mentions = _collect(connection, query, condition, stop)
    ranked = mentions.rank(_first_chunks(connection, condition, mentions.without_chunk))
    return [(number, score) for (_, _, number), score in ranked[: max(query.limit, 0)]]


def find_names(
    connection: sqlite3.Connection, query: Query, condition: Condition, stop: Stop
) -> frozenset[str]:
    """The entities of a query that facts or key phrases in scope have as names, as names are compared."""
    return frozenset(_collect(connection, query, condition, stop).names)


def _collect(connection: sqlite3.Connection, query: Query, condition: Condition, stop: Stop) -> Mentions:
    candidates = mention_candidates(query)
    keys = json.dumps(sorted(candidates.keys))
    return Mentions(
        candidates, _facts(connection, query, keys, stop), _phrase_names(connection, condition, keys)
    )


def _facts(connection: sqlite3.Connection, query: Query, keys: str, stop: Stop) -> Iterator[FactNames]:
    access = visible(query.scope, "f")
    rows = connection.execute(
        "SELECT f.document, f.subject_key, f.object_key FROM facts f WHERE f.number IN (SELECT number FROM"
        f" facts WHERE subject_key IN {_AMONG} UNION SELECT number FROM facts WHERE object_key IN {_AMONG})"
        f" AND {access.where}",
        (keys, *access.values),
    )
    for document, *names in rows:
        stop.check()
        yield FactNames(document, frozenset(filter(None, names)))


def _phrase_names(connection: sqlite3.Connection, condition: Condition, keys: str) -> Iterator[PhraseName]:
    rows = connection.execute(
        "SELECT c.document, c.number, c.id, c.tenant, v.value FROM filter_values v JOIN filters f ON f.value"
        f" = v.number JOIN chunks c ON c.number = f.chunk WHERE v.value IN {_AMONG} AND v.key = ? AND"
        f" {condition.where}",
        (keys, PHRASES, *condition.values),
    )
    for document, number, id, tenant, name in rows:
        yield PhraseName(document, number, (id, tenant, number), name)


def _first_chunks(
    connection: sqlite3.Connection, condition: Condition, documents: Sequence[object]
) -> dict[object, Chunk]:
    """The first admitted chunk of each document that has one."""
    rows = connection.execute(
        "SELECT c.document, min(c.number), c.id, c.tenant FROM chunks c WHERE c.document IN"
        f" {_AMONG} AND {condition.where} GROUP BY c.document",
        (json.dumps(documents), *condition.values),
    )
    return {document: (id, tenant, number) for document, number, id, tenant in rows}
