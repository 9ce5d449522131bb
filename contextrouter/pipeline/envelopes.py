"""Lazy sequences of envelopes: an envelope is built when it is first read.

Of the thousands of documents that sources return, ten go on. The others stay as they arrived and become
envelopes only for a stage or a trace that reads them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from contextrouter.model import Envelope


class LazyEnvelopes(Sequence[Envelope]):
    """Envelopes that are made when one of them is read: all at once, because one by one is quadratic."""

    _made: list[Envelope] | None = None

    @abstractmethod
    def _make(self) -> list[Envelope]:
        """Make all envelopes."""

    def _read(self) -> list[Envelope]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __iter__(self) -> Iterator[Envelope]:
        return iter(self._read())

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Envelope]: ...
    def __getitem__(self, index: int | slice) -> Envelope | Sequence[Envelope]:
        return self._read()[index]


class Ranking(Sequence[Envelope]):
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
        position = range(len(self))[index]
        if position < len(self.live):
            return self.live[position]
        return self.dropped[position - len(self.live)]


class Dropped(LazyEnvelopes):
    """Envelopes dropped for one reason."""

    def __init__(self, envelopes: Sequence[Envelope], reason: str) -> None:
        self._envelopes, self.reason = envelopes, reason

    def __len__(self) -> int:
        return len(self._envelopes)

    def _make(self) -> list[Envelope]:
        return [envelope.drop(self.reason) for envelope in self._envelopes]


def split(envelopes: Sequence[Envelope]) -> tuple[Sequence[Envelope], Sequence[Envelope]]:
    """Return the live envelopes and the dropped ones, each in the order they have."""
    if isinstance(envelopes, Ranking):
        return envelopes.live, envelopes.dropped
    live = [envelope for envelope in envelopes if envelope.dropped is None]
    return live, [envelope for envelope in envelopes if envelope.dropped is not None]
