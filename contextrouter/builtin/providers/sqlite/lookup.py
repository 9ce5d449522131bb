"""Reading a store otherwise than by search: documents by id, neighbours by link, facets, counts."""

# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from contextrouter.builtin.providers.filtering import COLUMNS, UNTRUSTED, make_facet
from contextrouter.builtin.providers.link_degrees import MeanCache, mean_links
from contextrouter.builtin.providers.payloads import document, documents
from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.filter import Condition, visible
from contextrouter.builtin.providers.sqlite.rows import numpy
from contextrouter.builtin.providers.sqlite.write import listed
from contextrouter.builtin.providers.vector_slots import of_model, slot_to_count
from contextrouter.contracts import LinkDegrees
from contextrouter.model import Document, Facet, Hit, Vector
from contextrouter.scope import Scope

_PAIR = "s.number <> t.number AND (s.tenant = t.tenant OR '*' IN (s.tenant, t.tenant))"
"""Which two documents a link may join."""


def texts(connection: sqlite3.Connection, numbers: Iterable[int]) -> list[Document]:
    """Chunks by number, in order."""
    sql = (
        "SELECT group_concat(chunk), '[' || group_concat(payload) || ']' FROM texts"
        " WHERE chunk IN (SELECT value FROM json_each(?))"
    )
    places = list(numbers)
    present, payloads = connection.execute(sql, (json.dumps(places),)).fetchone()
    if present is None:
        return []
    by_number = dict(zip(map(int, present.split(",")), documents(payloads), strict=True))
    return [by_number[number] for number in places]


def rank(
    connection: sqlite3.Connection, best: Sequence[tuple[int, float]], limit: int
) -> list[tuple[int, float]]:
    """The `limit` best of (number, score): by score, ties by chunk id and tenant."""
    times = Counter(score for _, score in best)
    sql = "SELECT id, tenant FROM chunks WHERE number = ?"
    named = [
        (-score, *(connection.execute(sql, (number,)).fetchone() if times[score] > 1 else ("", "")), number)
        for number, score in best
    ]
    return [(number, -negative) for negative, _, _, number in sorted(named)[:limit]]


def fetch_documents(
    connection: sqlite3.Connection, ids: Sequence[str], scope: Scope | None
) -> list[Document]:
    """Whole documents by id, or chunks by theirs, that may be seen, in the order asked."""
    of_document, of_chunk = visible(scope, "d"), visible(scope, "c")
    rows = connection.execute(
        "WITH asked (id, place) AS (SELECT value, key FROM json_each(?)) SELECT a.place, 0, d.tenant,"
        " coalesce(nullif(d.payload, ''), (SELECT t.payload FROM chunks c JOIN texts t ON t.chunk = c.number"
        " WHERE c.document = d.number)) FROM asked a JOIN documents d ON d.id = a.id WHERE"
        f" {of_document.where} UNION ALL SELECT a.place, 1, c.tenant, t.payload FROM asked a JOIN chunks c ON"
        " c.id = a.id JOIN texts t ON t.chunk = c.number JOIN documents o ON o.number = c.document WHERE"
        f" o.id <> c.id AND {of_chunk.where} ORDER BY 1, 2, 3",
        (listed(ids), *of_document.values, *of_chunk.values),
    )
    return [document(stored) for _, _, _, stored in rows]


def tenants(connection: sqlite3.Connection) -> list[str | None]:
    """Whose documents are here; None: some have no tenant."""
    rows = connection.execute("SELECT DISTINCT tenant FROM documents ORDER BY tenant")
    return [row[0] or None for row in rows]


def fingerprints(connection: sqlite3.Connection, tenant: str) -> dict[str, str]:
    """Document id -> fingerprint."""
    sql = "SELECT id, fingerprint FROM documents WHERE tenant = ?"
    return dict(connection.execute(sql, (tenant,)).fetchall())


def embedded(
    connection: sqlite3.Connection, ids: Sequence[str], tenant: str, model: str, legs: Sequence[str]
) -> list[tuple[Document, Mapping[str, Vector]]]:
    """The chunks of documents with their vectors of a model; none when other models filled the store."""
    slot = of_model(schema.slots(connection), model)
    if slot is None:
        return []
    rows = connection.execute(
        f"SELECT t.payload, {', '.join(f'v.{leg}' for leg in legs)} FROM documents d JOIN chunks c ON"
        f" c.document = d.number JOIN texts t ON t.chunk = c.number JOIN vectors{slot.suffix} v ON v.chunk ="
        " c.number WHERE d.tenant = ? AND d.id IN (SELECT value FROM json_each(?))",
        (tenant, listed(ids)),
    )
    read = numpy().frombuffer
    return [
        (
            document(stored),
            {leg: read(blob, "<f4") for leg, blob in zip(legs, blobs, strict=True) if blob is not None},
        )
        for stored, *blobs in rows
    ]


def neighbours(
    connection: sqlite3.Connection, ids: Sequence[str], limit: int, scope: Scope | None
) -> list[Hit]:
    """The first chunk of each document linked with `ids`, either way; the score is the number of links."""
    start, goal, chunk = visible(scope, "d"), visible(scope, "n"), visible(scope, "c")
    rows = connection.execute(
        "WITH asked (id) AS (SELECT value FROM json_each(?)), given (number, id, url, tenant) AS (SELECT"
        " d.number, d.id, d.url, d.tenant FROM documents d WHERE (d.id IN asked OR d.number IN (SELECT"
        f" document FROM chunks WHERE id IN asked)) AND {start.where}), linked (number, tenant) AS (  SELECT"
        " t.number, g.tenant FROM given g JOIN links l ON l.document = g.number JOIN documents t ON t.id ="
        " l.target  UNION ALL SELECT t.number, g.tenant FROM given g JOIN links l ON l.document = g.number  "
        " JOIN documents t ON t.url = l.target AND t.url <> '' AND t.id <> l.target  UNION ALL SELECT"
        " l.document, g.tenant FROM given g JOIN links l ON l.target IN (g.id, nullif(g.url, ''))) SELECT"
        " count(*) AS strength, t.payload FROM linked k JOIN documents n ON n.number = k.number JOIN chunks"
        " c ON c.number = (SELECT min(number) FROM chunks WHERE document = n.number) JOIN texts t ON t.chunk"
        " = c.number WHERE n.number NOT IN (SELECT number FROM given) AND (n.tenant = k.tenant OR '*' IN"
        f" (n.tenant, k.tenant)) AND {goal.where} AND {chunk.where} GROUP BY n.number ORDER BY strength DESC,"
        " n.id, n.tenant LIMIT ?",
        (listed(ids), *start.values, *goal.values, *chunk.values, max(limit, 0)),
    )
    return [Hit(document=document(stored), score=float(strength)) for strength, stored in rows]


def link_degrees(
    connection: sqlite3.Connection, ids: Sequence[str], scope: Scope | None, means: MeanCache
) -> LinkDegrees:
    """The degrees of documents, and the mean of the whole graph, which `means` keeps."""
    version = schema.version(connection)
    mean = means.get(version, scope)
    if mean is None:
        mean = mean_degree(connection, scope)
        means.put(version, scope, mean)
    return LinkDegrees(degrees=degrees(connection, ids, scope), mean=mean)


def degrees(connection: sqlite3.Connection, ids: Sequence[str], scope: Scope | None) -> dict[str, int]:
    """How many links each of `ids` (of documents or chunks) has, either way, between documents that may be
    seen.
    """
    start, goal = visible(scope, "s"), visible(scope, "t")
    rows = connection.execute(
        "WITH asked (id) AS (SELECT value FROM json_each(?)), given (name, number) AS (SELECT d.id, d.number"
        " FROM documents d WHERE d.id IN asked UNION SELECT c.id, c.document FROM chunks c WHERE c.id IN"
        " asked), seen (name, number, id, url) AS (SELECT g.name, s.number, s.id, s.url FROM given g JOIN"
        f" documents s ON s.number = g.number WHERE {start.where}), linked (number, start, goal) AS (SELECT"
        " g.number, g.number, t.number FROM seen g JOIN links l ON l.document = g.number JOIN documents t ON"
        " t.id = l.target UNION SELECT g.number, g.number, t.number FROM seen g JOIN links l ON l.document ="
        " g.number JOIN documents t ON t.url = l.target AND t.url <> '' UNION SELECT g.number, l.document,"
        " g.number FROM seen g JOIN links l ON l.target IN (g.id, nullif(g.url, ''))), counted (number, many)"
        " AS (SELECT k.number, count(*) FROM linked k JOIN documents s ON s.number = k.start JOIN documents t"
        f" ON t.number = k.goal WHERE {_PAIR} AND {start.where} AND {goal.where} GROUP BY k.number) SELECT"
        " g.name, max(coalesce(n.many, 0)) FROM seen g LEFT JOIN counted n ON n.number = g.number GROUP BY"
        " g.name",
        (listed(ids), *start.values, *start.values, *goal.values),
    )
    return {str(name): int(many) for name, many in rows}


def mean_degree(connection: sqlite3.Connection, scope: Scope | None) -> float:
    """How many links there are per document, over all documents that may be seen."""
    start, goal = visible(scope, "s"), visible(scope, "t")
    pairs = f"{_PAIR} AND {start.where} AND {goal.where}"
    values = (*start.values, *goal.values)
    (links,) = connection.execute(
        "SELECT count(*) FROM (SELECT s.number, t.number FROM links l JOIN documents s ON s.number ="
        f" l.document JOIN documents t ON t.id = l.target WHERE {pairs} UNION SELECT s.number, t.number FROM"
        " links l JOIN documents s ON s.number = l.document JOIN documents t ON t.url = l.target AND t.url <>"
        f" '' WHERE {pairs})",
        (*values, *values),
    ).fetchone()
    sql = f"SELECT count(*) FROM documents s WHERE {start.where}"
    (documents,) = connection.execute(sql, start.values).fetchone()
    return mean_links(links, documents)


_FOREIGN = (
    "max(EXISTS (SELECT 1 FROM filter_values w JOIN filters u ON u.value = w.number WHERE w.key = ? AND"
    " u.chunk = c.number)) AS foreign_text"
)
"""Whether strangers wrote one of the chunks."""


def facets(
    connection: sqlite3.Connection, condition: Condition, dimensions: Sequence[str], limit: int
) -> list[Facet]:
    """How many admitted documents have each value of each dimension, most first; `limit` values of each."""
    limit = max(limit, 0)
    facets: list[Facet] = []
    for dimension in dict.fromkeys(dimensions):
        if dimension in COLUMNS:
            counted = connection.execute(
                f"SELECT c.{dimension} AS value, count(DISTINCT c.document) AS many, {_FOREIGN} FROM chunks c"
                f" WHERE value <> '' AND {condition.where} GROUP BY value ORDER BY many DESC, value LIMIT ?",
                (UNTRUSTED, *condition.values, limit),
            )
        else:
            counted = connection.execute(
                f"SELECT v.value, count(DISTINCT c.document) AS many, {_FOREIGN} FROM filter_values v JOIN"
                " filters f ON f.value = v.number JOIN chunks c ON c.number = f.chunk WHERE v.key = ? AND"
                f" {condition.where} GROUP BY v.value ORDER BY many DESC, v.value LIMIT ?",
                (UNTRUSTED, dimension, *condition.values, limit),
            )
        facets.extend(
            make_facet(dimension, value, many, untrusted=bool(foreign)) for value, many, foreign in counted
        )
    return facets


NOTHING: dict[str, int | str] = dict.fromkeys(
    ("documents", "chunks", "vectors", "links", "facts", "generation", "dimensions"), 0
) | {"model": ""}


def stats(connection: sqlite3.Connection, model: tuple[str, int]) -> dict[str, int | str]:
    """Counts of what the store holds, and whose vectors these are: of `model`, if it answers with that."""
    slot = slot_to_count(schema.slots(connection), *model)
    sources = {table: table for table in ("documents", "chunks", "vectors", "links", "facts")}
    sources["vectors"] = f"vectors{slot.suffix} WHERE vector IS NOT NULL OR keywords IS NOT NULL"
    counts: dict[str, int | str] = {
        name: connection.execute(f"SELECT count(*) FROM {source}").fetchone()[0]
        for name, source in sources.items()
    }
    generation = schema.number(connection, "generation")
    return counts | {"generation": generation, "dimensions": slot.dimensions, "model": slot.model}
