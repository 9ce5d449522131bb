"""Documents as stores keep them: JSON, compressed where it is seldom read."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from contextrouter.model import Document

SHORT = 500  # characters of a whole document that are not worth compressing
_DECODER = msgspec.json.Decoder(Document)
_FIELDS = Document.__struct_fields__
_DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in msgspec.structs.fields(Document) if not field.required
}
_LIST_DECODER = msgspec.json.Decoder(list[Document])


def payload(document: Document) -> str:
    """A document as JSON, without the fields that have their default. Moments and other values of metadata
    that JSON lacks become text.
    """
    fields = {name: value for name in _FIELDS if (value := getattr(document, name)) != _DEFAULTS.get(name)}
    return msgspec.json.encode(fields, enc_hook=str).decode()


def compress(stored: str) -> str | bytes:
    """A payload that is seldom read, as it is kept. `document` reads both forms."""
    return zlib.compress(stored.encode(), level=1) if len(stored) > SHORT else stored


def document(stored: str | bytes) -> Document:
    """The inverse of `payload`, and of `compress`."""
    return _DECODER.decode(zlib.decompress(stored) if isinstance(stored, bytes) else stored)


def documents(stored: str) -> list[Document]:
    """The inverse of several payloads, in a JSON array."""
    return _LIST_DECODER.decode(stored)
