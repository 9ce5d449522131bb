"""Outages of a server or a disk that others can do without: it is left alone for a while, and the log says so
once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic

from contextrouter.runtime.masking import mask

log = logging.getLogger("contextrouter")
RETRY = 1.0
"""Seconds after a failure in which it is not asked."""


class Outage:
    """Whether a thing fails. `consequence` is the first line of the log about it, `recovery` the last one;
    `secrets` are masked.
    """

    def __init__(self, consequence: str, recovery: str, secrets: Sequence[str] = ()) -> None:
        self._consequence, self._recovery, self._secrets = consequence, recovery, secrets
        self._retry_at = 0.0
        self._failing = False

    @property
    def pauses(self) -> bool:
        """Whether the thing is left alone now."""
        return monotonic() < self._retry_at

    def begin(self, error: Exception) -> None:
        """Note that the thing failed."""
        self._retry_at = monotonic() + RETRY
        if not self._failing:
            self._failing = True
            reason = mask(f"{type(error).__name__}: {error}", self._secrets)
            log.warning("%s: %s", self._consequence, reason)

    def end(self) -> None:
        """Note that the thing works."""
        if self._failing:
            self._failing = False
            log.warning("%s", self._recovery)
