"""Google services on loopback for tests: the stand-ins of the package, with scripted faults before them.

A script sees each call as the service would: its method, its metadata, and how much time the caller gave it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import grpc

from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer
from contextrouter.contracts import Plugin

P = TypeVar("P", bound=Plugin)
DAILY = "Quota exceeded for quota metric 'Requests' and limit 'Requests per day' of service 'vertex'."
MINUTE = "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service 'vertex'."


class Seen(NamedTuple):
    """One call, as the server saw it."""

    method: str
    left: float | None  # seconds until the caller's deadline; None: it gave none
    metadata: dict[str, Any]


class Step(NamedTuple):
    """What happens to one call before the service sees it, or to its answer."""

    delay: float = 0.0
    status: str = ""
    message: str = "scripted"
    cut: Callable[[bytes], bytes] | None = None  # what becomes of the bytes of the answer


class Script(grpc.aio.ServerInterceptor):
    """Does `steps`, one to each call, then `always`, to the methods in `only` (none: to all); notes all."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.always: Step | None = None
        self.only: Sequence[str] = ()
        self.seen: list[Seen] = []
        self.cancelled: list[str] = []

    def methods(self) -> list[str]:
        return [call.method for call in self.seen]

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        method = await continuation(details)
        if method is None:
            return None
        name, metadata = details.method.rpartition("/")[2], dict(details.invocation_metadata)
        step = Step()
        if not self.only or name in self.only:
            step = self.steps.pop(0) if self.steps else self.always or step

        async def before(context: Any) -> None:
            self.seen.append(Seen(name, context.time_remaining(), metadata))
            try:
                await asyncio.sleep(step.delay)
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            if step.status:
                await context.abort(getattr(grpc.StatusCode, step.status), step.message)

        def serialize(answer: Any) -> bytes:
            raw: bytes = method.response_serializer(answer)
            return step.cut(raw) if step.cut else raw

        if method.unary_stream is not None:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                await before(context)
                async for answer in method.unary_stream(request, context):
                    yield answer

            return grpc.unary_stream_rpc_method_handler(stream, method.request_deserializer, serialize)

        async def unary(request: Any, context: Any) -> Any:
            await before(context)
            return await method.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(unary, method.request_deserializer, serialize)


@asynccontextmanager
async def listening(server: GrpcServer) -> AsyncIterator[tuple[str, Script]]:
    """Run a server; yield its host:port, and the script before it."""
    script = Script()
    server.interceptors = (script,)
    try:
        yield f"127.0.0.1:{await server.listen()}", script
    finally:
        await server.aclose()


@asynccontextmanager
async def opened(plugin: P) -> AsyncIterator[P]:
    """Open a plugin, and close it."""
    try:
        await plugin.open()
        yield plugin
    finally:
        await plugin.aclose()


def tasks_left() -> list[str]:
    """Return what still runs in this event loop beside the test."""
    own = asyncio.current_task()
    return [repr(task) for task in asyncio.all_tasks() if task is not own and not task.done()]
