"""The interface of runners, and the ability of stores that several processes may fill at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from contextrouter.ingest.changes import Change
from contextrouter.ingest.report import Progress


class Runner(Protocol):
    """Does the work of one job: it prepares, embeds and stores documents."""

    async def run(self, changes: AsyncGenerator[Change, None], progress: Progress) -> None:
        """Store every change, and count it in the report of `progress`. A document that fails is reported.

        Raises IngestError when an embedder or a store fails; batches that were stored before stay stored.
        """
        ...


@runtime_checkable
class SupportsManyWriters(Protocol):
    """A store that says whether several processes may fill it at the same time.

    A store that says nothing is filled by one process.
    """

    many_writers: bool
