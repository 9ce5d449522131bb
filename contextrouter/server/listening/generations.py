"""The routers behind one listening server: a reload puts a new router in place of the old one.

Connections stay. Each request goes to the router that is current when the request arrives, and ends there.
An old router is closed when its last request has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from contextrouter.errors import ContextRouterError, SettingsError
from contextrouter.router import ContextRouter
from contextrouter.runtime.masking import mask
from contextrouter.runtime.threads import work_aside
from contextrouter.server.app import Server
from contextrouter.server.auth import check_host
from contextrouter.server.listening.connections import Connections
from contextrouter.server.logs import log
from contextrouter.server.worker_share import ALONE, Worker

LAST_ANSWERS = 1.0
"""Seconds in which requests that are ended write their error."""


class Generations:
    """The current server and the former ones that still have requests. `host` is where they listen."""

    def __init__(
        self,
        router: ContextRouter,
        host: str,
        replaced: Callable[[ContextRouter], None] = lambda _: None,
        *,
        worker: Worker = ALONE,
        agents_only: bool = False,
    ) -> None:
        serve = router.settings.serve
        self._agents_only = agents_only
        self.current = Server(router, worker=worker, agents_only=agents_only)
        check_host(self.current.access, host)
        self.connections = Connections(worker.share(serve.max_connections), serve.header_seconds)
        self._host, self._replaced = host, replaced
        self._retiring: dict[Server, asyncio.Task[None]] = {}
        self._reloading: asyncio.Task[None] | None = None
        self._again = False

    def application(self) -> web.Application:
        """Return the aiohttp application. It passes every request on to the current server."""
        application = web.Application(middlewares=[self._pass])
        application.router.add_route("*", "/{path:.*}", _unreached)
        return application

    @web.middleware
    async def _pass(self, request: web.Request, handler: object) -> web.StreamResponse:
        transport = request.transport
        self.connections.begin(transport)
        try:
            return await self.current.handle(request)
        finally:
            self.connections.end(transport)

    def reload(self) -> None:
        """Start a reload. One that is asked for during another follows it; a server that stops has none."""
        if self.current.leaving:
            return
        if self._reloading is not None and not self._reloading.done():
            self._again = True
            return
        self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            try:
                await self._replace()
            except Exception as error:  # whatever a plugin raises, the old router goes on
                reason = mask(str(error) or repr(error), self.current.settings.secrets)
                log.error("Reload failed, so the old settings stay: %s", reason)

    async def _replace(self) -> None:
        """Open a router for the settings file, and put it in place of the current one."""
        old = self.current
        path = old.settings.path
        if not path or old.router.instances.given:
            raise SettingsError("the router was made by a program and not from a settings file alone.")
        router = await work_aside(type(old.router).from_toml, path)
        try:
            await router.open()
            new = Server(router, old, agents_only=self._agents_only)
            check_host(new.access, self._host)
        except BaseException:
            await router.aclose()
            raise
        self._warn_of_what_stays(old, new)
        self._replaced(router)
        self.connections.header_seconds = new.settings.serve.header_seconds
        new.limits.change(router.settings)
        self.current = new
        self._retiring[old] = asyncio.get_running_loop().create_task(self._retire(old))
        log.info("Reloaded the settings.")

    def _warn_of_what_stays(self, old: Server, new: Server) -> None:
        before, after = old.settings.serve, new.settings.serve
        for key in ("host", "port", "workers", "max_connections"):
            if getattr(before, key) != getattr(after, key):
                log.warning("[serve] %s changes only when the server starts again.", key)

    async def _retire(self, server: Server) -> None:
        """Close a former router after its last request."""
        await server.answered()
        await self._close(server)
        self._retiring.pop(server, None)

    async def _close(self, server: Server) -> None:
        try:
            await server.router.aclose()
        except ContextRouterError as error:
            log.warning("%s", mask(str(error), server.settings.secrets))

    async def leave(self) -> float:
        """Say that the server will stop, while it still takes requests. End a reload. Return the seconds that
        load balancers get to stop sending requests.
        """
        self.current.leaving = True  # no reload begins any more
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.wait([self._reloading])
        self.current.leaving = True  # the reload may have put another in its place
        return self.current.settings.serve.drain_delay

    async def drain(self, seconds: float) -> None:
        """Let requests in flight end within `seconds`. Those that do not get an error."""
        servers = [self.current, *self._retiring]
        for server in servers:
            server.draining = True
        waiting = [asyncio.get_running_loop().create_task(server.answered()) for server in servers]
        _, running = await asyncio.wait(waiting, timeout=seconds)
        if running:
            count = sum(len(server.exchanges) for server in servers)
            log.warning("Ending %d requests that had no answer within %g s.", count, seconds)
            for server in servers:
                server.stop_exchanges()
            await asyncio.wait(running, timeout=LAST_ANSWERS)
        for task in waiting:
            task.cancel()

    async def aclose(self) -> None:
        """Close every router."""
        retiring = list(self._retiring.items())
        for _, task in retiring:
            task.cancel()
        for server in [self.current, *(server for server, _ in retiring)]:
            await self._close(server)
        await self.current.limits.aclose()


async def _unreached(request: web.Request) -> web.StreamResponse:
    """Stand in for every path in aiohttp's table of routes. The current server answers instead."""
    raise web.HTTPNotFound
