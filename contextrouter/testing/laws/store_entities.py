"""Laws of stores on entities: which documents name one, and which entities are near a vector."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, Protocol, runtime_checkable

import msgspec

from contextrouter.contracts import (
    SupportsEntityHints,
    SupportsEntityVectors,
    SupportsMentions,
    SupportsUpsert,
)
from contextrouter.model import Document, Fact, Period, Query
from contextrouter.scope import Scope
from contextrouter.testing.builders import embedding
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.laws.store_documents import store_entry
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject

_ADA, _ISLAND = "Ada Quokka", "Quokka Island"
_MOST_PAGES = 100


@runtime_checkable
class MentioningStore(SupportsUpsert, SupportsMentions, Protocol):
    """A store that finds the documents that name an entity."""


@runtime_checkable
class EntityStore(SupportsUpsert, SupportsEntityVectors, SupportsEntityHints, Protocol):
    """A store that finds entities by meaning."""


async def _put(subject: Subject, plugin: Any, document: Document, *facts: Fact) -> None:
    entry = store_entry(subject, plugin, document)
    await plugin.upsert([msgspec.structs.replace(entry, facts=facts)])


def _make_fact(subject: str, end: str, **labels: Any) -> Fact:
    return Fact(subject=subject, predicate="is", object=end, **labels)


async def _find_mentions(plugin: Any, **fields: Any) -> list[str]:
    return [hit.document.id for hit in await plugin.mentions(Query(**{"text": "", "limit": 1000, **fields}))]


def _compare(ids: Sequence[str], expected: Sequence[str], question: str) -> None:
    if list(ids) != list(expected):
        raise Broken(f"mentions() of {question} returned {list(ids)}, not {list(expected)}")


@law_of(MentioningStore)
async def mentions_rank_by_names_then_by_times(subject: Subject) -> None:
    """mentions() finds documents whose facts or key phrases name an entity: most names, then most often."""
    async with subject.open_plugin() as plugin:
        await _put(subject, plugin, Document(id="once", content="x"), _make_fact("ADA  quokka", "keeper"))
        await _put(
            subject, plugin, Document(id="often", content="x", keywords=(_ADA,)), _make_fact("keeper", _ADA)
        )
        await _put(subject, plugin, Document(id="both", content="x", keywords=(_ISLAND, _ADA.upper())))
        await _put(subject, plugin, Document(id="other", content=_ADA, keywords=("quokka",)))
        for limit in (0, 1, 2, 1000):
            ids = await _find_mentions(plugin, entities=(_ADA, _ISLAND), limit=limit)
            _compare(ids, ["both", "often", "once"][:limit], f"two entities with limit {limit}")
        ids = await _find_mentions(plugin, text=f"Who met {_ADA}?")
        _compare(ids, ["often", "both", "once"], "the names in a text")
        _compare(await _find_mentions(plugin, entities=("nobody",)), [], "an unknown name")


@law_of(MentioningStore)
async def mentions_narrow_before_the_limit(subject: Subject) -> None:
    """Scope, filters, labels and period narrow mentions before the limit; a hidden fact names nobody."""
    async with subject.open_plugin() as plugin:
        for number in range(8):
            document = Document(
                id=f"m{number}",
                content="x",
                keywords=(_ADA,) if number % 2 else (),
                labels=(f"l{number}",),
                tenant=f"t{number}",
                updated_at=datetime(2025, 3, number + 1, 12, tzinfo=UTC),
                metadata={"year": number},
            )
            await _put(subject, plugin, document, *(() if number % 2 else (_make_fact(_ADA, "keeper"),)))
        secret = _make_fact(_ADA, "keeper", sensitivity="restricted")
        await _put(subject, plugin, Document(id="hidden", content="x", tenant="t6"), secret)
        day = Period(start=date(2025, 3, 7), end=date(2025, 3, 7))
        for fields in (
            {"scope": Scope(tenant="t6")},
            {"filters": {"year": 6}},
            {"labels": ("l6",)},
            {"period": day},
        ):
            ids = await _find_mentions(plugin, entities=(_ADA,), limit=2, **fields)
            _compare(ids, ["m6"], f"one entity with {fields}")


@law_of(EntityStore)
async def entities_are_found_by_their_vectors(subject: Subject) -> None:
    """Entities are found by the vectors of their texts, in scope only, until their facts are gone."""
    async with subject.open_plugin() as plugin:
        document = Document(id="e", content="x", tenant="t1")
        await _put(subject, plugin, document, _make_fact(_ADA, "keeper of the zoo"))
        if await _embed_all(subject, plugin) < 1:
            raise Broken("embed_entities() kept the vectors of no entity")
        visible, hidden = Query(text="", scope=Scope(tenant="t1")), Query(text="", scope=Scope(tenant="t2"))
        vector = embedding(_ADA, subject.dimensions)
        matches = [match.name for match in await plugin.nearest_entities(vector, visible, threshold=0.99)]
        if matches != [_ADA]:
            raise Broken(f"the vector of {_ADA!r} found {matches}")
        if await plugin.nearest_entities(vector, hidden, threshold=0.99):
            raise Broken("an entity was found in a scope that forbids it")
        names = [*await plugin.exact_names([_ADA.upper(), "keeper"], visible)]
        names += await plugin.exact_names([_ADA], hidden)
        if names != [_ADA.upper()]:
            raise Broken(f"exact_names() returned {names}, not {[_ADA.upper()]}")
        await plugin.delete(["e"], "t1")
        if await plugin.nearest_entities(vector, visible, threshold=0.99):
            raise Broken("an entity was found whose facts were deleted")


async def _embed_all(subject: Subject, plugin: Any) -> int:
    """Give all entities their vectors; return how many they are."""
    entities = 0
    for _ in range(_MOST_PAGES):
        texts = await plugin.entity_texts()
        count = await plugin.embed_entities({text: embedding(text, subject.dimensions) for text in texts})
        if not count:
            return entities
        entities += count
    raise Broken(f"embed_entities() finds no end after {_MOST_PAGES} pages")


LAWS: tuple[Law, ...] = (
    mentions_rank_by_names_then_by_times,
    mentions_narrow_before_the_limit,
    entities_are_found_by_their_vectors,
)
