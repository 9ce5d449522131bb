"""Run the HTTP server: listen, reload on SIGHUP, and stop on a signal after the requests in flight."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from aiohttp import web

from contextrouter.errors import SettingsError
from contextrouter.router import ContextRouter
from contextrouter.server.listening.accept_errors import few_accept_errors
from contextrouter.server.listening.generations import LAST_ANSWERS, Generations
from contextrouter.server.logs import log

BACKLOG = 128
"""Connections that may wait to be accepted."""


async def serve(
    router: ContextRouter,
    *,
    host: str | None = None,
    port: int | None = None,
    listening: Callable[[str], None] = lambda _: None,
    stop: asyncio.Event | None = None,
    reloaded: Callable[[ContextRouter], None] = lambda _: None,
    agents_only: bool = False,
) -> None:
    """Serve until `stop` is set, or SIGTERM or SIGINT comes. `listening` gets the address.

    SIGHUP reads the settings file again; `reloaded` gets the new router before it answers its first request.
    With `agents_only` nothing is served but `/mcp`, and how the server is.
    Raises SettingsError when the address is not allowed, or cannot be used.
    """
    settings = router.settings.serve
    host, port = settings.host if host is None else host, settings.port if port is None else port
    generations = Generations(router, host, reloaded, agents_only=agents_only)
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    runner = web.AppRunner(
        generations.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    try:
        await router.open()
        await runner.setup()
        listener = await _listen(generations, runner, host, port)
        listening(_address(listener, host))
        with _signals(stop, generations.reload), few_accept_errors():
            await stop.wait()
        seconds = generations.current.settings.serve.drain_seconds
        log.info("Stopping: requests in flight have %g s to end.", seconds)
        ends_at = loop.time() + seconds
        listener.close()
        if runner.server is not None:
            runner.server.pre_shutdown()  # idle connections are closed, the others after their answer
        await generations.drain(max(0.0, seconds - min(2 * LAST_ANSWERS, seconds / 4)))
    except BaseException:
        ends_at = loop.time() + settings.drain_seconds
        raise
    finally:
        await runner.cleanup()
        await _close_routers(generations, max(LAST_ANSWERS, ends_at - loop.time()))


async def _close_routers(generations: Generations, seconds: float) -> None:
    """Close the routers. A plugin that does not end is left behind."""
    task = asyncio.get_running_loop().create_task(generations.aclose())
    _, late = await asyncio.wait([task], timeout=seconds)
    if late:
        task.cancel()
        log.warning("The server ends although a plugin did not close within %.1f s.", seconds)
    else:
        task.result()


async def _listen(generations: Generations, runner: web.AppRunner, host: str, port: int) -> asyncio.Server:
    assert runner.server is not None  # set up before
    protocol = generations.connections.protocol(runner.server)
    try:
        return await asyncio.get_running_loop().create_server(
            protocol, host, port, reuse_address=True, backlog=min(BACKLOG, generations.connections.most)
        )
    except OSError as error:
        raise SettingsError(
            f"The server cannot listen on {host}:{port}: {error.strerror}. Choose another with --port."
        ) from None


def _address(listener: asyncio.Server, host: str) -> str:
    port = listener.sockets[0].getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def _signals(stop: asyncio.Event, reload: Callable[[], None]) -> Iterator[None]:
    """Set `stop` on the first signal to end. A second one ends the process as usual. SIGHUP reloads."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def request_stop() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, request_stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # a late one ends nothing while requests end
