"""Metadata filters: one definition for stores, connectors and the admission of hits.

A filter has a key and one value, or several values of which one is enough. The key is a field of documents or
a key of their metadata. A field wins over a metadata key of the same name, so that no document can imitate
another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from contextrouter.model import SEARCH_TEXT, Document, Query, Request

FIELDS = (
    "id",
    "parent",
    "tenant",
    "compartment",
    "sensitivity",
    "kind",
    "trust",
    "language",
    "media_type",
    "title",
    "url",
    "job",
    "labels",
    "keywords",
)
"""Fields of a document that filters may name; any other name is a key of the metadata."""
_LONGEST = 200


def admits(document: Document, query: Query) -> bool:
    """Whether a document passes the scope, period, filters and labels of a query.

    A document without a tenant belongs to the tenant of its source.
    """
    if query.scope is not None:
        labelled = document if document.tenant else document.replace(tenant=query.scope.tenant)
        if not query.scope.allows(labelled):
            return False
    if query.period is not None and (
        document.updated_at is None or not query.period.contains(document.updated_at)
    ):
        return False
    return passes(document, query.filters, query.labels)


def own_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of filters for one plugin: if it changes them, no other is asked with them."""
    return {key: list(value) if isinstance(value, list) else value for key, value in filters.items()}


def passes(document: Document, filters: Mapping[str, Any], labels: Sequence[str] = ()) -> bool:
    """Whether `document` matches every filter, and has one of `labels` if there are any."""
    if labels and not any(label in document.labels for label in labels):
        return False
    if not filters:
        return True
    return all(
        not wanted_forms.isdisjoint(forms(value_of(document, key)))
        for key, wanted_forms in _forms_of(filters).items()
    )


_RECENT: OrderedDict[tuple[Any, ...], tuple[Mapping[str, Any], Mapping[str, frozenset[str]]]] = OrderedDict()
_MOST_RECENT = 32


def _forms_of(filters: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
    """Return the forms of filters by key. They are made once for the filters of a request, not for every hit.

    Filters are known by their identity and that of their values; an entry keeps them alive.
    """
    values = tuple(filters.values())
    key = (id(filters), *map(id, values), *[len(value) for value in values if isinstance(value, Collection)])
    recent = _RECENT.get(key)
    if recent is not None and recent[0] is filters:
        return recent[1]
    by_key = {name: frozenset(forms(value)) for name, value in filters.items()}
    _RECENT[key] = (filters, by_key)
    while len(_RECENT) > _MOST_RECENT:
        _RECENT.popitem(last=False)
    return by_key


def request_filters(request: Request) -> Mapping[str, Any]:
    """Return the filters of a request with its kinds. When both name kinds, the kinds in common count."""
    if request.kinds is None:
        return request.filters
    return combine({"kind": list(request.kinds)}, request.filters)


def combine(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return filters that hold both. For a key of both, the values in common count; without any, no document
    matches.
    """
    merged = {**second, **first}
    for key in first.keys() & second.keys():
        others = set(forms(second[key]))
        merged[key] = [value for value in _as_list(first[key]) if not others.isdisjoint(forms(value))]
    return merged


def _as_list(value: Any) -> list[Any]:
    listed = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    return list(value) if listed else [value]


def value_of(document: Document, key: str) -> Any:
    """Return the value of a document for the key of a filter: its field, or else its metadata."""
    return getattr(document, key) if key in FIELDS else document.metadata.get(key)


def attributes(document: Document) -> dict[str, set[str]]:
    """Return the values that filters can match, by key, in canonical form. Nested mappings are left out."""
    fields: dict[str, Any] = {**document.metadata, **{field: getattr(document, field) for field in FIELDS}}
    return {
        key: values for key, value in fields.items() if key != SEARCH_TEXT and (values := set(forms(value)))
    }


def forms(value: Any) -> list[str]:
    """Return the canonical forms of one value or of a list. None, an empty text and mappings have no form, so
    nothing equals them.

    Equal numbers have one form: 1, 1.0, True. A value that JSON writes as a text, such as a datetime, has the
    form of that text, as in a store.
    """
    if type(value) is str:
        return [_shorten(value)] if value else []
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        return [form for item in value if (form := _canonical(item)) is not None]
    form = _canonical(value)
    return [] if form is None else [form]


def _canonical(value: Any) -> str | None:
    if type(value) is str and value:  # nearly all are
        return _shorten(value)
    if value is None or value == "" or isinstance(value, Mapping):
        return None
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    if not isinstance(value, str):
        try:
            text = msgspec.json.encode(value, enc_hook=str).decode()
        except (TypeError, ValueError):
            text = str(value)
        value = msgspec.json.decode(text) if text.startswith('"') else "\x1f" + text
    return _shorten(value)


def _shorten(text: str) -> str:
    form = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return form if len(form) <= _LONGEST else "\x1e" + sha256(form.encode()).hexdigest()
