"""What a connector keeps back before it cuts to the limit: documents out of scope, out of the period, or filtered out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from contextrouter.model import Document, Query, Scope

_FIELDS = ("kind", "language", "trust", "title", "url", "parent", "media_type", "labels", "keywords")


def visible(document: Document, scope: Scope | None) -> bool:
    """Whether `document` may be seen in `scope`; None is unrestricted.

    A document that names no tenant takes its source's, which only the router knows and checks on arrival: it is let through.
    """
    if scope is None:
        return True
    return scope.allows(document if document.tenant else document.replace(tenant=scope.tenant))


def matches(document: Document, query: Query) -> bool:
    """Whether `document` is in the query's scope and period and passes its filters. Undated documents are in no period."""
    if not visible(document, query.scope):
        return False
    if query.period and (document.updated_at is None or not query.period.contains(document.updated_at)):
        return False
    return all(_passes(document, key, wanted) for key, wanted in query.filters.items())


def _passes(document: Document, key: str, wanted: Any) -> bool:
    """Whether the metadata value under `key`, or else the document's own field, is (or holds) one of the `wanted` values."""
    value = document.metadata[key] if key in document.metadata else getattr(document, key) if key in _FIELDS else None
    allowed = list(wanted) if isinstance(wanted, Collection) and not isinstance(wanted, str | bytes) else [wanted]
    values = value if isinstance(value, list | tuple) else [value]
    return any(item in allowed for item in values if item is not None)
