"""How often a term counts in a chunk's title, heading path and body (BM25F)."""

from __future__ import annotations

import math

USUAL = (3.0, 2.0, 1.0)
"""The weights of title, heading path and body where the settings name none."""


def checked_weights(title: float, path: float, body: float) -> tuple[float, float, float]:
    """The weights. Raises ValueError for what is no weight, and where all are 0."""
    for field, weight in (("title", title), ("path", path), ("body", body)):
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"{field}_weight {weight!r} is no weight; give a finite number, 0 or more.")
    if not title + path + body:
        raise ValueError("title_weight, path_weight and body_weight are all 0; give at least one a weight.")
    return title, path, body
