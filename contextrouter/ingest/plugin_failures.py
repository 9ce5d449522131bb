"""Failures of plugins during ingestion: whatever a plugin raises ends the run with an IngestError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from contextrouter.errors import IngestError
from contextrouter.runtime.plugin_calls import containment


@contextmanager
def as_ingest_error(message: str, document: str = "") -> Iterator[None]:
    """Turn what a plugin raises in this block into an IngestError: `message`, and then the plugin's own.

    Every block says in a comment what is stored when it fails. Do not yield in it: whoever closes a generator
    would get the error.
    """
    try:
        with containment():
            yield
    except Exception as error:
        raise IngestError(f"{message}: {error}", document=document) from error
