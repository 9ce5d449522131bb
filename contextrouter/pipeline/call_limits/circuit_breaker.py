"""Circuit breaker: pauses calls to a source that keeps failing."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic


class CircuitBreaker:
    """Opens after `failures` in a row, for `seconds`; then one call at a time may try, and a success closes
    it.
    """

    __slots__ = ("_clock", "_count", "_opened_at", "_probing", "failures", "last", "seconds")

    def __init__(self, failures: float, seconds: float, *, clock: Callable[[], float] = monotonic) -> None:
        self.failures, self.seconds, self._clock = failures, seconds, clock
        self._count = 0
        self._opened_at: float | None = None
        self._probing = False
        self.last = ""

    @property
    def closed(self) -> bool:
        """Whether calls go through."""
        return self._opened_at is None

    def refuses(self) -> str:
        """Why a call may not be made now. Empty: it may, and `succeed`, `fail` or `abandon` must follow."""
        if self._opened_at is None:
            return ""
        remaining = self._opened_at + self.seconds - self._clock()
        failures = "failure" if self._count == 1 else "failures in a row"
        reason = f"not asked after {self._count} {failures}; the last: {self.last}"
        if remaining > 0:
            return f"{reason}; tried again in {remaining:.1f} s"
        if self._probing:
            return f"{reason}; being tried just now"
        self._probing = True
        return ""

    def succeed(self) -> None:
        """The call was answered."""
        self._count, self._opened_at, self._probing = 0, None, False

    def fail(self, reason: str, *, at_once: bool = False) -> None:
        """The call failed or was late. `at_once`: it would fail again; do not wait for more failures."""
        self._count += 1
        self.last = reason
        if self._probing or self._count >= self.failures or (at_once and self.failures < inf):
            self._opened_at = self._clock()
        self._probing = False

    def abandon(self) -> None:
        """The caller gave the call up, which says nothing about the source."""
        self._probing = False
