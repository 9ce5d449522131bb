"""Envelopes that are made when they are looked at.

Of the thousands of documents that sources return, ten go on. What is known of the others stays as it arrived,
in the lists, and becomes envelopes only for a stage or a trace that asks. A lane is a sequence like any
other: live envelopes first, dropped ones behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from contextrouter.model import Envelope


class Lane(Sequence[Envelope]):
    """`live` envelopes, best first, and `dropped` ones behind them."""

    __slots__ = ("dropped", "live")

    def __init__(self, live: Sequence[Envelope], dropped: Sequence[Envelope] = ()) -> None:
        self.live, self.dropped = live, dropped

    def __len__(self) -> int:
        return len(self.live) + len(self.dropped)

    def __iter__(self) -> Iterator[Envelope]:
        return chain(self.live, self.dropped)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        if isinstance(index, slice):
            return list(self)[index]
        at = range(len(self))[index]
        return self.live[at] if at < len(self.live) else self.dropped[at - len(self.live)]


class Dropped(Sequence[Envelope]):
    """What stands in `envelopes` from `start` on, dropped for one reason."""

    __slots__ = ("envelopes", "reason", "start")

    def __init__(self, envelopes: Sequence[Envelope], start: int, reason: str) -> None:
        self.envelopes, self.start, self.reason = envelopes, start, reason

    def __len__(self) -> int:
        return max(0, len(self.envelopes) - self.start)

    def __iter__(self) -> Iterator[Envelope]:
        return (
            envelope.drop(self.reason) for envelope in self.envelopes[self.start :]
        )  # all at once: one by one is quadratic

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        if isinstance(index, slice):
            return [*self][index]
        return self.envelopes[self.start + range(len(self))[index]].drop(self.reason)


def split(envelopes: Sequence[Envelope]) -> tuple[Sequence[Envelope], Sequence[Envelope]]:
    """The live and the dropped ones, each in the order they have."""
    if isinstance(envelopes, Lane):
        return envelopes.live, envelopes.dropped
    live = [envelope for envelope in envelopes if envelope.dropped is None]
    return live, [envelope for envelope in envelopes if envelope.dropped is not None] if len(live) < len(
        envelopes
    ) else ()
