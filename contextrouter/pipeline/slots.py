"""What keeps a struggling source, or too many questions at once, from taking everything down with it.

`Slots` bound how many calls run, and how many wait; what comes on top is refused at once, for an honest no is
worth more than a late answer. A `Breaker` leaves a source alone that keeps failing, and lets one call at a
time try whether it is back.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Any

from contextrouter.errors import SourceError
from contextrouter.settings import FactKeys

log = logging.getLogger("contextrouter")

Ready = Callable[[str, str], Awaitable[None]]
"""Called with the kind and name of a plugin before it is used; opens it where it is not open yet."""


class Overloaded(SourceError):
    """Too many calls run and wait already; says nothing of the source itself."""


class Slots:
    """At most `size` at once, at most `waiting` in line. For one event loop; first come, first served."""

    __slots__ = ("_free", "_line", "size", "waiting", "what")

    def __init__(self, size: int, waiting: int, what: str) -> None:
        self.size, self.waiting, self.what = size, waiting, what
        self._free = size
        self._line: deque[asyncio.Future[None]] = deque()

    def taken_at_once(self) -> bool:
        """Take a slot if one is free and nobody waits; False: `take` must be awaited."""
        if self._free and not self._line:
            self._free -= 1
            return True
        return False

    async def take(self) -> None:
        """Wait for a slot. Raises Overloaded at once when the line is full."""
        if self.taken_at_once():
            return
        if len(self._line) >= self.waiting:
            raise Overloaded(
                f"overloaded: {self.size} calls to {self.what} run and {len(self._line)} wait already"
            )
        ticket = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():
                self.give()  # it was handed over in the same moment
            else:
                self._line.remove(ticket)
            raise

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *error: object) -> None:
        self.give()

    def give(self) -> None:
        """Hand the slot to the next in line, or back."""
        while self._line:
            ticket = self._line.popleft()
            if not ticket.done():
                ticket.set_result(None)
                return
        self._free += 1


class Breaker:
    """Opens after `failures` in a row, for `seconds`; then one call at a time may try, and the first that
    works closes it.
    """

    __slots__ = ("_clock", "_count", "_opened", "_probing", "failures", "last", "seconds")

    def __init__(self, failures: float, seconds: float, *, clock: Callable[[], float] = monotonic) -> None:
        self.failures, self.seconds, self._clock = failures, seconds, clock
        self._count = 0
        self._opened: float | None = None
        self._probing = False
        self.last = ""

    @property
    def closed(self) -> bool:
        """Whether calls go through."""
        return self._opened is None

    def refuses(self) -> str:
        """Why a call may not be made now; empty: it may, and its end must be told by `worked`, `failed` or
        `left`.
        """
        if self._opened is None:
            return ""
        left = self._opened + self.seconds - self._clock()
        why = f"not asked after {self._count} failures in a row; the last: {self.last}"
        if left > 0:
            return f"{why}; tried again in {left:.1f} s"
        if self._probing:
            return f"{why}; being tried just now"
        self._probing = True
        return ""

    def worked(self) -> None:
        """The call was answered."""
        self._count, self._opened, self._probing = 0, None, False

    def failed(self, why: str) -> None:
        """The call failed or was late."""
        self._count += 1
        self.last = why
        if self._probing or self._count >= self.failures:
            self._opened = self._clock()
        self._probing = False

    def left(self) -> None:
        """The call was given up by its caller, which says nothing of the source."""
        self._probing = False


class Limits:
    """What outlives one request: how many calls may run at once, which sources are left alone, and calls that
    would not end.

    `patience` is how many seconds a source must have had for its lateness to count against it. `closed` holds
    the (kind, name) of plugins that are not open yet. Made for one event loop.
    """

    def __init__(
        self,
        keys: Mapping[str, FactKeys] | None = None,
        *,
        max_concurrency: int = 64,
        max_waiting: int = 1000,
        breaker_failures: int = 0,
        breaker_seconds: float = 30.0,
        patience: float = 0.0,
        secrets: Sequence[str] = (),
        ready: Ready | None = None,
        closed: Collection[tuple[str, str]] = (),
    ) -> None:
        self.keys = dict(keys or {})
        self.labelled = {n for n, k in self.keys.items() if k.labels}
        self.secrets, self.ready, self.closed, self.patience = tuple(secrets), ready, closed, patience
        self.overall = Slots(max_concurrency, max_waiting, "all sources")
        self.per_source = {
            name: Slots(k.concurrency, max_waiting, f"source {name!r}")
            for name, k in self.keys.items()
            if k.concurrency
        }
        self._breaker_failures, self._breaker_seconds = breaker_failures or math.inf, breaker_seconds
        self._breakers: dict[tuple[str, str], Breaker] = {}
        self.stubborn: set[asyncio.Task[Any]] = set()

    def breaker(self, source: str, leg: str) -> Breaker:
        """The breaker of one leg of a source: a dead leg leaves the others alone."""
        found = self._breakers.get((source, leg))
        if found is None:
            found = self._breakers[source, leg] = Breaker(self._breaker_failures, self._breaker_seconds)
        return found

    def keep(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Hold on to cancelled tasks that have not ended yet."""
        for task in tasks:
            self.stubborn.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.stubborn.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that the loop does not report it as lost

    async def aclose(self) -> None:
        """Wait a second for calls that would not end, and name those that still do not."""
        if self.stubborn:
            for task in self.stubborn:
                task.cancel()
            _, left = await asyncio.wait(set(self.stubborn), timeout=1.0)
            if left:
                log.warning("%d calls to sources ignore their cancellation and are left behind", len(left))
