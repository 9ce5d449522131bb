"""The data model: the base class of its nouns, frozen structs that are copied with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

Vector = Sequence[float]
"""One embedding: a sequence of finite floats (a list, or a one-dimensional numpy array)."""

EMPTY: Mapping[str, Any] = {}
"""The default of mappings."""


def equal_nouns(one: msgspec.Struct, other: object) -> bool:
    """Whether two nouns with a field `vector` are of one type and equal. An array compares element by
    element, so that `==` of arrays is no answer.
    """
    if type(one) is not type(other):
        return False
    for name in one.__struct_fields__:
        value, others = getattr(one, name), getattr(other, name)
        if name != "vector":
            if value != others:
                return False
        elif value is not others and (value is None or others is None or list(value) != list(others)):
            return False
    return True


class Noun(msgspec.Struct, frozen=True):
    """Frozen, and copied with changes."""

    BRIEF: ClassVar[frozenset[str] | None] = None
    """The fields that its brief form has, where they are not as they are by default; None: all."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)
