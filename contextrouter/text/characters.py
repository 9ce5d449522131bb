"""Lone surrogates: halves of characters that no encoding can carry. They become U+FFFD."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from contextrouter.model import Noun

N = TypeVar("N", bound=Noun)
_LONE = "[\ud800-\udfff]"
REPLACEMENT = "\ufffd"


def whole_characters(noun: N) -> N:
    """Return a noun, such as a document or a fact, whose texts hold no lone surrogate."""
    changes: dict[str, Any] = {}
    for name in noun.__struct_fields__:
        value = getattr(noun, name)
        kind = type(value)
        if kind is str:
            if not value.isascii() and re.search(_LONE, value):
                changes[name] = re.sub(_LONE, REPLACEMENT, value)
        elif kind in (tuple, list, dict) and value:
            repaired = _repair(value)
            if repaired is not value:
                changes[name] = repaired
    return msgspec.structs.replace(noun, **changes) if changes else noun


def has_lone_surrogate(*texts: str) -> bool:
    """Whether one of the texts holds half a character."""
    return any([not text.isascii() and re.search(_LONE, text) is not None for text in texts])


def _repair(value: Any) -> Any:
    """Return a value of metadata without lone surrogates; the same object where there are none."""
    kind = type(value)
    if kind is str:
        lone = not value.isascii() and re.search(_LONE, value)
        return re.sub(_LONE, REPLACEMENT, value) if lone else value
    if kind in (tuple, list):
        items = [_repair(item) for item in value]
        changed = any(one is not two for one, two in zip(items, value, strict=True))
        return kind(items) if changed else value
    if kind is dict:
        pairs = {_repair(key): _repair(item) for key, item in value.items()}
        changed = any(
            key is not other or pairs[key] is not value[other]
            for key, other in zip(pairs, value, strict=False)
        )
        return pairs if changed or len(pairs) != len(value) else value
    return value
