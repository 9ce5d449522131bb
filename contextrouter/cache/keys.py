"""Cache keys: exact encodings of everything that an answer depends on.

Two keys are equal only when all inputs are equal. An input without an exact encoding has no key and is not
cached.
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

from contextrouter.contracts import Embedder, Plugin, Reranker
from contextrouter.model import Document, Request
from contextrouter.scope import Scope
from contextrouter.settings import Instance, Settings

FORMAT = 2
"""The version of the format. A change makes earlier entries invalid."""

_encode = msgspec.json.Encoder(order="deterministic").encode
_TEXTUAL = (date, datetime, time, Decimal, UUID)


def address(key: bytes) -> bytes:
    """Return the address of a key in outer tiers: its full SHA-256."""
    return sha256(key).digest()


def canonical(value: Any) -> Any:
    """Return `value` in JSON types, so that only equal values of equal types have equal results. Raises
    TypeError for unsupported types.

    Every array begins with the name of its type, so that no input can imitate another type.
    """
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is int:
        return value if -(2**53) < value < 2**53 else ["int", str(value)]
    if kind is float:
        return value if isfinite(value) else ["float", repr(value)]
    if kind is list or kind is tuple:
        return ["list", *map(canonical, value)]
    if kind is set or kind is frozenset:
        return ["set", *sorted(map(canonical_json, value))]
    if isinstance(value, Mapping):
        return [
            "map",
            *sorted(
                ([canonical_json(k), canonical(v)] for k, v in value.items()), key=lambda pair: str(pair[0])
            ),
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
            *(canonical(getattr(value, name)) for name in kind.__struct_fields__),
        ]
    raise TypeError(f"A {kind.__name__} has no exact encoding, so it cannot be part of a cache key.")


def canonical_json(value: Any) -> str:
    """Return `canonical(value)` as JSON text."""
    return _encode(canonical(value)).decode()


def request_key(request: Request) -> bytes:
    """Return the key of a request, without its deadline. Raises TypeError or ValueError when a value has no
    exact encoding.
    """
    scope = request.scope
    return _encode(
        (
            request.question,
            None if scope is None else _scope_key(scope),
            request.sources,
            request.legs,
            request.kinds,
            request.mode,
            canonical(request.history) if request.history else None,
            canonical(request.profile) if request.profile else None,
            canonical(request.filters) if request.filters else None,
            canonical(request.period) if request.period else None,
            request.labels,
            canonical(request.as_of) if request.as_of else None,
            request.limit,
        )
    )


def _scope_key(scope: Scope) -> Any:
    if not (scope.tenant is None or type(scope.tenant) is str) or not all(
        type(name) is str for name in scope.compartments
    ):
        raise TypeError("The scope's tenant and compartments are not texts.")
    return (scope.tenant, scope.compartments, scope.ceiling)


def router_digest(
    settings: Settings, by_hand: Mapping[tuple[str, str], Plugin], *, version: str, token: str
) -> bytes:
    """Return a digest of everything that all answers of a router depend on: package, settings, and the plugin
    instances made by hand.

    Instances made by hand have no settings that identify them. So their answers have `token` in the key,
    which is unique to the router. An embedder that names its model is identified by the model.
    """
    identities = sorted((kind, name, identity(plugin, token)) for (kind, name), plugin in by_hand.items())
    folder = "" if settings.path else os.getcwd()  # relative paths in settings without a file
    return sha256(
        _encode((FORMAT, version, settings.fingerprint, settings.cache.namespace, folder, identities))
    ).digest()


def identity(plugin: Plugin, token: str) -> str:
    """Return the type of an instance made by hand, with its model or `token`."""
    model = plugin.model if isinstance(plugin, Embedder) else ""
    return f"{type(plugin).__module__}.{type(plugin).__qualname__} {model or token}"


def embedder_digest(embedder: Embedder, instance: Instance | None, *, namespace: str, token: str) -> bytes:
    """Return a digest of an embedder: its plugin and settings (None: made by hand), model and dimensions."""
    origin = identity(embedder, token) if instance is None else [instance.use, canonical(instance.options)]
    return sha256(_encode((FORMAT, namespace, origin, embedder.model, embedder.dimensions))).digest()


def instance_origin(
    settings: Settings, by_hand: Mapping[tuple[str, str], Plugin], kind: str, name: str, token: str
) -> Any:
    """Return what identifies an instance in any router: its plugin, its options and the origins of the
    instances that they name. Raises TypeError for options without an exact encoding.
    """
    plugin = by_hand.get((kind, name))
    if plugin is not None:
        return identity(plugin, f"{token} {name}")
    instance = settings.instances(kind).get(name)
    if instance is None:
        return [kind, name]
    options = {
        option: value for option, value in instance.options.items() if option not in instance.references
    }
    named = [
        (option, instance_origin(settings, by_hand, other, instance.options[option], token))
        for option, other in sorted(instance.references.items())
    ]
    folder = "" if settings.path else os.getcwd()  # relative paths in settings without a file
    return [instance.use, canonical(options), named, folder]


def reranker_digest(reranker: Reranker, origin: Any, *, version: str, namespace: str) -> bytes:
    """Return a digest of all that decides the scores of a reranker, beside question and documents."""
    return sha256(_encode((FORMAT, version, namespace, origin, reranker.model))).digest()


def scores_key(reranker: bytes, scope: Scope | None, query: str, documents: Sequence[Document]) -> bytes:
    """Return the key of the scores that a reranker gives a list of documents."""
    digest = sha256(_encode((None if scope is None else _scope_key(scope), len(documents))))
    for part in (query, *[text for document in documents for text in (document.title, document.content)]):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return b"r" + reranker + digest.digest()


def query_key(embedder: bytes, text: str) -> bytes:
    """Return the key of the vector of a query text."""
    return b"e" + embedder + b"q" + text.encode("utf-8", "surrogatepass")
