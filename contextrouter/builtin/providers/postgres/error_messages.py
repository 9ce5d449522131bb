"""What errors of Postgres, and of the way to it, mean in words."""

from __future__ import annotations

import re

from contextrouter.errors import SourceError
from contextrouter.runtime.masking import mask

_ADDRESS = re.compile(r"\('([^']+)', (\d+)")


class NoStore(SourceError):
    """The database holds no store yet."""


def disconnections() -> tuple[type[Exception], ...]:
    """What is raised where the connection is lost, or the server stops, crashed or starts."""
    import asyncpg

    return (
        asyncpg.InterfaceError,
        asyncpg.PostgresConnectionError,
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        asyncpg.CannotConnectNowError,
        OSError,
    )


def describe(error: BaseException) -> str:
    """The first line of what an error says: details may quote rows. A number of the system becomes words."""
    if isinstance(error, OSError) and error.errno is not None:
        return _describe_system(error)
    lines = str(error.args[0] if error.args else error).splitlines() or [type(error).__name__]
    return mask(lines[0]).rstrip(".") or type(error).__name__


def _describe_system(error: OSError) -> str:
    """What a failed connection means. asyncpg puts the address in the text: ("Connect call failed", …)."""
    text = str(error.strerror or error)
    if isinstance(error, ConnectionRefusedError):
        address = _ADDRESS.search(text)
        text = f"connection refused by {address[1]}:{address[2]}" if address else "connection refused"
    return mask(text.splitlines()[0]).rstrip(".")
