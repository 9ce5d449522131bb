"""The two places that a store has for vectors: which model's are where, and which of them answer questions.

A change of model fills the second place beside the first. A router searches the place of its own embedder's
model, so both answer until one of them is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contextrouter.contracts import StoredModel
from contextrouter.errors import SourceError

FIRST, SECOND = "", "_2"
"""What the names of a place's tables, columns and notes end with."""
NOTES = ("model", "dimensions", "embedder", "filling", "filled")
"""What is noted of each place: the model, the length of its vectors, the embedder's name in the settings, "1"
while some are missing, and what changes whenever vectors came to older chunks.
"""
COUNTED_AS = "counted_as"
"""The note of the model and dimensions that fingerprints count: those before the first change."""
REBUILD = "`contextrouter ingest --rebuild`"


class Slot(NamedTuple):
    """A place for vectors that is in use."""

    suffix: str
    model: str
    dimensions: int
    embedder: str
    filling: bool  # some are missing: no question is answered with it

    def suits(self, model: str, dimensions: int) -> bool:
        """Whether nothing says that another model than `model` filled it."""
        return not (
            (self.model and model and self.model != model)
            or (self.dimensions and dimensions and self.dimensions != dimensions)
        )

    def check_length(self, length: int) -> None:
        """Raise SourceError for a vector of another length than those that are here."""
        if length != self.dimensions:
            raise SourceError(
                f"Embedder gave a vector of {length} dimensions, {self.model!r} has {self.dimensions}; check"
                " the embedder."
            )

    def embedder_for_messages(self) -> str:
        """Return the name that the store notes of the embedder, or whose embedder it is."""
        return repr(self.embedder) if self.embedder else f"that of {_named(self.model)}"

    def to_stored_model(self, chunks: int, missing: int) -> StoredModel:
        """Return its model as the store describes it, with the chunks that have vectors of it and those that
        have none.
        """
        return StoredModel(
            model=self.model,
            dimensions=self.dimensions,
            embedder=self.embedder,
            ready=not self.filling,
            chunks=chunks,
            missing=missing,
        )


EMPTY = Slot(FIRST, "", 0, "", False)


def note_keys() -> list[str]:
    """Return the keys of all notes about the places."""
    return [key + suffix for suffix in (FIRST, SECOND) for key in NOTES]


def read_slots(notes: Mapping[str, object]) -> list[Slot]:
    """Return the places that are in use."""
    slots = []
    for suffix in (FIRST, SECOND):
        model, size = str(notes.get("model" + suffix) or ""), int(str(notes.get("dimensions" + suffix) or 0))
        if model or size:
            embedder = str(notes.get("embedder" + suffix) or "")
            slots.append(Slot(suffix, model, size, embedder, bool(notes.get("filling" + suffix))))
    return slots


def answering(slots: Sequence[Slot], model: str, dimensions: int) -> Slot | None:
    """Return the place that answers the questions of a model, an empty one where none is in use; None where
    other models filled the store, or vectors of this one are missing.
    """
    if not slots:
        return EMPTY
    ready = [slot for slot in slots if slot.suits(model, dimensions) and not slot.filling]
    return next((slot for slot in ready if slot.model == model), ready[0] if ready else None)


def slot_to_count(slots: Sequence[Slot], model: str, dimensions: int) -> Slot:
    """Return the place whose vectors a store counts: the one that answers the questions of a model, or else
    the first one that answers those of another.
    """
    return answering(slots, model, dimensions) or next((s for s in slots if not s.filling), slots[0])


def choose(slots: Sequence[Slot], model: str, dimensions: int) -> Slot:
    """Return the place that answers the questions of a model; an empty one where none is in use.

    Raises SourceError when other models filled the store, or when vectors of this one are missing.
    """
    if (slot := answering(slots, model, dimensions)) is not None:
        return slot
    suitable = [slot for slot in slots if slot.suits(model, dimensions)]
    other = next((slot for slot in slots if not slot.filling), slots[0])
    if suitable:
        remedy = "run `contextrouter embed --model NAME` with the name of its embedder, to its end"
        if not other.filling:
            remedy += f", and until then set the store's `embedder` to {other.embedder_for_messages()}"
        raise SourceError(f"Store has only a part of the vectors of {_named(model)}; {remedy}.")
    raise SourceError(
        f"Store was filled by {_named(other.model)} with {other.dimensions} dimensions, the settings name"
        f" {_named(model)} with {dimensions}; set the store's `embedder` to {other.embedder_for_messages()},"
        f" or make the vectors of the latter with `contextrouter embed --model NAME`, or run {REBUILD}."
    )


def _named(model: str) -> str:
    return f"the embedding model {model!r}" if model else "an embedding model of unknown name"


def of_model(slots: Sequence[Slot], model: str) -> Slot | None:
    """Return the place with the vectors of a model, whole or not; None where there is none."""
    return next((slot for slot in slots if slot.model == model), None)


def present_slot(slots: Sequence[Slot], model: str) -> Slot:
    """Return the place with the vectors of a model, whole or not. Raises SourceError where there is none."""
    slot = of_model(slots, model)
    if slot is None:
        raise SourceError(f"Store has no place for the vectors of {model!r}: they were dropped meanwhile.")
    return slot


def place_for(slots: Sequence[Slot], model: str, dimensions: int) -> Slot:
    """Return the place that the vectors of a model are in, or are to be in. Raises SourceError where both are
    taken by others.
    """
    if not model:
        raise SourceError(
            "The embedder names no model, and only a model with a name can be told from another; let its"
            f" plugin set `model`, or run {REBUILD} with it."
        )
    if (slot := of_model(slots, model)) is not None:
        if slot.dimensions != dimensions:
            raise SourceError(
                f"Store has vectors of {model!r} with {slot.dimensions} dimensions, the embedder makes"
                f" {dimensions}; let the embedder make {slot.dimensions}, or change to another model first,"
                f" and drop the former with `contextrouter embed --drop {model}`."
            )
        return slot
    taken = {slot.suffix for slot in slots}
    if len(taken) == 2:
        names = " and ".join(repr(slot.model) for slot in slots)
        raise SourceError(
            f"Store has the vectors of two models, {names}; drop one of them with `contextrouter embed --drop"
            " MODEL` first."
        )
    return Slot(SECOND if FIRST in taken else FIRST, model, dimensions, "", True)
