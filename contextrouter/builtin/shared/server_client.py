"""Base class of plugins that call a model server (OpenAI, Anthropic, or a local one) with its client."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from contextrouter.builtin.shared.bounded_client import bounded_options
from contextrouter.builtin.shared.loopback_server import Loopback
from contextrouter.contracts import Plugin
from contextrouter.errors import ContractError, MissingDependency, PluginError

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class ServerClient(Plugin):
    """Makes a client in `open()`, closes it in `aclose()`, with the server that an example brought along.

    `label` names the plugin in messages; `package` is that of the client, and the extra that has it. `root`
    is the path of the example's server.
    """

    label: str
    package: str
    root: str = ""
    base_url: str
    request_timeout: float
    _api_key: str
    _client: Any = None
    _server: Loopback | None = None

    async def open(self) -> None:
        """Make the client; nothing is sent. Raises MissingDependency without the package, PluginError without
        a key.
        """
        if self._client is not None:
            return
        if importlib.util.find_spec(self.package) is None:
            raise MissingDependency(self.package, self.package, what=self.label)
        if self._server is not None:
            self.base_url = f"http://127.0.0.1:{await self._server.listen()}{self.root}"
        self._client = self._connect()

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._server is not None:
            await self._server.aclose()

    @abstractmethod
    def _connect(self) -> Any:
        """The client. Raises PluginError where the server would refuse the key."""

    def _get_client(self) -> Any:
        """The client. Raises ContractError before `open()`."""
        if self._client is None:
            raise ContractError(f"{self.label} is not open. Call open() first.", law="opened before use")
        return self._client


class OpenAIClient(ServerClient):
    """Asks a server that speaks as OpenAI's does; `base_url` "": OpenAI's own."""

    package, root = "openai", "/v1"

    def _connect(self) -> AsyncOpenAI:
        if not self._api_key and not self.base_url:
            raise PluginError(
                "api_key is empty, which OpenAI refuses. Set api_key, or base_url of a server that needs"
                " none."
            )
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(
            api_key=self._api_key or "none",
            base_url=self.base_url or "https://api.openai.com/v1",
            timeout=self.request_timeout,
            max_retries=1,
            **bounded_options(DefaultAsyncHttpxClient),
        )
