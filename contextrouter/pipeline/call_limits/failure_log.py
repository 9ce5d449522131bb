"""Failures of sources in the log: one warning for each source and minute, every failure at DEBUG."""

from __future__ import annotations

import logging
from time import monotonic

from contextrouter.model import SourceReport

log = logging.getLogger("contextrouter.sources")
SECONDS = 60.0
"""Seconds between two warnings of one source."""
_LOGGED = frozenset(("error", "timeout", "partial", "open"))


class FailureLog:
    """Remembers when each source was last warned of."""

    def __init__(self) -> None:
        self._warned_at: dict[str, float] = {}
        self._silent: dict[str, int] = {}  # source -> failures since its last warning

    def note(self, report: SourceReport) -> None:
        """Log a report of a call that failed."""
        if report.status not in _LOGGED:
            return
        log.debug("source %r, leg %r: %s: %s", report.source, report.leg, report.status, report.error)
        if report.status == "open":  # it is not asked, because of failures that were logged
            return
        now = monotonic()
        if now - self._warned_at.get(report.source, -SECONDS) < SECONDS:
            self._silent[report.source] = self._silent.get(report.source, 0) + 1
            return
        self._warned_at[report.source] = now
        before = self._silent.pop(report.source, 0)
        more = f" ({before} more since the last warning)" if before else ""
        log.warning(
            "Source %r fails, leg %r, %s: %s%s", report.source, report.leg, report.status, report.error, more
        )
