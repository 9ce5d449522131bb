"""Lone surrogates, which no encoding can carry, become U+FFFD; and texts that show no character."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, TypeVar

import msgspec

from contextrouter.model import Noun

N = TypeVar("N", bound=Noun)
_LONE = "[\ud800-\udfff]"
REPLACEMENT = "\ufffd"


def _ignore(value: object) -> None:
    """Stand for a value of metadata that is no text and holds none."""


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_ignore)


def whole_characters(noun: N) -> N:
    """Return a noun, such as a document or a fact, whose texts hold no lone surrogate."""
    try:
        _ENCODER.encode(noun)  # the quickest way to learn that there is none
        return noun
    except Exception:
        values = {name: getattr(noun, name) for name in noun.__struct_fields__}
    repaired = {name: _repair(value) for name, value in values.items()}
    changes = {name: value for name, value in repaired.items() if value is not values[name]}
    return msgspec.structs.replace(noun, **changes) if changes else noun


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: blank space, and characters without a form, such as a byte order mark."""
    return not any(not char.isspace() and unicodedata.category(char) not in ("Cc", "Cf") for char in text)


def whole_texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return texts without lone surrogates."""
    whole: tuple[str, ...] = _repair(texts)
    return whole


def _repair(value: Any) -> Any:
    """Return a value without lone surrogates; the same object where there are none."""
    kind = type(value)
    if kind is str:
        lone = not value.isascii() and re.search(_LONE, value)
        return re.sub(_LONE, REPLACEMENT, value) if lone else value
    if kind in (tuple, list):
        items = [_repair(item) for item in value]
        changed = any([one is not two for one, two in zip(items, value, strict=True)])
        return kind(items) if changed else value
    if kind is dict:
        pairs = {_repair(key): _repair(item) for key, item in value.items()}
        same = len(pairs) == len(value) and all(
            [key is other and pairs[key] is value[other] for key, other in zip(pairs, value, strict=True)]
        )
        return value if same else pairs
    return value
