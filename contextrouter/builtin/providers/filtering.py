"""What a query lets through, before any limit: scope, period, metadata filters and labels, said once for all stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from contextrouter.contracts import Entry
from contextrouter.model import Document, Query

FIELDS = ("kind", "language", "trust", "title", "url", "parent", "media_type", "labels", "keywords")
"""Fields of a document that filters may name; a metadata key of the same name takes their place."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 200


def matches(document: Document, query: Query) -> bool:
    """Whether `document` is in the query's scope and period, passes its filters and bears one of its labels."""
    if query.scope is not None and not query.scope.allows(document):
        return False
    if query.period is not None and (document.updated_at is None or not query.period.contains(document.updated_at)):
        return False
    if query.labels and not set(query.labels) & set(document.labels):
        return False
    if not query.filters:
        return True
    known = attributes(document)
    return all(set(wanted(value)) & known.get(key, set()) for key, value in query.filters.items())


def attributes(document: Document) -> dict[str, set[str]]:
    """The values a filter can meet, by key, each in canonical form. Nested mappings are not filtered on."""
    every: dict[str, Any] = {field: getattr(document, field) for field in FIELDS}
    every.update(document.metadata)
    return {key: values for key, value in every.items() if (values := set(wanted(value)))}


def wanted(value: Any) -> list[str]:
    """Canonical forms of one value or of a list of them; None and mappings have none. Equal numbers are alike: 1, 1.0, True."""
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        return [form for item in value if (form := _canonical(item)) is not None]
    form = _canonical(value)
    return [] if form is None else [form]


def microseconds(moment: datetime | None) -> int | None:
    """Microseconds since 1970 in UTC; a naive moment is taken as UTC."""
    if moment is None:
        return None
    delta = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def moment(value: int | None) -> datetime | None:
    """The inverse of `microseconds`."""
    return None if value is None else datetime.fromtimestamp(value // 1_000_000, UTC).replace(microsecond=value % 1_000_000)


def labelled(document: Document, chunks: Sequence[Document]) -> list[Document]:
    """The chunks with id, parent and the labels of access that they lack taken from their document.

    A chunk never has laxer labels by omission. Raises ValueError where two chunks have one id.
    """
    done: list[Document] = []
    for number, chunk in enumerate(chunks):
        name = chunk.id or f"{document.id}#{number}"
        done.append(
            chunk.replace(
                id=name,
                parent=chunk.parent or (None if name == document.id else document.id),
                tenant=chunk.tenant or document.tenant,
                compartment=chunk.compartment or document.compartment,
                sensitivity=chunk.sensitivity or document.sensitivity,
            )
        )
    names = [chunk.id for chunk in done]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has two chunks with the id {twice!r}; give each chunk an id of its own")
    return done


def aligned(entry: Entry, legs: Sequence[str]) -> None:
    """Raise ValueError when an entry's vectors are of no leg in `legs`, or not one per chunk."""
    for leg, vectors in entry.vectors.items():
        if leg not in legs:
            raise ValueError(f"has vectors for the leg {leg!r}, which this store does not have; name an `embedder`")
        if len(vectors) != len(entry.chunks):
            counts = f"{len(vectors)} vectors for {len(entry.chunks)} chunks"
            raise ValueError(f"has {counts} on the leg {leg!r}; give one, or None, per chunk")


def _canonical(value: Any) -> str | None:
    if value is None or isinstance(value, Mapping):
        return None
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    try:
        form = value if isinstance(value, str) else "\x1f" + msgspec.json.encode(value).decode()
    except TypeError:
        form = "\x1f" + str(value)
    form = form.encode("utf-8", "replace").decode()
    return form if len(form) <= _LONGEST else "\x1e" + sha256(form.encode()).hexdigest()
