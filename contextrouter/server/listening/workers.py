"""Several worker processes behind one port: the parent starts them, restarts those that die, and passes on
signals.

The parent serves nothing itself. It spawns workers and never forks: a fork copies locks that threads hold.
Each worker listens on the port itself (SO_REUSEPORT), and the kernel spreads the connections over them.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic

from prometheus_client.multiprocess import mark_process_dead

from contextrouter.errors import ContextRouterError, SettingsError
from contextrouter.router import ContextRouter
from contextrouter.server.listening import worker_process
from contextrouter.server.listening.serving import address_of, unusable
from contextrouter.server.listening.worker_process import FAILED, INVALID, LAST_SECONDS, READY, STOPPING
from contextrouter.server.logs import log
from contextrouter.server.worker_share import Worker
from contextrouter.settings import Settings

LONGEST_PAUSE = 30.0
"""Seconds before a worker that keeps dying is started again."""
LONG_LIFE = 60.0
"""Seconds after which the death of a worker is the first one again."""


async def serve_workers(
    path: str | Path = "settings.toml",
    *,
    workers: int | None = None,
    host: str | None = None,
    port: int | None = None,
    listening: Callable[[str], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve a settings file with several processes until `stop` is set, or SIGTERM or SIGINT comes.

    `workers`, `host` and `port` override `[serve]`. `listening` gets the address when the workers answer.
    A script that calls this needs `if __name__ == "__main__":`, because each worker imports it.
    Raises SettingsError when the settings are wrong or the address cannot be used, and ContextRouterError
    when no worker can start.
    """
    settings = ContextRouter.from_toml(path).settings
    count = settings.serve.workers if workers is None else workers
    await supervise(settings, count, host=host, port=port, listening=listening, stop=stop)


async def supervise(
    settings: Settings,
    count: int,
    *,
    host: str | None = None,
    port: int | None = None,
    listening: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve the file of these settings with `count` processes. See `serve_workers`."""
    if count < 1:
        raise SettingsError(f"The number of workers is {count}. Give 1 or more.")
    host = settings.serve.host if host is None else host
    port = settings.serve.port if port is None else port
    folder = _make_folder()
    try:
        with _reserve(host, port) as reserved:
            parent = _Parent(settings, count, (host, reserved), folder)
            await parent.run(listening, stop or asyncio.Event())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_folder() -> str:
    """Make the folder in which the workers count. Nobody else can read it."""
    try:
        return tempfile.mkdtemp(prefix="contextrouter-")
    except OSError as error:
        raise SettingsError(
            f"Several workers count together in a temporary folder, which cannot be made: {error}. Set TMPDIR"
            " to a folder that this user may write to, or [serve] workers = 1."
        ) from None


@contextlib.contextmanager
def _reserve(host: str, port: int) -> Iterator[int]:
    """Keep a port for the workers, and return it. Raises SettingsError where another program has it.

    Sockets that share a port may belong to two servers of one user, so one that shares nothing tries first.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError(
            "Processes cannot share a port on this system: it has no SO_REUSEPORT. Set [serve] workers = 1,"
            " or start one server for each port behind a load balancer."
        )
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            port = alone.getsockname()[1]
        shared = socket.socket(family, kind)
    except OSError as error:
        raise unusable(host, port, error) from None
    with shared:
        try:
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            shared.bind((address[0], port, *address[2:]))
        except OSError as error:
            raise unusable(host, port, error) from None
        yield port  # it never listens, so it gets no connection


def pause_after(deaths: int) -> float:
    """Return the seconds before a worker starts again that died so often in a row."""
    return min(LONGEST_PAUSE, 0.5 * 2.0 ** min(deaths - 1, 10))


class _Slot:
    """The slot of one worker: its process, and how often it died in a row."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.link: Connection | None = None
        self.ready = self.starting = self.reload_when_ready = False
        self.deaths, self.started = 0, 0.0
        self.timer: asyncio.TimerHandle | None = None  # of its next start

    def cancel_start(self) -> None:
        """Let no process be started in this slot any more."""
        if self.timer is not None:
            self.timer.cancel()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self.process is not None and self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)


class _Parent:
    """The parent of all workers of one server."""

    def __init__(self, settings: Settings, count: int, address: tuple[str, int], folder: str) -> None:
        self._path, self._address, self._folder = settings.path, address, folder
        self._seconds = settings.serve.drain_delay + settings.serve.drain_seconds
        self._slots = [_Slot(number) for number in range(1, count + 1)]
        self._stop: asyncio.Event
        self._listening: Callable[[str], None] | None
        self._error: ContextRouterError | None = None
        self._gone = asyncio.Event()  # every process has ended, after the stop
        self._second_signal = asyncio.Event()

    async def run(self, listening: Callable[[str], None], stop: asyncio.Event) -> None:
        """Run the workers until `stop` is set, or none of them can start."""
        self._listening, self._stop = listening, stop
        try:
            with self._signals():
                try:
                    for slot in self._slots:
                        self._start(slot)
                except OSError as error:
                    raise ContextRouterError(f"Worker {slot.number} cannot be started: {error}.") from error
                await stop.wait()
                await self._end_all()
        finally:
            for slot in self._slots:
                slot.cancel_start()
                slot.send(signal.SIGKILL)
                self._forget(slot)
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop on the first signal to end, at once on a second one. SIGHUP is passed on."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            (self._second_signal if self._stop.is_set() else self._stop).set()

        handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: self._reload}
        for number, call in handlers.items():
            loop.add_signal_handler(number, call)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _reload(self) -> None:
        for slot in self._slots:
            if slot.ready:
                slot.send(signal.SIGHUP)
            else:
                slot.reload_when_ready = True

    def _start(self, slot: _Slot) -> None:
        """Spawn the process of a slot."""
        self._keep_folder()
        link, far_end = multiprocessing.Pipe(duplex=False)
        worker = Worker(number=slot.number, count=len(self._slots), metrics=self._folder)
        process = multiprocessing.get_context("spawn").Process(
            target=worker_process.work,
            args=(worker, self._path, *self._address, far_end),
            name=f"contextrouter worker {slot.number}",
        )
        try:
            process.start()
        except OSError:
            link.close()
            raise
        finally:
            far_end.close()
        slot.process, slot.link, slot.starting, slot.reload_when_ready = process, link, True, False
        slot.started = monotonic()
        loop = asyncio.get_running_loop()
        loop.add_reader(link.fileno(), self._listen, slot)
        loop.add_reader(process.sentinel, self._replace, slot)

    def _start_again(self, slot: _Slot) -> None:
        """Spawn the process of a slot, or try once more later: the system may have no room for one."""
        try:
            self._start(slot)
        except OSError as error:
            self._start_later(slot, f"cannot be started: {error}")

    def _start_later(self, slot: _Slot, problem: str) -> None:
        """Start the process of a slot after a pause, which grows with each death in a row."""
        slot.deaths = 1 if monotonic() - slot.started >= LONG_LIFE else slot.deaths + 1
        pause = pause_after(slot.deaths)
        log.error("Worker %d %s. Another starts in %g s.", slot.number, problem, pause)
        slot.timer = asyncio.get_running_loop().call_later(pause, self._start_again, slot)

    def _keep_folder(self) -> None:
        """Make the folder of the counters again, where something has tidied it away: without it no worker
        starts.
        """
        try:
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            return
        except OSError as error:
            log.error("The folder in which workers count cannot be made again: %s", error)
            return
        log.warning(
            "The folder in which workers count was deleted: %s. Workers that run are missing in the metrics"
            " until the server starts again.",
            self._folder,
        )

    def _listen(self, slot: _Slot) -> None:
        """Take what a worker tells."""
        while slot.link is not None and slot.link.poll():
            try:
                kind, _, text = slot.link.recv_bytes().partition(b" ")
            except (EOFError, OSError):
                asyncio.get_running_loop().remove_reader(slot.link.fileno())
                return
            if kind == READY:
                slot.ready, slot.starting = True, False
                process = slot.process.pid if slot.process else None
                log.info("Worker %d answers, as process %s.", slot.number, process)
                if slot.reload_when_ready:
                    slot.send(signal.SIGHUP)
                self._announce()
            elif kind in (FAILED, INVALID):
                self._fail(slot, text.decode(), SettingsError if kind == INVALID else ContextRouterError)
            elif kind == STOPPING:
                self._seconds = max(self._seconds, float(text))

    def _announce(self) -> None:
        """Give the address once, when no worker is starting."""
        if self._listening is not None and not any(slot.starting for slot in self._slots):
            self._listening(address_of(*self._address))
            self._listening = None

    def _fail(self, slot: _Slot, reason: str, kind: type[ContextRouterError]) -> None:
        """Note that a worker cannot start. Where no other one answers, the server cannot."""
        if self._stop.is_set():
            return
        slot.starting = False
        if any(other.ready for other in self._slots):
            log.error("Worker %d cannot start: %s", slot.number, reason)
            self._announce()
        else:
            self._error = self._error or kind(reason)
            self._stop.set()

    def _replace(self, slot: _Slot) -> None:
        """Clean up after a worker that has ended, and start another in its place."""
        assert slot.process is not None  # it had a sentinel
        self._listen(slot)  # what it still told
        slot.process.join()
        code, was_starting = slot.process.exitcode, slot.starting
        self._forget(slot)
        mark_process_dead(slot.number, self._folder)  # type: ignore[no-untyped-call]  # the library has no types here
        if self._stop.is_set():
            if not any(other.process for other in self._slots):
                self._gone.set()
            return
        how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
        if was_starting:
            self._fail(slot, f"Worker {slot.number} ended {how} before it answered.", ContextRouterError)
            if self._stop.is_set():
                self._gone.set()
                return
        self._start_later(slot, f"ended {how}")

    def _forget(self, slot: _Slot) -> None:
        """Let go of the process of a slot."""
        loop = asyncio.get_running_loop()
        if slot.link is not None:
            loop.remove_reader(slot.link.fileno())
            slot.link.close()
        if slot.process is not None:
            loop.remove_reader(slot.process.sentinel)
            slot.process.join()
            slot.process.close()
        slot.process = slot.link = None
        slot.ready = slot.starting = False

    async def _end_all(self) -> None:
        """End all workers. Those that do not end in time are killed."""
        for slot in self._slots:
            slot.cancel_start()
        if not any(slot.process for slot in self._slots):
            return
        for slot in self._slots:
            slot.send(signal.SIGTERM)
        ending = [asyncio.ensure_future(event.wait()) for event in (self._gone, self._second_signal)]
        started = monotonic()
        while (seconds := self._seconds + LAST_SECONDS - (monotonic() - started)) > 0:
            done, _ = await asyncio.wait(ending, timeout=min(seconds, 1.0), return_when="FIRST_COMPLETED")
            if done:
                break
        else:
            log.warning("Workers that did not end within %g s are killed.", self._seconds + LAST_SECONDS)
        for task in ending:
            task.cancel()
