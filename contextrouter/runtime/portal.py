"""A synchronous bridge to a router: threads, notebooks and programs without an event loop ask through it."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # registers the end of thread pools: that of portals has to come before
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from contextrouter.errors import ContextRouterError
from contextrouter.model import Answer, Context, Request, RequestFields
from contextrouter.router import ContextRouter
from contextrouter.settings import Settings

log = logging.getLogger("contextrouter")
T = TypeVar("T")
CLOSING_SECONDS = 5.0
"""For calls to end that the closing of a portal cancels."""
CLOSED = "This portal is closed. Make another."
Factory = Callable[[], ContextRouter]


class Portal:
    """A router in an event loop of its own, in a thread: whoever asks may have another loop, or none.

    `settings` is the path of a settings file, a mapping of its tables, Settings, or a function that returns a
    router. The router opens with the first question, and closes with `close`, at the end of a `with`, or when
    the program ends. After a fork the new process opens a router of its own. Raises SettingsError.
    """

    def __init__(self, settings: str | os.PathLike[str] | Settings | Mapping[str, Any] | Factory) -> None:
        self._factory = _factory(settings)
        self._begin(self._factory())  # now, so that settings that are wrong are told
        self._closed = False
        _open_portals.add(self)

    def _begin(self, router: ContextRouter | None = None) -> None:
        """Begin without a thread; without a router, too, after a fork: no thread survives one, and the lock
        and the connections are those of the former process.
        """
        self._lock = threading.Lock()
        self._router = router
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def route(self, question: str | Request, **fields: Unpack[RequestFields]) -> Context:
        """Ask as `ContextRouter.route`, and wait."""
        return self.call(lambda router: router.route(question, **fields))

    def answer(self, question: str | Request, **fields: Unpack[RequestFields]) -> Answer:
        """Ask as `ContextRouter.answer`, and wait."""
        return self.call(lambda router: router.answer(question, **fields))

    async def aroute(self, question: str | Request, **fields: Unpack[RequestFields]) -> Context:
        """Ask as `ContextRouter.route`, from any event loop. What is cancelled here, is cancelled there."""
        return await self.acall(lambda router: router.route(question, **fields))

    def call(self, function: Callable[[ContextRouter], Awaitable[T]]) -> T:
        """Return what an asynchronous function does with the router: `portal.call(lambda r: r.plan("…"))`.

        An interruption (Ctrl-C) cancels it.
        """
        future = self._start(function)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._closed:
                raise ContextRouterError(CLOSED) from None
            raise
        except BaseException:
            future.cancel()
            raise

    async def acall(self, function: Callable[[ContextRouter], Awaitable[T]]) -> T:
        """Return what an asynchronous function does with the router, from any event loop."""
        future = self._start(function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):  # nobody here gave up
                raise ContextRouterError(CLOSED) from None
            raise

    def iterate(self, function: Callable[[ContextRouter], AsyncIterator[T]]) -> Iterator[T]:
        """Yield what a stream of the router yields: `portal.iterate(lambda r: r.answer_stream("…"))`. The
        stream ends with the loop that reads it.
        """
        streams: list[AsyncIterator[T]] = []

        async def read(router: ContextRouter) -> tuple[T, ...]:
            if not streams:
                streams.append(function(router))
            async for item in streams[0]:
                return (item,)
            return ()

        async def end(_: ContextRouter) -> None:
            if streams and hasattr(streams[0], "aclose"):
                await streams[0].aclose()

        try:
            while item := self.call(read):
                yield item[0]
        finally:
            if not self._closed:
                self.call(end)

    def close(self) -> None:
        """End what runs, close the router and end the thread. A closed portal stays closed."""
        if self._thread is threading.current_thread():
            raise ContextRouterError("This portal is closed in its own event loop: close it outside.")
        with self._lock:
            self._closed = True
            _open_portals.discard(self)
            loop, thread = self._loop, self._thread
            if loop is None or thread is None:
                return
            self._loop = None
        try:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of what has a portal asks the same one: there is one thread, and one to be closed."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, function: Callable[[ContextRouter], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Start a function in the thread of the portal."""
        with self._lock:
            if self._closed:
                raise ContextRouterError(CLOSED)
            if self._router is None:
                self._router = self._factory()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="contextrouter-portal", daemon=True
                )
                self._thread.start()
            if self._thread is threading.current_thread():
                raise ContextRouterError(
                    "This portal is asked in its own event loop: await the router there."
                )
            return asyncio.run_coroutine_threadsafe(self._call(function), self._loop)

    async def _call(self, function: Callable[[ContextRouter], Awaitable[T]]) -> T:
        assert self._router is not None
        await self._router.open()
        return await function(self._router)

    async def _end(self) -> None:
        try:
            if self._router is not None:
                await self._router.aclose()
        finally:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:  # whoever waits for one would wait for ever
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=CLOSING_SECONDS)


def _factory(settings: str | os.PathLike[str] | Settings | Mapping[str, Any] | Factory) -> Factory:
    if isinstance(settings, str | os.PathLike):
        return lambda: ContextRouter.from_toml(os.fspath(settings))
    if isinstance(settings, Settings | Mapping):
        return lambda: ContextRouter(settings)
    return settings


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


_open_portals: set[Portal] = set()
"""Those that are not closed, also where nobody has them any more: they close at the end of the program."""


def _close_all() -> None:
    for portal in list(_open_portals):
        try:
            portal.close()
        except ContextRouterError as error:
            log.warning("%s", error)


# `atexit` comes after the thread pools have ended, without which plugins cannot close.
getattr(threading, "_register_atexit", atexit.register)(_close_all)


def _begin_after_fork() -> None:
    for portal in list(_open_portals):
        portal._begin()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_after_fork)
