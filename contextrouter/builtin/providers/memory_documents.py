"""Documents of the settings for the store in memory, and labels of their facts."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from contextrouter.model import Document, Fact


def read_document(number: int, table: Any) -> Document:
    """Return a document of the settings. Raises ValueError that says which one is wrong and why."""
    try:
        unknown = set(table) - set(Document.__struct_fields__)
        if unknown:
            raise ValueError(
                f"unknown keys {sorted(unknown)}; known keys: {', '.join(Document.__struct_fields__)}"
            )
        document = msgspec.convert(table, Document)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ValueError(f"documents[{number}] is not a document: {error}.") from error
    return (
        document
        if document.id
        else document.replace(id=sha256(document.fingerprint.encode()).hexdigest()[:16])
    )


def with_labels(fact: Fact, document: Document) -> Fact:
    """Return a fact with the labels of access that it lacks taken from its document."""
    return fact.replace(
        tenant=fact.tenant or document.tenant,
        compartment=fact.compartment or document.compartment,
        sensitivity=fact.sensitivity or document.sensitivity,
    )
