"""A source that never answers."""

from __future__ import annotations

import asyncio
import threading

from contextrouter.testing import Fixed


class Waiting(Fixed):
    """It says, to any thread, that it was asked, and that the call was cancelled."""

    def __init__(self) -> None:
        super().__init__("a")
        self.asked, self.cancelled = threading.Event(), threading.Event()

    async def search(self, query):
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
