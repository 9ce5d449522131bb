"""The trace of a request: a step for each action, with its time and the documents it removed."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from contextrouter.model import Envelope, Step
from contextrouter.pipeline.envelopes import Ranking, split

IN_ORDER = 50
"""Documents whose order after each step the trace keeps."""


class TraceBuilder:
    """Collects the steps of one request."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._since = monotonic()

    def add(self, name: str, live: int = 0, lost: Sequence[Envelope] = (), **fields: Any) -> None:
        """Record a step that ends now, with `live` envelopes or hits. `fields` are other fields of the
        step.
        """
        now = monotonic()
        self.steps.append(Step(name=name, elapsed=now - self._since, live=live, lost=lost, **fields))
        self._since = now

    def add_ranking(self, name: str, envelopes: Sequence[Envelope]) -> Ranking:
        """Record a step that returned envelopes; return those that are live."""
        live, lost = split(envelopes)
        self.add(name, len(live), lost)
        return Ranking(live)

    def explain(self, note: str) -> None:
        """Add a note to the last step."""
        self.steps[-1] = self.steps[-1].replace(note=note)

    def keep_order(self, live: Sequence[Envelope]) -> None:
        """Note the order after the last step."""
        if self.steps:
            self.steps[-1] = self.steps[-1].replace(order=order_of(live))


def order_of(live: Sequence[Envelope]) -> tuple[str, ...]:
    """Return the ids (or URLs) of the first documents, best first."""
    return tuple([e.document.id or e.document.url for e in live[:IN_ORDER]])
