"""Time zones by their names, such as "Europe/Berlin"."""

from __future__ import annotations

from datetime import tzinfo


def time_zone(name: str) -> tzinfo:
    """Return a zone. Raises ValueError or KeyError (ZoneInfoNotFoundError) where there is none."""
    from zoneinfo import ZoneInfo  # with its tables it takes longer to import than the nouns

    return ZoneInfo(name)
