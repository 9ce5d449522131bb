"""Readiness: which sources can answer now. Required sources are pinged, at most once in `PING_SECONDS`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic

from contextrouter.pipeline.deadline import GRACE
from contextrouter.router import ContextRouter
from contextrouter.runtime.abandoned_calls import consume_exception
from contextrouter.runtime.masking import mask
from contextrouter.runtime.plugin_calls import containment, text_of
from contextrouter.server.logs import log
from contextrouter.server.request_schema import SourceState

PING_SECONDS = 2.0
"""Seconds for which the answer to a ping is valid."""
PATIENCE = 2.0
"""Seconds that a source may take to answer a ping."""


class SourcePings:
    """The states of the sources of one router."""

    def __init__(self, router: ContextRouter) -> None:
        self._router = router
        self.required = tuple(
            name for name, instance in router.settings.sources.items() if instance.keys.required
        )
        self._turn = asyncio.Lock()
        self._pinged: dict[str, SourceState] = {}
        self._pinged_at = -PING_SECONDS

    async def states(self) -> Mapping[str, SourceState]:
        """Return the state of each source, by name."""
        async with self._turn:  # who comes meanwhile gets the same answer
            if monotonic() - self._pinged_at >= PING_SECONDS:
                await self._ping_all()
        sources = self._router.settings.sources
        return {
            name: self._pinged.get(name) or self._state(instance.kind, name)
            for name, instance in sources.items()
        }

    def _state(self, kind: str, name: str) -> SourceState:
        if (kind, name) in self._router.instances.closed:
            return "not open"
        limits = self._router.engine.limits
        if limits.abandoned.of("source", name).refusal():
            return "does not end its calls"
        return "paused after failures" if limits.paused(name) else "ready"

    async def _ping_all(self) -> None:
        tasks = {name: asyncio.get_running_loop().create_task(self._ping(name)) for name in self.required}
        late: set[asyncio.Task[tuple[SourceState, str]]] = set()
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=PATIENCE)
            for task in late:
                task.cancel()
                task.add_done_callback(consume_exception)
            if late:
                _, stubborn = await asyncio.wait(late, timeout=GRACE)
                for name, task in tasks.items():
                    self._router.engine.limits.abandoned.of("ping of source", name).add({task} & stubborn)
        for name, task in tasks.items():
            if task in late:
                self._note(name, "does not answer", f"no answer within {PATIENCE:g} s")
            else:
                self._note(name, *task.result())
        self._pinged_at = monotonic()

    async def _ping(self, name: str) -> tuple[SourceState, str]:
        """Return the state of a source, and why it is not ready."""
        router = self._router
        kind, source = router.settings.sources[name].kind, router.instances.sources[name]
        try:
            router.engine.limits.abandoned.of("ping of source", name).check()
            await router.instances.ready(kind, name)
            with containment():
                await source.ping()
            return self._state(kind, name), ""
        except Exception as error:
            reason = f"{type(error).__name__}: {text_of(error)}"
            return "does not answer", mask(reason, router.settings.secrets)

    def _note(self, name: str, state: SourceState, reason: str) -> None:
        """Keep a state, and log its change once."""
        before: SourceState = self._pinged.get(name, "ready")
        self._pinged[name] = state
        if before == state:
            return
        if state == "ready":
            log.info("Required source %r can answer again.", name)
        else:
            log.warning("Required source %r cannot answer: %s", name, reason or state)
