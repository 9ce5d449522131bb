"""Memory size estimate of an answer, for the size limit of the cache."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.model import Context, Envelope

SAMPLE = 8
"""How many of the envelopes that a step lost are measured, for there may be thousands. The estimate assumes
that the others are similar.
"""
ENVELOPE, PROVENANCE, ITEM, ANSWER = 700, 150, 400, 2500
"""Bytes of the structs themselves, measured with 64-bit CPython."""


def estimate_bytes(context: Context) -> int:
    """Estimate the bytes of a result: its texts, vectors, metadata and structs."""
    lost = sum(_estimate_sample(step.lost) for step in context.trace.steps)
    others = len(context.facts) + len(context.facets) + len(context.entities) + len(context.coverage)
    return ANSWER + len(context.text) + ITEM * others + sum(map(_envelope_bytes, context.envelopes)) + lost


def _estimate_sample(lost: Sequence[Envelope]) -> int:
    count = len(lost)
    if count <= SAMPLE:
        return sum(map(_envelope_bytes, lost))
    sample = lost[:: count // SAMPLE]  # a slice makes only these
    return sum(map(_envelope_bytes, sample)) * count // len(sample)


def _envelope_bytes(envelope: Envelope) -> int:
    document = envelope.document
    size = ENVELOPE + len(document.content) + len(document.snippet) + PROVENANCE * len(envelope.provenance)
    if envelope.vector is not None:
        size += 8 * len(envelope.vector)
    for value in document.metadata.values():
        size += 100 + (len(value) if isinstance(value, str | bytes) else 0)
    return size
