"""Cache keys: exact encodings of everything an answer depends on. Two keys are equal only when nothing
differs.

Where an encoding cannot be exact, there is no key, and what has no key is not cached.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from contextrouter.contracts import Embedder, Plugin
from contextrouter.model import Document, Request
from contextrouter.scope import Scope
from contextrouter.settings import Instance, Settings

FORMAT = 1
"""Counts up whenever entries of earlier versions could be misread."""

_encode = msgspec.json.Encoder(order="deterministic").encode
_TEXTUAL = (date, datetime, time, Decimal, UUID)


def address(key: bytes) -> bytes:
    """The SHA-256 of a key, in full: where outer tiers keep what belongs to it."""
    return sha256(key).digest()


def plain(value: Any) -> Any:
    """Return `value` in JSON's types, so that only equal values of equal types become equal. Raises TypeError
    for other types.

    Every array begins with its type, so that nothing from outside can look like another type.
    """
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is int:
        return value if -(2**53) < value < 2**53 else ["int", str(value)]
    if kind is float:
        return value if isfinite(value) else ["float", repr(value)]
    if kind is list or kind is tuple:
        return ["list", *map(plain, value)]
    if kind is set or kind is frozenset:
        return ["set", *sorted(map(encoded, value))]
    if isinstance(value, Mapping):
        return [
            "map",
            *sorted(([encoded(k), plain(v)] for k, v in value.items()), key=lambda pair: str(pair[0])),
        ]
    if kind is bytes:
        return ["bytes", value.hex()]
    if kind in _TEXTUAL:
        return [kind.__name__, f"{value!r} {getattr(value, 'fold', 0)}"]
    if kind is timedelta:
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if isinstance(value, msgspec.Struct):
        return [
            f"{kind.__module__}.{kind.__qualname__}",
            *(plain(getattr(value, name)) for name in kind.__struct_fields__),
        ]
    raise TypeError(f"A {kind.__name__} has no exact encoding, so it cannot be part of a cache key.")


def encoded(value: Any) -> str:
    """`plain(value)` as JSON text."""
    return _encode(plain(value)).decode()


def of_request(request: Request) -> bytes:
    """All of a request but its deadline. Raises TypeError or ValueError when a value in it has no exact
    encoding.
    """
    scope = request.scope
    return _encode(
        (
            request.question,
            None if scope is None else _scope(scope),
            request.sources,
            request.legs,
            request.kinds,
            request.mode,
            plain(request.history) if request.history else None,
            plain(request.profile) if request.profile else None,
            plain(request.filters) if request.filters else None,
        )
    )


def _scope(scope: Scope) -> Any:
    if not (scope.tenant is None or type(scope.tenant) is str) or not all(
        type(name) is str for name in scope.compartments
    ):
        raise TypeError("The scope's tenant and compartments are not texts.")
    return (scope.tenant, scope.compartments, scope.ceiling)


def of_router(
    settings: Settings, given: Mapping[tuple[str, str], Plugin], *, version: str, token: str
) -> bytes:
    """A digest of what every answer of a router depends on: package, settings, and the instances made by
    hand.

    Instances made by hand have no settings that tell one from another, so what they had a part in is kept
    under `token`, which no other router has. An embedder that names its model is known by that.
    """
    by_hand = sorted((kind, name, identity(plugin, token)) for (kind, name), plugin in given.items())
    folder = "" if settings.path else os.getcwd()  # relative paths in settings without a file
    return sha256(
        _encode((FORMAT, version, settings.fingerprint, settings.cache.namespace, folder, by_hand))
    ).digest()


def identity(plugin: Plugin, token: str) -> str:
    """The type of an instance made by hand, and what tells it from others of that type."""
    named = plugin.model if isinstance(plugin, Embedder) else ""
    return f"{type(plugin).__module__}.{type(plugin).__qualname__} {named or token}"


def of_embedder(embedder: Embedder, instance: Instance | None, *, namespace: str, token: str) -> bytes:
    """A digest of whose vectors they are: the plugin with its settings (None: made by hand), model and
    dimensions.
    """
    made = identity(embedder, token) if instance is None else [instance.use, plain(instance.options)]
    return sha256(_encode((FORMAT, namespace, made, embedder.model, embedder.dimensions))).digest()


def of_scores(
    router: bytes, stage: str, model: str, scope: Scope | None, query: str, documents: Sequence[Document]
) -> bytes:
    """The key of the scores that one stage gave to a list of documents."""
    digest = sha256(_encode((stage, model, None if scope is None else _scope(scope), len(documents))))
    for part in (query, *[text for document in documents for text in (document.title, document.content)]):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return b"r" + router + digest.digest()


def of_text(embedder: bytes, text: str, *, query: bool) -> bytes:
    """The key of one text's vector."""
    return b"e" + embedder + (b"q" if query else b"d") + text.encode("utf-8", "surrogatepass")
