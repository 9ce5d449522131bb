"""Errors of accepting connections, in the log once a second: where files run out, there are thousands."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Iterator
from time import monotonic
from typing import Any

from contextrouter.server.logs import log

_REMEDIES = {errno.EMFILE: "; raise the limit with `ulimit -n`"}


@contextlib.contextmanager
def few_accept_errors() -> Iterator[None]:
    """Log at most one error of accepting connections a second in this block."""
    loop = asyncio.get_running_loop()
    before, logged = loop.get_exception_handler(), -1.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged
        error = context.get("exception")
        if isinstance(error, OSError) and "accept" in context.get("message", ""):
            if monotonic() - logged >= 1:
                logged = monotonic()
                log.error("No connection can be accepted: %s%s", error, _REMEDIES.get(error.errno or 0, ""))
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)
