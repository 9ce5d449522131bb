# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""The leg `mentions`: documents whose facts or key phrases name an entity."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from contextrouter.builtin.providers.filtering import PHRASES
from contextrouter.builtin.providers.mentions import (
    Chunk,
    FactNames,
    Mentions,
    PhraseName,
    mention_candidates,
)
from contextrouter.builtin.providers.payloads import document
from contextrouter.builtin.providers.postgres.filter import Values, admitted, entry, value_of, visible
from contextrouter.model import Hit, Query
from contextrouter.text.languages import LanguageTerms

if TYPE_CHECKING:
    from contextrouter.builtin.providers.postgres.connection_pool import Connection


async def find_mentions(connection: Connection, query: Query, question: LanguageTerms) -> list[Hit]:
    """A hit for each document that names entities of a query, best first, `query.limit` at most."""
    mentions = await _collect(connection, query, question)
    ranked = mentions.rank(await _first_chunks(connection, query, question, mentions.without_chunk))
    ranked = ranked[: max(query.limit, 0)]
    payloads = await _payloads(connection, [chunk for chunk, _ in ranked])
    return [Hit(document=document(payloads[chunk[2]]), score=score) for chunk, score in ranked]


async def find_names(connection: Connection, query: Query, question: LanguageTerms) -> frozenset[str]:
    """The entities of a query that facts or key phrases in scope have as names, as names are compared."""
    return frozenset((await _collect(connection, query, question)).names)


async def _collect(connection: Connection, query: Query, question: LanguageTerms) -> Mentions:
    candidates = mention_candidates(query)
    keys = sorted(candidates.keys)
    facts = await _facts(connection, query, keys)
    return Mentions(candidates, facts, await _phrase_names(connection, query, question, keys))


async def _facts(connection: Connection, query: Query, keys: Sequence[str]) -> list[FactNames]:
    values = Values()
    among = values.bound(list(keys), "text[]")
    access = visible(query.scope, "f", values)
    rows = await connection.fetch(
        "SELECT f.owner, f.document, f.subject_key, f.object_key FROM facts f WHERE (f.subject_key = ANY"
        f" ({among}) OR f.object_key = ANY ({among})) AND {access}",
        *values,
    )
    return [FactNames((owner, id), frozenset(filter(None, names))) for owner, id, *names in map(tuple, rows)]


async def _phrase_names(
    connection: Connection, query: Query, question: LanguageTerms, keys: Sequence[str]
) -> list[PhraseName]:
    values = Values()
    among = values.bound([entry(PHRASES, key) for key in keys], "text[]")
    condition = admitted(query, question, values)
    rows = await connection.fetch(
        "SELECT c.owner, c.document, c.place, c.id, c.tenant, p.entry FROM chunks c CROSS JOIN LATERAL"
        f" unnest(c.filters) p (entry) WHERE c.filters && {among} AND p.entry = ANY ({among}) AND"
        f" {condition}",
        *values,
    )
    return [
        PhraseName((owner, parent), number, (id, tenant, (owner, parent, number)), value_of(path, PHRASES))
        for owner, parent, number, id, tenant, path in map(tuple, rows)
    ]


async def _first_chunks(
    connection: Connection, query: Query, question: LanguageTerms, documents: Sequence[Any]
) -> dict[Hashable, Chunk]:
    """The first admitted chunk of each document that has one."""
    values = Values()
    owners = values.bound([owner for owner, _ in documents], "text[]")
    ids = values.bound([id for _, id in documents], "text[]")
    condition = admitted(query, question, values)
    rows = await connection.fetch(
        "SELECT DISTINCT ON (c.owner, c.document) c.owner, c.document, c.place, c.id, c.tenant FROM chunks c"
        f" JOIN unnest({owners}, {ids}) AS d (owner, id) ON (c.owner, c.document) = (d.owner, d.id) WHERE"
        f" {condition} ORDER BY c.owner, c.document, c.place",
        *values,
    )
    return {
        (owner, parent): (id, tenant, (owner, parent, number))
        for owner, parent, number, id, tenant in map(tuple, rows)
    }


async def _payloads(connection: Connection, chunks: Sequence[Any]) -> dict[Hashable, str]:
    """The documents of chunks, as stored, by what they are known by."""
    columns = zip(*(key for _, _, key in chunks), strict=True) if chunks else ((), (), ())
    owners, documents, places = map(list, columns)
    rows = await connection.fetch(
        "SELECT c.owner, c.document, c.place, c.payload FROM chunks c JOIN unnest($1::text[], $2::text[],"
        " $3::int[]) AS w (owner, document, place) ON (c.owner, c.document, c.place) = (w.owner, w.document,"
        " w.place)",
        owners,
        documents,
        places,
    )
    return {(owner, parent, number): payload for owner, parent, number, payload in map(tuple, rows)}
