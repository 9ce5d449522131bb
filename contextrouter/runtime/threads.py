"""Thread pool for blocking libraries, with context variables and cancellation.

A cancelled call is abandoned, not stopped: its thread runs to the end, and the result is discarded. Use it
for work that is harmless when repeated or late (reads), or atomic (one database transaction).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A bounded pool of threads owned by one plugin. Made in `open()`, closed in `aclose()`."""

    def __init__(self, size: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run `function(*args)` in the pool, in a copy of the caller's context."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: context.run(function, *args))

    def close(self, *, wait: bool = False) -> None:
        """Shut the pool down; with `wait` after the running calls have ended."""
        self._pool.shutdown(wait=wait, cancel_futures=True)
