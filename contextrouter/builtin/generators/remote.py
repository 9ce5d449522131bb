"""What generators that ask a server have in common, whatever the server speaks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import ClassVar

from contextrouter.builtin.generators.options import address, positive
from contextrouter.builtin.shared.server_client import Connected
from contextrouter.contracts import Completion, Generator, Writing
from contextrouter.errors import PluginError
from contextrouter.runtime.masking import mask


class Remote(Connected, Generator):
    """Asks `model` at `base_url` (empty: the `service`'s own) by a client that `open()` makes."""

    service: ClassVar[str]
    such_as: ClassVar[str]  # a model of it

    def __init__(self, model: str, base_url: str, api_key: str, request_timeout: float) -> None:
        if not model.strip():
            raise ValueError(f"model is empty. Give the name of a model, such as {self.such_as!r}.")
        self.model, self.base_url = model, address(base_url)
        self.request_timeout = positive("request_timeout", request_timeout)
        self._api_key = api_key

    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """The answer in pieces."""
        async with aclosing(self._written(messages, Writing())) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    yield piece

    def write(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncIterator[str | Completion]:
        """The answer in pieces, and last the Completion. Raises PluginError when the server fails."""
        return self._written(messages, writing)

    @abstractmethod
    def _written(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncGenerator[str | Completion, None]:
        """As `write()`."""

    def _failed(self, what: str) -> PluginError:
        server = self.base_url or self.service
        message = (
            f"Model {self.model!r} at {server} failed: {what.rstrip('.')}. Check base_url, model and api_key."
        )
        return PluginError(mask(message, [self._api_key]))
