"""A source whose module imports what only open() may."""

from __future__ import annotations

import numpy as np
from breaking import breaks
from broken_common import Shelf

from contextrouter.model import Hit, Query


@breaks("module_imports_nothing_heavy")
class Heavy(Shelf):
    def ranked(self, query: Query, documents: object) -> list[Hit]:
        found = super().ranked(query, documents)  # type: ignore[arg-type]  # any documents do here
        order = np.argsort([-(hit.score or 0.0) for hit in found], kind="stable")
        return [found[int(number)] for number in order]
