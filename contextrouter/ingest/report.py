"""Report and progress of an ingestion run, and how a source reports its size and problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

ChangeKind = Literal["added", "changed", "removed"]
_INTERVAL = 0.2  # seconds between two calls of `progress` while nothing is stored


class Report(msgspec.Struct, kw_only=True):
    """The counts of a run. A dry run counts what it would do. `seconds` is wall time."""

    documents: int = 0  # new or changed
    added: int = 0  # of `documents`, those the store did not have
    changed: int = 0  # of `documents`, those the store had with other content, or processed in another way
    unchanged: int = 0
    deleted: int = 0
    # documents that the source no longer has, and whose removal was too much to be believed
    in_doubt: int = 0
    chunks: int = 0
    facts: int = 0
    tokens: int = 0  # of the chunks
    # texts that went to the embedder; unchanged chunks of changed documents keep their vectors
    embedded: int = 0
    entities: int = 0  # whose names and descriptions were embedded: those of new or changed facts
    skipped: list[tuple[str, str]] = []  # (id, reason): left out, or stored with a problem
    changes: list[tuple[ChangeKind, str]] = []  # (kind, id); in a dry run only
    # kind (".zip", "empty") -> files of the source that were left out because nothing reads them
    not_read: dict[str, int] = {}
    read: int = 0  # documents read so far
    total: int | None = None  # how many there are to read, if the source knows
    seconds: float = 0.0

    def skip(self, id: str, reason: str) -> None:
        """Note a document that was left out, or stored with a problem."""
        self.skipped.append((id, reason))


class Progress:
    """The report of a run that goes on, and the function that receives it."""

    def __init__(self, receive: Callable[[Report], None] | None) -> None:
        self.report = Report()
        self._receive = receive
        self._start = self._sent = time.monotonic()

    def send(self) -> None:
        """Update the seconds and send the report."""
        self._sent = time.monotonic()
        self.report.seconds = self._sent - self._start
        if self._receive:
            self._receive(self.report)

    def send_if_due(self) -> None:
        """Send the report if the last time is some moments ago."""
        if time.monotonic() - self._sent >= _INTERVAL:
            self.send()


@runtime_checkable
class SupportsProblems(Protocol):
    """A source that names what its last crawl left out.

    `problems` are sentences. `unread` are the ids of documents that exist and could not be read; the store
    keeps them. An id that is empty, or ends in `/`, stands for all ids that begin with it.
    """

    problems: Sequence[str]
    unread: Sequence[str]


@runtime_checkable
class SupportsNotRead(Protocol):
    """A source that counts the files that it left out because nothing reads their kind."""

    not_read: Mapping[str, int]


@runtime_checkable
class SupportsEmptyFolders(Protocol):
    """A source that names the folders that hold nothing now: a share that is not mounted is such a folder.

    Each ends in `/`. The store keeps the documents whose ids begin with one, until a run is told to remove.
    """

    empty_folders: Sequence[str]


@runtime_checkable
class SupportsSize(Protocol):
    """A source that knows how many documents it lists, so that progress has an end."""

    async def size(self) -> int:
        """Return about how many documents `crawl` will yield; reads none of them."""
        ...
