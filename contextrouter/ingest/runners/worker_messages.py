"""Messages between a coordinator and its workers, as JSON. Settings and documents travel, plugins never do.

JSON keeps the time zone of a moment, as the stores do. Metadata may hold values that JSON lacks; they travel
with a tag. Nothing is pickled.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import msgspec

from contextrouter.ingest.changes import Change
from contextrouter.ingest.job_options import JobOptions
from contextrouter.ingest.report import Report
from contextrouter.model import Document, Entity, Fact

_TAG = "\x00"
"""Key of a table that stands for a value that JSON lacks. Its value is [kind, content]."""


class Setup(msgspec.Struct, kw_only=True):
    """What a worker needs to open the plugins of jobs.

    `tables` are settings before variables are replaced: a worker takes secrets from its own environment.
    `location` is the path of the settings file, from which relative paths begin.
    """

    tables: dict[str, Any]
    location: str = ""


class SentChange(msgspec.Struct, kw_only=True):
    """A change on its way to a worker."""

    document: Document
    fingerprint: str
    stored: bool


class Work(msgspec.Struct, kw_only=True):
    """Documents of one job that a worker prepares, embeds and stores."""

    job: str
    options: JobOptions
    changes: list[SentChange]


class Reply(msgspec.Struct, kw_only=True):
    """What became of the work. `error`: the embedder or the store failed, and the run has to end."""

    report: Report = msgspec.field(default_factory=Report)
    error: str = ""
    document: str = ""  # at which the error happened


_works, _replies = msgspec.json.Decoder(Work), msgspec.json.Decoder(Reply)


def encode_setup(setup: Setup) -> bytes:
    """Return the settings of a worker as bytes."""
    return msgspec.json.encode(setup, enc_hook=str)


def decode_setup(body: bytes) -> Setup:
    """Return the settings in `body`. Raises msgspec.DecodeError for other bytes."""
    return msgspec.json.decode(body, type=Setup)


def encode_change(change: Change) -> msgspec.Raw:
    """Return a change as it is sent. Raises TypeError or ValueError for what no message holds, such as a
    lone surrogate.
    """
    document = _pack_document(change.document)
    sent = SentChange(document=document, fingerprint=change.fingerprint, stored=change.stored)
    return msgspec.Raw(msgspec.json.encode(sent))


def received(change: SentChange) -> Change:
    """Return a change as it was before it was sent."""
    return Change(_unpack_document(change.document), change.fingerprint, stored=change.stored)


def encode_work(job: str, options: JobOptions, changes: Sequence[msgspec.Raw]) -> bytes:
    """Return work as bytes."""
    return msgspec.json.encode({"job": job, "options": options, "changes": changes})


def decode_work(body: bytes) -> Work:
    """Return the work in `body`. Raises msgspec.DecodeError for other bytes."""
    return _works.decode(body)


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as bytes. What is no Unicode in a reason becomes a question mark."""
    reply.report.skipped = [(_clean(id), _clean(reason)) for id, reason in reply.report.skipped]
    reply.error = _clean(reply.error)
    return msgspec.json.encode(reply)


def decode_reply(body: bytes) -> Reply:
    """Return the reply in `body`. Raises msgspec.DecodeError for other bytes."""
    return _replies.decode(body)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _pack_document(document: Document) -> Document:
    return document.replace(metadata={name: _pack(value) for name, value in document.metadata.items()})


def _unpack_document(document: Document) -> Document:
    return document.replace(metadata={name: _unpack(value) for name, value in document.metadata.items()})


_CONTENTS: Mapping[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    tuple: ("tuple", lambda value: [_pack(item) for item in value]),
    set: ("set", lambda value: [_pack(item) for item in value]),
    frozenset: ("frozenset", lambda value: [_pack(item) for item in value]),
    Fact: ("fact", lambda value: msgspec.json.encode(value, enc_hook=str).decode()),
    Entity: ("entity", lambda value: msgspec.json.encode(value, enc_hook=str).decode()),
    Document: ("document", lambda value: msgspec.json.encode(_pack_document(value)).decode()),
}
_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "bytes": base64.b64decode,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "tuple": lambda content: tuple(_unpack(item) for item in content),
    "set": lambda content: {_unpack(item) for item in content},
    "frozenset": lambda content: frozenset(_unpack(item) for item in content),
    "fact": lambda content: msgspec.json.decode(content, type=Fact),
    "entity": lambda content: msgspec.json.decode(content, type=Entity),
    "document": lambda content: _unpack_document(msgspec.json.decode(content, type=Document)),
    "float": float,
    "pairs": lambda content: {_unpack(name): _unpack(value) for name, value in content},
}


def _pack(value: Any) -> Any:
    """Return a value as JSON has it. Raises TypeError for one of an unknown type."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_TAG: ["float", str(value)]}
    if isinstance(value, list):
        return [_pack(item) for item in value]
    if isinstance(value, Mapping):
        if all(isinstance(name, str) and name != _TAG for name in value):
            return {name: _pack(item) for name, item in value.items()}
        return {_TAG: ["pairs", [[_pack(name), _pack(item)] for name, item in value.items()]]}
    for kind, (name, content) in _CONTENTS.items():
        if isinstance(value, kind):
            return {_TAG: [name, content(value)]}
    raise TypeError(f"metadata holds a {type(value).__name__}, which cannot be sent to a worker")


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG in value:
        kind, content = value[_TAG]
        return _VALUES[kind](content)
    return {name: _unpack(item) for name, item in value.items()}


def merge(report: Report, part: Report) -> None:
    """Add what a worker counted to the report of the run."""
    for name in ("documents", "added", "changed", "chunks", "facts", "tokens", "embedded"):
        setattr(report, name, getattr(report, name) + getattr(part, name))
    report.skipped.extend(part.skipped)
    report.changes.extend(part.changes)
