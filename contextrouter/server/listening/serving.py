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
from contextrouter.server.worker_share import ALONE, Worker

BACKLOG = 128
"""Connections that may wait to be accepted."""
SEVERAL = "`serve_workers` and `contextrouter serve` start several."
COUNT_SECONDS = 5.0
"""Seconds after which a worker counts abandoned calls again."""


async def serve(
    router: ContextRouter,
    *,
    host: str | None = None,
    port: int | None = None,
    listening: Callable[[str], None] = lambda _: None,
    stop: asyncio.Event | None = None,
    reloaded: Callable[[ContextRouter], None] = lambda _: None,
    worker: Worker | None = None,
    agents_only: bool = False,
) -> None:
    """Serve in this process until `stop` is set, or SIGTERM or SIGINT comes. `listening` gets the address.

    SIGHUP reads the settings file again; `reloaded` gets the new router before it answers its first request.
    With `agents_only` nothing is served but `/mcp`, and how the server is. `worker` is the place of this
    process among several; `serve_workers` sets it.
    Raises SettingsError when the address is not allowed, or cannot be used.
    """
    settings = router.settings.serve
    host, port = settings.host if host is None else host, settings.port if port is None else port
    if worker is None and settings.workers > 1 and not agents_only:
        log.warning("[serve] workers = %d: this program serves in one process. %s", settings.workers, SEVERAL)
    worker = worker or ALONE
    generations = Generations(router, host, reloaded, worker=worker, agents_only=agents_only)
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    runner = web.AppRunner(
        generations.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    try:
        await router.open()
        await runner.setup()
        with contextlib.closing(await _listen(generations, runner, host, port)) as listener:
            signals = _signals(stop, generations.reload, once=not worker.number)
            with signals, few_accept_errors(), _counting(generations):
                listening(address_of(host, listener.sockets[0].getsockname()[1]))
                await stop.wait()
                await _wait_for_balancers(await generations.leave())
        seconds = generations.current.settings.serve.drain_seconds
        log.info("Stopping: requests in flight have %g s to end.", seconds)
        ends_at = loop.time() + seconds
        if runner.server is not None:
            runner.server.pre_shutdown()  # idle connections are closed, the others after their answer
        await generations.drain(max(0.0, seconds - min(2 * LAST_ANSWERS, seconds / 4)))
    except BaseException:
        ends_at = loop.time() + settings.drain_seconds
        raise
    finally:
        await runner.cleanup()
        await _close_routers(generations, max(LAST_ANSWERS, ends_at - loop.time()))


async def _wait_for_balancers(seconds: float) -> None:
    """Take requests for so long after /readyz has said 503: load balancers need to see it."""
    if seconds:
        log.info("Stopping in %g s: /readyz says so, and requests are still taken.", seconds)
        await asyncio.sleep(seconds)


@contextlib.contextmanager
def _counting(generations: Generations) -> Iterator[None]:
    """Count what nobody waits for any more, again and again: another worker may be asked for the metrics. A
    single process counts when it is asked.
    """
    if not generations.current.worker.number:
        yield
        return

    async def count() -> None:
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            generations.current.count_abandoned()

    task = asyncio.get_running_loop().create_task(count())
    try:
        yield
    finally:
        task.cancel()


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
            protocol,
            host,
            port,
            reuse_address=True,
            reuse_port=True if generations.current.worker.number else None,
            backlog=min(BACKLOG, generations.connections.most),
        )
    except OSError as error:
        raise unusable(host, port, error) from None


def unusable(host: str, port: int, error: OSError) -> SettingsError:
    """Return the error of an address that cannot be listened on."""
    reason = error.strerror or str(error)
    return SettingsError(f"The server cannot listen on {host}:{port}: {reason}. Choose another with --port.")


def address_of(host: str, port: int) -> str:
    """Return the address of a server."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def _signals(stop: asyncio.Event, reload: Callable[[], None], *, once: bool) -> Iterator[None]:
    """Set `stop` on the first signal to end. A second one ends the process as usual, with `once`. SIGHUP
    reloads.
    """
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def request_stop() -> None:
        stop.set()
        if once:
            for number in signals:
                loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, request_stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in signals:
            if once:
                loop.remove_signal_handler(number)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # a late one ends nothing while requests end
