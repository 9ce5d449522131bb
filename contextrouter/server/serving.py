"""Run the HTTP server: listen, stop on a signal, and shut down gracefully after the requests in flight."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from aiohttp import web

from contextrouter.errors import SettingsError
from contextrouter.router import ContextRouter
from contextrouter.server.accept_errors import few_accept_errors
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
    """Serve until `stop` is set, or SIGTERM or SIGINT comes. `listening` gets the address.

    Raises SettingsError when the address is not allowed, or cannot be used.
    """
    settings = router.settings.serve
    host, port = settings.host if host is None else host, settings.port if port is None else port
    server = Server(router)
    check_host(server.access, host)
    stop = stop or asyncio.Event()
    async with router:
        runner = web.AppRunner(
            server.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=settings.drain_seconds,
        )
        await runner.setup()
        try:
            await _listen(runner, host, port)
            listening(_address(runner, host))
            with _signals(stop), few_accept_errors():
                await stop.wait()
            server.draining = True
            log.info("Stopping: requests in flight have %g s to end.", settings.drain_seconds)
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
    """Set `stop` on the first signal. A second one ends the process as usual."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def request_stop() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, request_stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
