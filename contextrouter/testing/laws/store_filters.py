"""Laws of stores on filters: metadata filters and periods narrow a search before its limit."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import product
from typing import Any

from contextrouter.contracts import SupportsUpsert
from contextrouter.filters import FIELDS, passes
from contextrouter.model import Document, Period
from contextrouter.testing.kit import Law, law_of
from contextrouter.testing.laws.store_documents import WORD, find_ids, store_entry
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject


@law_of(SupportsUpsert)
async def filters_narrow_before_the_limit(subject: Subject) -> None:
    """Filters narrow before the limit: every document that passes is found, however small the limit."""
    async with subject.open_plugin() as plugin:
        documents = [
            Document(id=f"f{n}", content=f"{WORD} " * (9 - n), metadata={"year": n, "tags": ["a", f"t{n}"]})
            for n in range(8)
        ]
        await plugin.upsert([store_entry(subject, plugin, document) for document in documents])
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({"year": 7}, ["f7"]),
            ({"year": [6, 7]}, ["f6", "f7"]),
            ({"tags": "t5"}, ["f5"]),
            ({"year": 5, "tags": "a"}, ["f5"]),
        ]
        for leg, (filters, expected) in product(plugin.legs, cases):
            ids = sorted(await find_ids(subject, plugin, leg, WORD, filters=filters, limit=len(expected)))
            if ids != expected:
                raise Broken(f"{filters} found {ids} on {leg!r}, not {expected}")


@law_of(SupportsUpsert)
async def metadata_does_not_shadow_fields(subject: Subject) -> None:
    """A metadata key with a field's name changes nothing: a filter on the field compares the field."""
    async with subject.open_plugin() as plugin:
        documents = [_contrary(name, contrary) for name, contrary in (("one", "two"), ("two", "one"))]
        await plugin.upsert([store_entry(subject, plugin, document) for document in documents])
        for leg, field in product(plugin.legs, FIELDS):
            filters = {field: f"one-{field}"}
            expected = [document.id for document in documents if passes(document, filters)]
            ids = await find_ids(subject, plugin, leg, WORD, filters=filters)
            if ids != expected:
                raise Broken(f"a filter on {field} found {ids} on {leg!r}, not {expected}")


def _contrary(name: str, contrary: str) -> Document:
    """A document whose metadata says other things of it than its fields."""
    fields: dict[str, Any] = {field: f"{name}-{field}" for field in FIELDS}
    for many in ("labels", "keywords"):
        fields[many] = (fields[many],)
    return Document(
        content=f"{WORD} {name}", metadata={field: f"{contrary}-{field}" for field in FIELDS}, **fields
    )


@law_of(SupportsUpsert)
async def period_narrows_before_the_limit(subject: Subject) -> None:
    """A period narrows before the limit, and includes all of its first and last day."""
    async with subject.open_plugin() as plugin:
        moments = [datetime(2025, 3, day, 23, 59, 59, tzinfo=UTC) for day in range(1, 9)]
        documents = [
            Document(id=f"p{n}", content=f"{WORD} " * (9 - n), updated_at=moment)
            for n, moment in enumerate(moments, 1)
        ]
        await plugin.upsert([store_entry(subject, plugin, document) for document in documents])
        for leg in plugin.legs:
            days = Period(start=date(2025, 3, 7), end=date(2025, 3, 8))
            ids = sorted(await find_ids(subject, plugin, leg, WORD, period=days, limit=2))
            if ids != ["p7", "p8"]:
                raise Broken(f"7 and 8 March found {ids} on {leg!r}, not ['p7', 'p8']")


LAWS: tuple[Law, ...] = (
    filters_narrow_before_the_limit,
    metadata_does_not_shadow_fields,
    period_narrows_before_the_limit,
)
