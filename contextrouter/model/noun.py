"""The data model: the base class of its nouns, frozen structs that are copied with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

Vector = Sequence[float]
"""One embedding: a sequence of finite floats (a list, or a one-dimensional numpy array)."""

EMPTY: Mapping[str, Any] = {}
"""The default of mappings."""


class Noun(msgspec.Struct, frozen=True):
    """Frozen, and copied with changes."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)
