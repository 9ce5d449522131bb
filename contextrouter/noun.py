"""What the nouns share."""

from __future__ import annotations

from typing import Any, Self

import msgspec


class Noun(msgspec.Struct, frozen=True):
    """Frozen, and copied with changes."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)
