"""The program of one worker process: serve, tell the parent how it goes, and end with the parent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait

from contextrouter.errors import ContextRouterError, MissingDependency, SettingsError
from contextrouter.router import ContextRouter
from contextrouter.runtime.masking import mask
from contextrouter.server.listening.serving import serve
from contextrouter.server.logs import configure_for, log
from contextrouter.server.worker_share import Worker

READY, FAILED, INVALID, STOPPING = b"ready", b"failed", b"invalid", b"stopping"
"""What a worker tells: that it answers; that it cannot start, for its settings or otherwise, and why; and
that it stops, in at most so many seconds.
"""
LAST_SECONDS = 5.0
"""Seconds beyond those of the settings after which a process that should have ended is killed."""


def work(worker: Worker, path: str, host: str, port: int, link: Connection) -> None:
    """Serve the settings file at `path` as one of several workers. The target of a spawned process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which passes it on
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it serves; the parent asks again then
    secrets: list[str] = []
    try:
        asyncio.run(_serve(worker, path, (host, port), link, secrets))
    except (ContextRouterError, OSError) as error:
        kind = INVALID if isinstance(error, SettingsError | MissingDependency) else FAILED
        _tell(link, kind, mask(str(error) or repr(error), secrets))
        sys.exit(1)


def _tell(link: Connection, kind: bytes, text: str = "") -> None:
    with contextlib.suppress(OSError):  # the parent is gone
        link.send_bytes(kind + b" " + text.encode("utf-8", "replace"))


async def _serve(
    worker: Worker, path: str, address: tuple[str, int], link: Connection, secrets: list[str]
) -> None:
    logging.getLogger("contextrouter").setLevel(logging.ERROR)  # the parent has shown the warnings
    router = ContextRouter.from_toml(path)
    secrets.extend(router.settings.secrets)
    reloaded = configure_for(router, worker.number)
    stop = asyncio.Event()
    current = router

    def follow(new: ContextRouter) -> None:
        nonlocal current
        reloaded(new)
        current = new

    def seconds() -> float:
        return current.settings.serve.drain_delay + current.settings.serve.drain_seconds

    _end_with_parent(stop, seconds)
    telling = asyncio.get_running_loop().create_task(_tell_of_stop(link, stop, seconds))
    try:
        await serve(
            router,
            host=address[0],
            port=address[1],
            listening=lambda _: _tell(link, READY),
            stop=stop,
            reloaded=follow,
            worker=worker,
        )
    finally:
        telling.cancel()


async def _tell_of_stop(link: Connection, stop: asyncio.Event, seconds: Callable[[], float]) -> None:
    await stop.wait()
    _tell(link, STOPPING, f"{seconds():g}")


def _end_with_parent(stop: asyncio.Event, seconds: Callable[[], float]) -> None:
    """Stop when the parent is gone, however it ended; at once, if that takes longer than it may."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    loop = asyncio.get_running_loop()

    def watch() -> None:
        wait([parent.sentinel])
        log.error("The parent process is gone, so this worker stops.")
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(stop.set)
        time.sleep(seconds() + LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()
