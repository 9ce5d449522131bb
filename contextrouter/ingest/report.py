"""What a run of ingestion says of itself, and what a source may say of what it lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

Change = Literal["added", "changed", "removed"]


class Report(msgspec.Struct, kw_only=True):
    """What a run did; in a dry run, what it would have done. `seconds` is wall time."""

    documents: int = 0  # new or changed
    added: int = 0  # of them, those the store did not have
    changed: int = 0  # of them, those it had in another form, or made in another way
    unchanged: int = 0
    deleted: int = 0
    chunks: int = 0
    facts: int = 0
    tokens: int = 0  # of the chunks
    # texts that went to the embedder; chunks of changed documents that say what they said keep their vectors
    embedded: int = 0
    skipped: list[tuple[str, str]] = []  # (id, reason): left out, or stored with something wrong
    changes: list[tuple[Change, str]] = []  # (what, id), of a dry run alone
    read: int = 0  # documents that were looked at so far
    total: int | None = None  # how many there are to look at, where the source knows
    seconds: float = 0.0


@runtime_checkable
class SupportsProblems(Protocol):
    """A source that says what its last reading left out.

    `problems` are sentences; `unread` are ids of documents that exist and could not be read: what a store has
    of them stays. An id that ends in `/` stands for all that begin with it.
    """

    problems: Sequence[str]
    unread: Sequence[str]


@runtime_checkable
class SupportsSize(Protocol):
    """A source that knows how many documents it lists, so that progress has an end."""

    async def size(self) -> int:
        """Return about how many documents `crawl` will yield; reads none of them."""
        ...
