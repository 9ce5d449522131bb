"""Term statistics cache: document frequencies of the terms in each source, refreshed in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from time import monotonic

from contextrouter.contracts import FactSource, Source, SupportsStatistics, TermStatistics
from contextrouter.errors import PluginError
from contextrouter.pipeline.deadline import Deadline
from contextrouter.runtime.abandoned_calls import AllAbandonedCalls
from contextrouter.runtime.plugin_calls import containment
from contextrouter.scope import Scope

log = logging.getLogger("contextrouter")

SECONDS = 60.0
"""How long statistics are used before the source is asked again."""
PATIENCE = 0.2
"""Seconds a source may take. Without its statistics, the documents it returned are counted."""
WORDS = 20_000
"""Words kept for each source and scope; beyond that all are forgotten."""
MOST_COUNTED = 1e15
"""The largest count that is believed."""
SCOPES = 32
"""Scopes kept for each source; the least recently used goes first."""


class StatisticsCache:
    """Statistics by source and scope: what a scope hides must not change what it shows."""

    def __init__(self, sources: Mapping[str, Source | FactSource], abandoned: AllAbandonedCalls) -> None:
        self._abandoned = abandoned
        self._sources = {name: s for name, s in sources.items() if isinstance(s, SupportsStatistics)}
        self._kept: dict[tuple[str, Scope | None], tuple[float, TermStatistics]] = {}
        self._silent: set[str] = set()

    async def statistics(
        self, names: Sequence[str], words: Sequence[str], scope: Scope | None, deadline: Deadline
    ) -> dict[str, TermStatistics]:
        """Return source -> its statistics of `words` in `scope`, for those of `names` that answer in time."""
        now = monotonic()
        reporting = [name for name in names if name in self._sources]
        unknown_words = {name: self._missing((name, scope), words, now) for name in reporting}
        patience = deadline.within(PATIENCE)
        async with asyncio.TaskGroup() as group:
            for name, new in unknown_words.items():
                if new or (name, scope) not in self._kept:
                    group.create_task(self._ask_in_time(name, new, scope, patience))
        reports = {}
        for name in reporting:
            _, report = self._kept.get((name, scope), (0.0, None))
            if report is not None and all(word in report.frequencies for word in words):
                frequencies = {word: report.frequencies[word] for word in words}
                reports[name] = TermStatistics(
                    documents=report.documents, average_length=report.average_length, frequencies=frequencies
                )
        return reports

    def _missing(self, key: tuple[str, Scope | None], words: Sequence[str], now: float) -> list[str]:
        """Return the words whose frequencies are not kept, or are too old."""
        moment, report = self._kept.get(key, (-math.inf, None))
        if report is None or now - moment >= SECONDS or len(report.frequencies) > WORDS:
            self._kept.pop(key, None)
            return list(words)
        self._kept[key] = self._kept.pop(key)  # the most recently used stands last
        return [word for word in words if word not in report.frequencies]

    async def _ask_in_time(
        self, name: str, words: list[str], scope: Scope | None, patience: Deadline
    ) -> None:
        with contextlib.suppress(
            TimeoutError, RuntimeError, PluginError
        ):  # those that answer in time are kept
            asking = self._ask(name, words, scope, monotonic())
            await patience.run(asking, self._abandoned.of("statistics of source", name))

    async def _ask(self, name: str, words: list[str], scope: Scope | None, now: float) -> None:
        try:
            with containment():
                report = await self._sources[name].statistics(words, scope)
            counts = [report.documents, report.average_length, *[report.frequencies[w] for w in words]]
            if not all([0 <= count <= MOST_COUNTED for count in counts]):
                raise ValueError("a count is no number from 0 on")
        except Exception as error:
            if name not in self._silent:
                self._silent.add(name)
                log.warning(
                    "Source %r reports no statistics (%s); what it returns speaks for it.",
                    name,
                    type(error).__name__,
                )
            return
        moment, before = self._kept.pop((name, scope), (now, report))
        self._kept[name, scope] = (
            moment,
            TermStatistics(
                documents=report.documents,
                average_length=report.average_length,
                frequencies={**before.frequencies, **report.frequencies},
            ),
        )
        while len(self._kept) > SCOPES * len(self._sources):
            del self._kept[next(iter(self._kept))]
