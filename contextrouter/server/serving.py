"""From a settings file to a server that listens, until it is told to stop; then it answers what it has begun,
and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from aiohttp import web

from contextrouter.errors import SettingsError
from contextrouter.router import ContextRouter
from contextrouter.server.app import Server
from contextrouter.server.auth import check_host
from contextrouter.server.logs import log


async def serve(
    router: ContextRouter,
    *,
    host: str | None = None,
    port: int | None = None,
    listening: Callable[[str], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set, or SIGTERM or SIGINT comes. `listening` is told the address.

    Raises SettingsError when it may not listen there, or cannot.
    """
    wanted = router.settings.serve
    host, port = wanted.host if host is None else host, wanted.port if port is None else port
    server = Server(router)
    check_host(server.access, host)
    stop = stop or asyncio.Event()
    async with router:
        runner = web.AppRunner(
            server.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=wanted.drain_seconds,
        )
        await runner.setup()
        try:
            await _listen(runner, host, port)
            listening(_address(runner, host))
            with _signals(stop):
                await stop.wait()
            server.draining = True
            log.info("Stopping: requests in flight have %g s to end.", wanted.drain_seconds)
        finally:
            await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise SettingsError(
            f"The server cannot listen on {host}:{port}: {error.strerror}. Choose another with --port."
        ) from None


def _address(runner: web.AppRunner, host: str) -> str:
    port = runner.addresses[0][1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Stop on the first signal; a second one ends the process as it always does."""
    loop = asyncio.get_running_loop()
    wanted = (signal.SIGTERM, signal.SIGINT)

    def asked() -> None:
        stop.set()
        for each in wanted:
            loop.remove_signal_handler(each)

    for each in wanted:
        loop.add_signal_handler(each, asked)
    try:
        yield
    finally:
        for each in wanted:
            loop.remove_signal_handler(each)
