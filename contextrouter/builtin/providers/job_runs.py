"""Runs of ingestion jobs: when a store was last brought in line with a source. No document is rewritten.

A store keeps one line for each job. Documents read it as `synced_at`: the beginning of the last whole run of
the job whose name stands before their id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from contextrouter.model import Document, Hit

KEY = "run "
"""Begins the key of a job's line; the name of the job follows."""

Runs = Mapping[str, datetime]
"""Job -> the beginning of its last whole run."""


def as_text(moment: datetime) -> str:
    """Return a moment as it is kept."""
    return moment.astimezone(UTC).isoformat()


def read_runs(rows: Iterable[Sequence[str]]) -> Runs:
    """Return the runs of (key, value) lines."""
    return {key.removeprefix(KEY): datetime.fromisoformat(value) for key, value in rows}


def add_run_times(documents: Iterable[Document], runs: Runs) -> list[Document]:
    """Return the documents or chunks with their `synced_at`; one that no job stored keeps its own."""
    if not runs:
        return list(documents)
    return [_with_time(document, runs) for document in documents]


def add_run_times_to_hits(hits: Sequence[Hit], runs: Runs) -> list[Hit]:
    """Return the hits with the `synced_at` of their documents."""
    if not runs:
        return list(hits)
    return [hit.replace(document=_with_time(hit.document, runs)) for hit in hits]


def _with_time(document: Document, runs: Runs) -> Document:
    moment = runs.get((document.parent or document.id).partition(":")[0])
    # Its own `replace` looks after other content as well, and takes twice the time.
    return document if moment is None else msgspec.structs.replace(document, synced_at=moment)
