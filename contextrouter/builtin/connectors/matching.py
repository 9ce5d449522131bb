"""Filtering of connectors: applies scope, period and filters to documents before the limit."""

from __future__ import annotations

from contextrouter.filters import passes
from contextrouter.model import Document, Query
from contextrouter.scope import Scope


def visible(document: Document, scope: Scope | None) -> bool:
    """Whether `document` may be seen in `scope`; None is unrestricted.

    A document that names no tenant takes its source's, which only the router knows and checks on arrival: it
    is let through.
    """
    if scope is None or not (document.tenant or document.compartment or document.sensitivity):
        return True
    return scope.allows(document if document.tenant else document.replace(tenant=scope.tenant))


def matches(document: Document, query: Query) -> bool:
    """Whether `document` is in the query's scope and period and passes its filters and labels.

    Undated documents are in no period.
    """
    if not visible(document, query.scope):
        return False
    if query.period and (document.updated_at is None or not query.period.contains(document.updated_at)):
        return False
    return passes(document, query.filters, query.labels)
