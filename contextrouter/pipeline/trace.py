"""The trace of a request: a step for each action, with its time and the documents it removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

from contextrouter.errors import ContractError
from contextrouter.model import Envelope, Step
from contextrouter.pipeline.envelopes import Ranking, split
from contextrouter.runtime.masking import mask

IN_ORDER = 50
"""Documents whose order after each step the trace keeps."""
MAX_NOTES = 5
"""Notes of one stage that the trace keeps; it counts the others."""
NOTE_CHARACTERS = 300
"""Characters of a note that the trace keeps."""


class TraceBuilder:
    """Collects the steps of one request."""

    def __init__(self, origin: float | None = None) -> None:
        """`origin` is when the request began, on the clock of `monotonic`; None: now."""
        self.steps: list[Step] = []
        self._since = monotonic()
        self.origin = self._since if origin is None else origin

    def add(self, name: str, live: int = 0, lost: Sequence[Envelope] = (), **fields: Any) -> None:
        """Record a step that ends now, with `live` envelopes or hits. `fields` are other fields of the
        step.
        """
        now = monotonic()
        step = Step(
            name=name,
            started=self._since - self.origin,
            elapsed=now - self._since,
            live=live,
            lost=lost if len(lost) else (),
            **fields,
        )
        self.steps.append(step)
        self._since = now

    def add_ranking(self, name: str, envelopes: Sequence[Envelope], note: str = "") -> Ranking:
        """Record a step that returned envelopes; return those that are live."""
        live, lost = split(envelopes)
        self.add(name, len(live), lost, note=note)
        return Ranking(live)

    def keep_order(self, live: Sequence[Envelope]) -> None:
        """Note the order after the last step."""
        if self.steps:
            self.steps[-1] = self.steps[-1].replace(order=order_of(live))


class StageNotes:
    """The notes that a stage leaves in its line of the trace: masked, and cut to a readable length."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._notes: list[str] = []
        self._omitted = 0

    def add(self, text: str) -> None:
        """Take a note. Raises ContractError for one that is no text."""
        if not isinstance(text, str):
            raise ContractError(f"note() was given {type(text).__name__}", law="notes are texts")
        note = " ".join(mask(text, self._secrets).split())
        if len(note) > NOTE_CHARACTERS:
            note = f"{note[:NOTE_CHARACTERS]}…"
        if not note or note in self._notes:
            return
        if len(self._notes) < MAX_NOTES:
            self._notes.append(note)
        else:
            self._omitted += 1

    def join(self, *before: str) -> str:
        """Return all notes as one text, behind others."""
        more = f"{self._omitted} more notes" if self._omitted else ""
        return "; ".join(filter(None, (*before, *self._notes, more)))


def order_of(live: Sequence[Envelope]) -> tuple[str, ...]:
    """Return the ids (or URLs) of the first documents, best first."""
    return tuple([e.document.id or e.document.url for e in live[:IN_ORDER]])
