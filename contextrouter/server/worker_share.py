"""A worker: one of several server processes that share a port, its number, and its share of the limits."""

from __future__ import annotations

import msgspec


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """Which of how many processes this is."""

    number: int = 0  # from 1; 0: the server is one process
    count: int = 1
    metrics: str = ""  # the folder in which all of them count; "": in the memory of this process

    def share(self, limit: int) -> int:
        """Return the share of a limit of the settings, at least 1."""
        return -(-limit // self.count)


ALONE = Worker()
