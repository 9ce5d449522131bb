"""What sources report of their terms, kept for a while: it changes slowly, and no question waits for what is
known.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from time import monotonic

from contextrouter.contracts import FactSource, Source, SupportsStatistics, TermStatistics
from contextrouter.scope import Scope

log = logging.getLogger("contextrouter")

SECONDS = 60.0
"""How long a report is taken to hold."""
PATIENCE = 0.2
"""Seconds a source may take. Without its word, what it returned speaks for it."""
WORDS = 20_000
"""Words kept for each source; when there are more, all are forgotten."""


SCOPES = 32
"""Scopes whose reports are kept; what was not asked for longest goes first."""


class Reported:
    """The statistics of sources that have some, by scope: what a scope hides must not move what it shows."""

    def __init__(self, sources: Mapping[str, Source | FactSource]) -> None:
        self._sources = {
            name: source for name, source in sources.items() if isinstance(source, SupportsStatistics)
        }
        self._known: dict[tuple[str, Scope | None], tuple[float, TermStatistics]] = {}
        self._silent: set[str] = set()

    async def of(
        self, names: Sequence[str], words: Sequence[str], scope: Scope | None, until: float = math.inf
    ) -> dict[str, TermStatistics]:
        """Source -> its statistics of `words` in `scope`, for those of `names` that answer by `until` (on
        `time.monotonic()`).
        """
        now = monotonic()
        asked = {name: self._unknown((name, scope), words, now) for name in names if name in self._sources}
        missing = {name: new for name, new in asked.items() if new or (name, scope) not in self._known}
        if missing:
            try:
                async with (
                    asyncio.timeout(min(PATIENCE, max(0.0, until - now))),
                    asyncio.TaskGroup() as group,
                ):
                    for name, new in missing.items():
                        group.create_task(self._ask(name, new, scope, now))
            except TimeoutError:
                pass  # those that have answered are known
        found = {}
        for name in asked:
            _, told = self._known.get((name, scope), (0.0, None))
            if told is not None and all(word in told.frequencies for word in words):
                frequencies = {word: told.frequencies[word] for word in words}
                found[name] = TermStatistics(
                    documents=told.documents, average_length=told.average_length, frequencies=frequencies
                )
        return found

    def _unknown(self, key: tuple[str, Scope | None], words: Sequence[str], now: float) -> list[str]:
        at, told = self._known.get(key, (-math.inf, None))
        if told is None or now - at >= SECONDS or len(told.frequencies) > WORDS:
            self._known.pop(key, None)
            return list(words)
        self._known[key] = self._known.pop(key)  # the last one asked for
        return [word for word in words if word not in told.frequencies]

    async def _ask(self, name: str, words: list[str], scope: Scope | None, now: float) -> None:
        try:
            told = await self._sources[name].statistics(words, scope)
            if told.documents < 0 or any(told.frequencies[word] < 0 for word in words):
                raise ValueError("a count is below 0")
        except Exception as error:
            if name not in self._silent:
                self._silent.add(name)
                log.warning(
                    "Source %r reports no statistics (%s); what it returns speaks for it.",
                    name,
                    type(error).__name__,
                )
            return
        at, before = self._known.pop((name, scope), (now, told))
        self._known[name, scope] = (
            at,
            TermStatistics(
                documents=told.documents,
                average_length=told.average_length,
                frequencies={**before.frequencies, **told.frequencies},
            ),
        )
        while len(self._known) > SCOPES * len(self._sources):
            del self._known[next(iter(self._known))]
