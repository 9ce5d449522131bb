"""Memory size estimate of an answer, which its cache entry weighs."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.model import Context, Envelope

SAMPLE = 16
"""So many of the envelopes that a step lost are looked at; the others are taken to be like them, for there
may be thousands.
"""
ENVELOPE, PROVENANCE, ITEM, ANSWER = 700, 150, 400, 2500
"""Bytes of the structs themselves, as measured with 64-bit CPython."""


def bytes_of(context: Context) -> int:
    """About how many bytes a result holds: its texts, vectors and metadata, and the structs around them."""
    lost = sum(_sampled(step.lost) for step in context.trace.steps)
    others = len(context.facts) + len(context.facets) + len(context.entities) + len(context.coverage)
    return ANSWER + len(context.text) + ITEM * others + sum(map(_envelope, context.envelopes)) + lost


def _sampled(lost: Sequence[Envelope]) -> int:
    count = len(lost)
    if count <= SAMPLE:
        return sum(map(_envelope, lost))
    some = lost[:: count // SAMPLE]  # a slice makes only these
    return sum(map(_envelope, some)) * count // len(some)


def _envelope(envelope: Envelope) -> int:
    document = envelope.document
    size = ENVELOPE + len(document.content) + len(document.snippet) + PROVENANCE * len(envelope.provenance)
    if envelope.vector is not None:
        size += 8 * len(envelope.vector)
    for value in document.metadata.values():
        size += 100 + (len(value) if isinstance(value, str | bytes) else 0)
    return size
