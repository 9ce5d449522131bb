"""Data objects of a collection: one for each document, one for each chunk, one with notes of the store, and
one that says who fills it.

Ids of a collection have 63 characters at most and no capitals, so the id of an object is a digest. The id of
a chunk's object stands for all of its content: equal content is never written twice.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from contextrouter.builtin.providers.filtering import UNTRUSTED, aligned, labelled, microseconds, storable
from contextrouter.contracts import Entry
from contextrouter.filters import attributes
from contextrouter.model import Document
from contextrouter.text.analysis import analyse
from contextrouter.text.fields import fields
from contextrouter.text.stemming import stem_language, stemmer
from contextrouter.vectors import unit

NONE = "-"  # stands for a label that is missing: the filters of a collection cannot say "no value"
UNDATED = -1e17  # stands for a missing date; earlier than any date there is
NOTES = "notes"  # id and role of the object with notes
TURN = "turn"  # id and role of the object that says who fills the collection
VECTOR = "vector"
FILTERED = ("tenant", "compartment", "sensitivity", "updated", "stems", "values")
RETURNED = ("payload", "terms")
_TEXT = {"type": "string"}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("role", "owner", "id", "fingerprint", "model", "generation"), _TEXT),
        **dict.fromkeys(("tenant", "compartment", "sensitivity", "stems", "terms", "payload"), _TEXT),
        **{key: {"type": "number"} for key in ("updated", "dimensions")},
        **{key: {"type": "array", "items": _TEXT} for key in ("values", "languages")},
    },
}
"""The schema of the objects' data, as JSON Schema (draft 7)."""
_DECODER = msgspec.json.Decoder(Document)


class Row(NamedTuple):
    """One object to be written: its id, its data, its vector, and its size in bytes, roughly."""

    id: str
    data: Mapping[str, Any]
    vector: Sequence[float] | None = None
    size: int = 1_000


class EntryRows(NamedTuple):
    """The objects of one entry."""

    document: Row
    chunks: tuple[Row, ...]
    languages: frozenset[str]  # of the chunks' stems


def owner_id(tenant: str | None, id: str) -> str:
    """Return the id of a document's object, which its chunks bear as `owner`."""
    return "d" + _digest(tenant or "", id)


def make_rows(entry: Entry, legs: Sequence[str], dimensions: int) -> EntryRows:
    """Return the objects of an entry. Raises IngestError that names the document and what is wrong with it.

    `dimensions` is the length of the store's vectors; 0: it has none yet.
    """
    document = entry.document
    with storable(document):
        aligned(entry, legs)
        chunks = labelled(document, entry.chunks)
        vectors = [_vector(entry, number, dimensions) for number in range(len(chunks))]
        owner = owner_id(document.tenant, document.id)
        payload = "" if chunks == [document] else _payload(document)
        notes = {"role": "document", "owner": owner, "fingerprint": entry.fingerprint, "payload": payload}
        head = Row(owner, {**notes, **_labels(document)}, None, len(payload.encode()) + 1_000)
        rows = tuple(_chunk_row(owner, chunk, vector) for chunk, vector in zip(chunks, vectors, strict=True))
        return EntryRows(head, rows, frozenset(stem_language(chunk.language) for chunk in chunks))


def read_document(payload: str) -> Document | None:
    """Return the document in an object; None where the object was written by another program."""
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return None


def encode_label(label: str | None) -> str:
    """Return a label as objects hold it. One of hyphens alone gets one more: "-" stands for none."""
    text = (label or "").encode("utf-8", "replace").decode()
    return text if text.strip(NONE) else text + NONE


def decode_label(text: str) -> str | None:
    """Return the label that an object holds."""
    return text if text.strip(NONE) else text[:-1] or None


def encode_value(key: str, form: str) -> str:
    """Return a value of a filter with its key, as one text that no other pair gives."""
    key = key.encode("utf-8", "replace").decode()
    return f"{len(key)}:{key}={form}"


def decode_value(text: str, key: str) -> str | None:
    """Return the value that a text holds for a key; None: it is of another key."""
    start = encode_value(key, "")
    return text[len(start) :] if text.startswith(start) else None


UNTRUSTED_VALUE = encode_value(UNTRUSTED, "1")
"""Among the values of a chunk that strangers wrote."""


def _chunk_row(owner: str, chunk: Document, vector: list[float] | None) -> Row:
    payload, stemmed = _payload(chunk), stemmer(chunk.language)
    floats = array("f", vector or ()).tobytes()
    data: dict[str, Any] = {
        "role": "chunk",
        "owner": owner,
        "updated": float(UNDATED if (moment := microseconds(chunk.updated_at)) is None else moment),
        "stems": stem_language(chunk.language),
        "values": sorted(
            [
                *[encode_value(key, v) for key, forms in attributes(chunk).items() for v in forms],
                *([UNTRUSTED_VALUE] if chunk.untrusted else []),
            ]
        ),
        "terms": "\n".join(" ".join(analyse(text, stemmed)) for text in fields(chunk)),
        "payload": payload,
        **_labels(chunk),
    }
    texts = (payload, data["terms"], *data["values"])
    size = sum(len(text.encode()) for text in texts) + len(floats) + 1_000
    return Row("c" + _digest(owner, payload, floats.hex()), data, vector, size)


def _labels(document: Document) -> dict[str, str]:
    return {
        "id": document.id,
        **{name: encode_label(getattr(document, name)) for name in ("tenant", "compartment", "sensitivity")},
    }


def _vector(entry: Entry, number: int, dimensions: int) -> list[float] | None:
    vector = entry.vectors[VECTOR][number] if VECTOR in entry.vectors else None
    direction = None if vector is None else unit(vector)
    if direction is not None and dimensions and len(direction) != dimensions:
        raise ValueError(
            f"has a vector of {len(direction)} dimensions, the store's have {dimensions}; embed all with one"
            " model"
        )
    return direction


def _payload(document: Document) -> str:
    return msgspec.json.encode(document, enc_hook=str).decode()


def _digest(*parts: str) -> str:
    digest = sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(data), data))
    return digest.hexdigest()[:40]
