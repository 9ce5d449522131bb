"""What a filter finds, said once for stores, connectors and the check on arrival.

A filter names a field of documents, or else a key of their metadata, and a value or several of which one
suffices. A field comes first: a metadata key of the same name changes nothing, so that no document passes for
another by what it says of itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from contextrouter.model import SEARCH_TEXT, Document, Request

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
    "labels",
    "keywords",
)
"""Fields of a document that filters may name; any other name is a key of the metadata."""
_LONGEST = 200


def passes(document: Document, filters: Mapping[str, Any], labels: Sequence[str] = ()) -> bool:
    """Whether `document` has what each filter names, and bears one of `labels` where there are any."""
    if labels and not any(label in document.labels for label in labels):
        return False
    return all(
        not set(forms(value)).isdisjoint(forms(value_of(document, key))) for key, value in filters.items()
    )


def request_filters(request: Request) -> Mapping[str, Any]:
    """What a request wants filtered: its filters, and its kinds; of kinds that both name, those on which they
    agree.
    """
    if request.kinds is None:
        return request.filters
    kinds = list(request.kinds)
    if "kind" in request.filters:
        requested = set(forms(request.filters["kind"]))
        kinds = [kind for kind in kinds if not requested.isdisjoint(forms(kind))]
    return {**request.filters, "kind": kinds}


def value_of(document: Document, key: str) -> Any:
    """What a document has under a filter's key: its field of that name, or else its metadata's."""
    return getattr(document, key) if key in FIELDS else document.metadata.get(key)


def attributes(document: Document) -> dict[str, set[str]]:
    """The values a filter can meet, by key, each in canonical form. Nested mappings are not filtered on."""
    fields: dict[str, Any] = {**document.metadata, **{field: getattr(document, field) for field in FIELDS}}
    return {
        key: values for key, value in fields.items() if key != SEARCH_TEXT and (values := set(forms(value)))
    }


def forms(value: Any) -> list[str]:
    """Canonical forms of one value or of a list of them; None, an empty text and mappings have none, so
    nothing is equal to them.

    Equal numbers are alike: 1, 1.0, True. What JSON writes as a text, a moment, say, is that text, as it is
    in a store.
    """
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        return [form for item in value if (form := _canonical(item)) is not None]
    form = _canonical(value)
    return [] if form is None else [form]


def _canonical(value: Any) -> str | None:
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
    form = text.encode("utf-8", "replace").decode()
    return form if len(form) <= _LONGEST else "\x1e" + sha256(form.encode()).hexdigest()
