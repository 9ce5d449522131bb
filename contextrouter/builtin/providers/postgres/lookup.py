# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Reading a store otherwise than by search: documents by id, neighbours by link, facets, counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextrouter.builtin.providers.filtering import COLUMNS, UNTRUSTED, make_facet
from contextrouter.builtin.providers.link_degrees import MeanCache, mean_links
from contextrouter.builtin.providers.payloads import document
from contextrouter.builtin.providers.postgres import schema
from contextrouter.builtin.providers.postgres.connection_pool import clean
from contextrouter.builtin.providers.postgres.filter import (
    Values,
    admitted,
    beginning,
    entry,
    value_of,
    visible,
)
from contextrouter.builtin.providers.vector_slots import of_model, slot_to_count
from contextrouter.contracts import LinkDegrees
from contextrouter.model import Document, Facet, Hit, Query, Vector
from contextrouter.scope import SHARED, Scope
from contextrouter.text.languages import LanguageTerms

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection


async def fetch_documents(connection: Connection, ids: Sequence[str], scope: Scope | None) -> list[Document]:
    """Whole documents by id, or chunks by theirs, that may be seen, in the order asked."""
    values = Values()
    ids_sql = values.bound([clean(id) for id in dict.fromkeys(ids)], "text[]")
    of_document, of_chunk = visible(scope, "d", values), visible(scope, "c", values)
    rows = await connection.fetch(
        f"WITH asked AS (SELECT id, place FROM unnest({ids_sql}) WITH ORDINALITY AS a (id, place)) SELECT"
        " a.place, 0 AS part, d.tenant, coalesce(nullif(d.payload, ''), (SELECT c.payload FROM chunks c"
        " WHERE c.owner = d.tenant AND c.document = d.id ORDER BY c.place LIMIT 1)) AS payload FROM asked a"
        f" JOIN documents d ON d.id = a.id WHERE {of_document} UNION ALL SELECT a.place, 1, c.tenant,"
        f" c.payload FROM asked a JOIN chunks c ON c.id = a.id WHERE c.document <> c.id AND {of_chunk} ORDER"
        " BY 1, 2, 3",
        *values,
    )
    return [document(row["payload"]) for row in rows if row["payload"] is not None]


async def embedded(
    connection: Connection, ids: Sequence[str], tenant: str, model: str, legs: Sequence[str]
) -> list[tuple[Document, Mapping[str, Vector]]]:
    """The chunks of documents with their vectors of a model; none when other models filled the store."""
    slot = of_model(await schema.slots(connection), model)
    if slot is None:
        return []
    columns = ", ".join(f"{leg}{slot.suffix}::text AS {leg}" for leg in legs)
    rows = await connection.fetch(
        f"SELECT payload, {columns} FROM chunks WHERE owner = $1 AND document = ANY ($2)",
        clean(tenant),
        [clean(id) for id in ids],
    )
    return [
        (document(row["payload"]), {leg: json.loads(row[leg]) for leg in legs if row[leg] is not None})
        for row in rows
    ]


async def neighbours(
    connection: Connection, ids: Sequence[str], limit: int, scope: Scope | None
) -> list[Hit]:
    """The first chunk of each document linked with `ids`, either way; the score is the number of links."""
    values = Values()
    ids_sql = values.bound([clean(id) for id in dict.fromkeys(ids)], "text[]")
    start, goal, chunk = (visible(scope, table, values) for table in "dnc")
    shared = values.bound(SHARED, "text")
    rows = await connection.fetch(
        f"WITH given AS (SELECT d.tenant, d.id, d.url FROM documents d WHERE (d.id = ANY ({ids_sql}) OR"
        f" (d.tenant, d.id) IN (SELECT owner, document FROM chunks WHERE id = ANY ({ids_sql}))) AND {start}),"
        " linked (tenant, id, seeker) AS (  SELECT t.tenant, t.id, g.tenant FROM given g JOIN links l ON"
        " (l.tenant, l.document) = (g.tenant, g.id)   JOIN documents t ON t.id = l.target  UNION ALL SELECT"
        " t.tenant, t.id, g.tenant FROM given g JOIN links l ON (l.tenant, l.document) = (g.tenant, g.id)  "
        " JOIN documents t ON t.url = l.target AND t.url <> '' AND t.id <> l.target  UNION ALL SELECT"
        " l.tenant, l.document, g.tenant FROM given g JOIN links l ON l.target = g.id  UNION ALL SELECT"
        " l.tenant, l.document, g.tenant FROM given g JOIN links l ON l.target = g.url   AND g.url <> '' AND"
        " g.url <> g.id) SELECT k.strength, c.payload FROM (SELECT n.tenant, n.id, count(*) AS strength FROM"
        " linked k  JOIN documents n ON (n.tenant, n.id) = (k.tenant, k.id)  WHERE (n.tenant, n.id) NOT IN"
        f" (SELECT tenant, id FROM given) AND {goal}  AND (n.tenant = k.seeker OR {shared} IN (n.tenant,"
        " k.seeker)) GROUP BY n.tenant, n.id) k JOIN LATERAL (SELECT c.* FROM chunks c WHERE (c.owner,"
        f" c.document) = (k.tenant, k.id) ORDER BY c.place LIMIT 1) c ON true WHERE {chunk} ORDER BY"
        f" k.strength DESC, k.id, k.tenant LIMIT {values.bound(max(limit, 0), 'bigint')}",
        *values,
    )
    return [Hit(document=document(row["payload"]), score=float(row["strength"])) for row in rows]


async def link_degrees(
    connection: Connection, ids: Sequence[str], scope: Scope | None, means: MeanCache
) -> LinkDegrees:
    """The degrees of documents, and the mean of the whole graph, which `means` keeps."""
    version = await schema.content_version(connection)
    mean = means.get(version, scope)
    if mean is None:
        mean = await mean_degree(connection, scope)
        means.put(version, scope, mean)
    return LinkDegrees(degrees=await degrees(connection, ids, scope), mean=mean)


async def degrees(connection: Connection, ids: Sequence[str], scope: Scope | None) -> dict[str, int]:
    """How many links each of `ids` (of documents or chunks) has, either way, between documents that may be
    seen.
    """
    values = Values()
    names = {clean(id): id for id in ids}
    ids_sql = values.bound(list(names), "text[]")
    pair = _pair(scope, values)
    rule = visible(scope, "s", values)
    rows = await connection.fetch(
        f"WITH given (name, tenant, id) AS (SELECT d.id, d.tenant, d.id FROM documents d WHERE d.id = ANY"
        f" ({ids_sql}) UNION SELECT c.id, c.owner, c.document FROM chunks c WHERE c.id = ANY ({ids_sql})),"
        " seen (name, tenant, id, url) AS (SELECT g.name, s.tenant, s.id, s.url FROM given g JOIN documents s"
        " ON"
        f" (s.tenant, s.id) = (g.tenant, g.id) WHERE {rule}), linked (tenant, id, s_tenant, s_id, t_tenant,"
        " t_id) AS (SELECT g.tenant, g.id, g.tenant, g.id, t.tenant, t.id FROM seen g JOIN links l ON"
        " (l.tenant, l.document) = (g.tenant, g.id) JOIN documents t ON t.id = l.target UNION SELECT"
        " g.tenant, g.id, g.tenant, g.id, t.tenant, t.id FROM seen g JOIN links l ON (l.tenant, l.document) ="
        " (g.tenant, g.id) JOIN documents t ON t.url = l.target AND t.url <> '' UNION SELECT g.tenant, g.id,"
        " l.tenant, l.document, g.tenant, g.id FROM seen g JOIN links l ON l.target = g.id UNION SELECT"
        " g.tenant, g.id, l.tenant, l.document, g.tenant, g.id FROM seen g JOIN links l ON l.target = g.url"
        " AND g.url <> ''), counted (tenant, id, many) AS (SELECT k.tenant, k.id, count(*) FROM linked k JOIN"
        " documents s ON (s.tenant, s.id) = (k.s_tenant, k.s_id) JOIN documents t ON (t.tenant, t.id) ="
        f" (k.t_tenant, k.t_id) WHERE {pair} GROUP BY k.tenant, k.id) SELECT g.name, max(coalesce(n.many, 0))"
        " AS many FROM seen g LEFT JOIN counted n ON (n.tenant, n.id) = (g.tenant, g.id) GROUP BY g.name",
        *values,
    )
    return {names[row["name"]]: int(row["many"]) for row in rows}


async def mean_degree(connection: Connection, scope: Scope | None) -> float:
    """How many links there are per document, over all documents that may be seen."""
    values = Values()
    pair, rule = _pair(scope, values), visible(scope, "s", values)
    columns = "s.tenant AS a, s.id AS b, t.tenant AS c, t.id AS d"
    joined = "FROM links l JOIN documents s ON (s.tenant, s.id) = (l.tenant, l.document) JOIN documents t ON"
    row = await connection.fetchrow(
        f"SELECT (SELECT count(*) FROM (SELECT {columns} {joined} t.id = l.target WHERE {pair} UNION SELECT"
        f" {columns} {joined} t.url = l.target AND t.url <> '' WHERE {pair}) p) AS links, (SELECT count(*)"
        f" FROM documents s WHERE {rule}) AS documents",
        *values,
    )
    return mean_links(row["links"], row["documents"]) if row else 0.0


def _pair(scope: Scope | None, values: Values) -> str:
    """Which two documents `s` and `t` a link may join, as SQL."""
    shared = values.bound(SHARED, "text")
    return (
        f"(s.tenant, s.id) <> (t.tenant, t.id) AND (s.tenant = t.tenant OR {shared} IN (s.tenant, t.tenant))"
        f" AND {visible(scope, 's', values)} AND {visible(scope, 't', values)}"
    )


async def facets(
    connection: Connection, query: Query, question: LanguageTerms, dimensions: Sequence[str]
) -> list[Facet]:
    """How many admitted documents have each value of each dimension, most first; `query.limit` values of
    each.
    """
    facets: list[Facet] = []
    for dimension in dict.fromkeys(dimensions):
        values = Values()
        column = dimension in COLUMNS
        start = "" if column else values.bound(beginning(dimension), "text")
        source = f"(SELECT c.{dimension} AS value)" if column else "unnest(c.filters)"
        rule = "f.value <> ''" if column else f"starts_with(f.value, {start})"
        condition = admitted(query, question, values)
        mark = values.bound(entry(UNTRUSTED, "1"), "text")
        rows = await connection.fetch(
            "SELECT f.value, count(DISTINCT (c.owner, c.document)) AS many,"
            f" bool_or({mark} = ANY (c.filters)) AS foreign_text FROM chunks c CROSS JOIN LATERAL {source} f"
            f" (value) WHERE {rule} AND {condition} GROUP BY f.value",
            *values,
        )
        counts = sorted(
            (-row["many"], row["value"] if column else value_of(row["value"], dimension), row["foreign_text"])
            for row in rows
        )
        facets.extend(
            make_facet(dimension, value, -many, untrusted=foreign)
            for many, value, foreign in counts[: max(query.limit, 0)]
        )
    return facets


async def stats(connection: Connection, model: tuple[str, int]) -> dict[str, int | str]:
    """Counts of what the store holds, whose vectors these are (of `model`, if it answers with that), and its
    bytes on disk.
    """
    slot = slot_to_count(await schema.slots(connection), *model)
    tables = ("documents", "chunks", "links", "facts")
    counted = ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in tables)
    row = await connection.fetchrow(
        f"SELECT {counted}, (SELECT count(*) FROM chunks WHERE vector{slot.suffix} IS NOT NULL OR"
        f" keywords{slot.suffix} IS NOT NULL) AS vectors, (SELECT coalesce(sum(generation), 0)::bigint FROM"
        " counts) AS generation, (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE"
        " relnamespace = current_schema()::regnamespace AND relkind = 'r') AS bytes"
    )
    return {**(row or {}), "dimensions": slot.dimensions, "model": slot.model}
