"""Score floor: drops documents below a share of the highest possible score."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.contracts import Stage, StageContext
from contextrouter.model import Envelope


class Floor(Stage):
    """Drops documents whose `normalized` score, the score ÷ the most it could be, is below `minimum`; 0 is
    off.
    """

    switch = ""

    def __init__(self, *, minimum: float = 0.3) -> None:
        if not 0 <= minimum <= 1:
            raise ValueError(f"minimum {minimum!r} is not between 0 and 1.")
        self._minimum = minimum

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all, those below the floor dropped."""
        reason = f"floor: below {self._minimum:g}"
        return [
            e if e.normalized >= self._minimum else e.drop(f"{reason} with {e.normalized:.3f}")
            for e in envelopes
        ]
