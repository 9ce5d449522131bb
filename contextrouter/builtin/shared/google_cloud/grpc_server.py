"""Local gRPC server for examples of plugins, which then need no project, no credentials and no network."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Rpc(NamedTuple):
    """One method of a service: the coroutine (or asynchronous generator) that answers, and its types."""

    answer: Callable[..., Any]
    request: Any
    response: Any
    streams: bool = False


class GrpcServer(ABC):
    """Answers on a port of 127.0.0.1 with what `services()` say. Its state outlives `aclose()`.

    `interceptors` see each call first. `certificates` (key, certificate chain) turn TLS on.
    """

    def __init__(self) -> None:
        self.interceptors: Sequence[Any] = ()
        self.certificates: tuple[bytes, bytes] | None = None
        self.port = 0
        self._server: Any = None

    @abstractmethod
    def services(self) -> Mapping[str, Mapping[str, Rpc]]:
        """Full name of each service -> its methods. Called when the client's package is imported."""

    async def listen(self) -> int:
        """Listen on a free port; return it."""
        if self._server is not None:
            return self.port
        import grpc

        server = grpc.aio.server(interceptors=tuple(self.interceptors))
        for name, methods in (await asyncio.to_thread(self.services)).items():
            methods_of = {method: _rpc_method(rpc) for method, rpc in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods_of),))
        if self.certificates is None:
            self.port = server.add_insecure_port("127.0.0.1:0")
        else:
            secure = grpc.ssl_server_credentials([self.certificates])
            self.port = server.add_secure_port("127.0.0.1:0", secure)
        await server.start()
        self._server = server
        return self.port

    async def aclose(self) -> None:
        """Stop listening; calls that run are cancelled."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)


def _rpc_method(rpc: Rpc) -> Any:
    import grpc

    make = grpc.unary_stream_rpc_method_handler if rpc.streams else grpc.unary_unary_rpc_method_handler
    serialize = getattr(rpc.response, "serialize", None) or rpc.response.SerializeToString
    parse = getattr(rpc.request, "deserialize", None) or rpc.request.FromString
    return make(rpc.answer, request_deserializer=parse, response_serializer=serialize)
