"""Stores that break one law of stores each, derived from one that keeps all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec
from breaking import breaks

from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import EntityMatch, Entry, LinkDegrees, TermStatistics
from contextrouter.filters import FIELDS, passes
from contextrouter.model import Document, Facet, Hit, Query, Vector
from contextrouter.scope import Scope


class Store(Memory):
    """Keeps the laws, with nothing in it at first."""

    @classmethod
    def example(cls) -> Self:
        return cls(embedder="default")

    async def behind(
        self, query: Query, kept: Callable[[Document], bool], limit: int, **lifted: Any
    ) -> list[Hit]:
        """The first `limit` hits of the query without some of its conditions, of those the kept."""
        return [
            hit for hit in await super().search(query.replace(limit=limit, **lifted)) if kept(hit.document)
        ]


@breaks("canaries_never_leave_their_scope")
class UnknownLevelsArePublic(Store):
    async def search(self, query: Query) -> Sequence[Hit]:
        scope = query.scope
        if scope is None:
            return await super().search(query)

        def kept(document: Document) -> bool:
            return scope.allows(
                document.replace(sensitivity=None) if document.sensitivity == "cosmic" else document
            )

        return (await self.behind(query, kept, 10_000, scope=None))[: query.limit]


@breaks("writes_never_block")
class WritesSlowly(Store):
    """Blocks where somebody else waits, which spares the tests the time of all other writes."""

    async def upsert(self, entries: Sequence[Entry]) -> None:
        if len(asyncio.all_tasks()) == 3:
            time.sleep(0.6)  # noqa: ASYNC251 - that is the fault
        await super().upsert(entries)


@breaks("scope_narrows_before_the_limit")
class ScopeBehindTheLimit(Store):
    async def search(self, query: Query) -> Sequence[Hit]:
        scope = query.scope
        if scope is None:
            return await super().search(query)
        return await self.behind(query, scope.allows, query.limit, scope=None)


@breaks("filters_narrow_before_the_limit")
class FiltersBehindTheLimit(Store):
    async def search(self, query: Query) -> Sequence[Hit]:
        passing = {hit.document.id for hit in await super().search(query.replace(limit=10_000))}
        return await self.behind(query, lambda document: document.id in passing, query.limit, filters={})


@breaks("metadata_does_not_shadow_fields")
class MetadataFirst(Store):
    async def search(self, query: Query) -> Sequence[Hit]:
        def kept(document: Document) -> bool:
            told = {
                key: value
                for key, value in document.metadata.items()
                if key in FIELDS and isinstance(value, str)
            }
            many = {key: (told.pop(key),) for key in ("labels", "keywords") if key in told}
            return passes(document.replace(**told, **many), query.filters)

        return (await self.behind(query, kept, 10_000, filters={}))[: query.limit]


@breaks("period_narrows_before_the_limit")
class PeriodBehindTheLimit(Store):
    async def search(self, query: Query) -> Sequence[Hit]:
        passing = {hit.document.id for hit in await super().search(query.replace(limit=10_000))}
        return await self.behind(query, lambda document: document.id in passing, query.limit, period=None)


@breaks("document_is_replaced_whole")
class KeepsOldChunks(Store):
    async def upsert(self, entries: Sequence[Entry]) -> None:
        await super().upsert([self._with_old(entry) for entry in entries])

    def _with_old(self, entry: Entry) -> Entry:
        stored = self._stored.get((entry.document.tenant or "", entry.document.id))
        new = {chunk.id for chunk in entry.chunks}
        old = [chunk for chunk in (stored.chunks if stored else ()) if chunk.document.id not in new]
        vectors = {
            leg: [*given, *(chunk.vectors.get(leg) for chunk in old)] for leg, given in entry.vectors.items()
        }
        chunks = [*entry.chunks, *(chunk.document for chunk in old)]
        return msgspec.structs.replace(entry, chunks=chunks, vectors=vectors)


@breaks("upsert_again_changes_no_answer")
class DoublesWhatComesTwice(Store):
    async def upsert(self, entries: Sequence[Entry]) -> None:
        keys = [(entry.document.tenant, entry.document.id) for entry in entries]
        await super().upsert(
            [_doubled(e) if keys.count(key) > 1 else e for e, key in zip(entries, keys, strict=True)]
        )


def _doubled(entry: Entry) -> Entry:
    chunks = [chunk.replace(content=f"{chunk.content} {chunk.content}") for chunk in entry.chunks]
    return Entry(document=entry.document, chunks=chunks, vectors=entry.vectors, fingerprint=entry.fingerprint)


@breaks("upsert_of_nothing_is_harmless")
class NothingMeansAll(Store):
    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        return await super().delete(ids or list(await self.fingerprints(tenant)), tenant)


@breaks("fingerprints_are_those_stored")
class FirstFingerprint(Store):
    async def upsert(self, entries: Sequence[Entry]) -> None:
        self.first = getattr(self, "first", dict[tuple[str | None, str], str]())
        for entry in entries:
            self.first.setdefault((entry.document.tenant, entry.document.id), entry.fingerprint)
        await super().upsert(entries)

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        return {
            id: self.first.get((tenant, id), told)
            for id, told in (await super().fingerprints(tenant)).items()
        }


@breaks("pages_list_every_fingerprint_once")
class ListsOneTenant(Store):
    async def fingerprint_pages(self) -> AsyncIterator[Sequence[tuple[str | None, str, str]]]:
        yield [(None, id, mark) for id, mark in (await self.fingerprints()).items()]


@breaks("tenants_keep_documents_apart")
class DeletesForAllTenants(Store):
    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        removed = 0
        for owner in sorted({owner for owner, _ in self._stored}):
            removed += await super().delete(ids, owner or None)
        return removed


@breaks("tenants_are_those_with_documents")
class RemembersTenantsThatLeft(Store):
    def __init__(self, *, embedder: str | None = None) -> None:
        super().__init__(embedder=embedder)
        self.met: set[str] = set()

    async def upsert(self, entries: Sequence[Entry]) -> None:
        self.met |= {entry.document.tenant or "" for entry in entries}
        await super().upsert(entries)

    async def tenants(self) -> Sequence[str | None]:
        return [owner or None for owner in sorted(self.met)]


@breaks("tenants_are_those_with_documents")
class KnowsNamedTenantsOnly(Store):
    async def tenants(self) -> Sequence[str | None]:
        return [tenant for tenant in await super().tenants() if tenant]


@breaks("deleted_is_gone")
class CountsChunks(Store):
    async def delete(self, ids: Sequence[str], tenant: str | None = None) -> int:
        before = len(self._chunks)
        await super().delete(ids, tenant)
        return before - len(self._chunks)


@breaks("chunks_are_no_laxer_than_their_document")
class ChunksArePublic(Store):
    async def upsert(self, entries: Sequence[Entry]) -> None:
        await super().upsert(
            [
                Entry(
                    document=entry.document,
                    vectors=entry.vectors,
                    fingerprint=entry.fingerprint,
                    facts=entry.facts,
                    chunks=[
                        chunk.replace(sensitivity=chunk.sensitivity or "public") for chunk in entry.chunks
                    ],
                )
                for entry in entries
            ]
        )


@breaks("version_changes_with_the_content")
class NeverAnotherVersion(Store):
    async def version(self) -> str:
        return "1"


@breaks("reopened_it_has_what_was_put_in")
class ForgetsAtTheEnd(Store):
    async def aclose(self) -> None:
        self.__init__(embedder="default")  # type: ignore[misc]  # that is the fault


class Linked(Store):
    """Keeps the laws of links and counts as well."""

    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        near = [
            d for d in self._documents() if set(ids) & set(d.links) and (scope is None or scope.allows(d))
        ]
        return [Hit(document=document) for document in near][:limit]

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        seen = [d for d in self._documents() if query.scope is None or query.scope.allows(d)]
        counts = Counter((name, str(getattr(document, name))) for document in seen for name in dimensions)
        return [
            Facet(dimension=name, value=value, count=count)
            for name in dimensions
            for (dimension, value), count in [c for c in counts.most_common() if c[0][0] == name][
                : query.limit
            ]
        ]

    def _documents(self) -> list[Document]:
        return [stored.document for stored in self._stored.values()]


@breaks("fetch_shows_what_the_scope_allows")
class FetchesWhatItFinds(Store):
    """Minds no compartment, which the law of all fetching sources does not notice."""

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        found = await super().fetch(ids)
        return [d for d in found if scope is None or scope.allows(d.replace(compartment=None))]


@breaks("neighbours_never_leave_their_scope")
class NeighboursOfAllLevels(Linked):
    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        return await super().neighbours(ids, limit, scope and scope.replace(ceiling="restricted"))


@breaks("degrees_count_what_the_scope_allows")
class DegreesOfAllLevels(Linked):
    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        return await super().degrees(ids, scope and scope.replace(ceiling="restricted"))


@breaks("facets_count_what_the_scope_allows")
class CountsForAnyone(Linked):
    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        return await super().facets(query.replace(scope=None), dimensions)


@breaks("statistics_count_what_the_scope_allows")
class TermsOfAllTenants(Store):
    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        return await super().statistics(terms, scope and scope.replace(tenant=None))


@breaks("mentions_rank_by_names_then_by_times")
class MentionsByTheirIds(Store):
    async def mentions(self, query: Query) -> Sequence[Hit]:
        hits = await super().mentions(query.replace(limit=1000))
        return sorted(hits, key=lambda hit: hit.document.id)[: max(query.limit, 0)]


@breaks("mentions_narrow_before_the_limit")
class MentionsOfAllTimes(Store):
    async def mentions(self, query: Query) -> Sequence[Hit]:
        return await super().mentions(query.replace(period=None))


class Entities(Sqlite):
    """Keeps the laws of vectors of entities as well."""


@breaks("documents_have_the_time_of_the_last_run_of_their_job")
class TheFirstRunCounts(Store):
    async def record_run(self, origin: str, moment: datetime) -> None:
        if origin not in self._runs:
            await super().record_run(origin, moment)


@breaks("documents_have_the_time_of_the_last_run_of_their_job")
class RunsOfOthersCount(Store):
    async def record_run(self, origin: str, moment: datetime) -> None:
        for name in (origin, f"{origin}s", origin[:4]):
            await super().record_run(name, moment)


@breaks("entities_are_found_by_their_vectors")
class EntitiesForAnyone(Entities):
    async def nearest_entities(
        self, vector: Vector, query: Query, *, threshold: float
    ) -> Sequence[EntityMatch]:
        return await super().nearest_entities(vector, query.replace(scope=None), threshold=threshold)


OBEYING: tuple[type[Any], ...] = (Store, Linked, Entities)
