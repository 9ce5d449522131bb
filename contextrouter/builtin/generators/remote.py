"""Base class of remote generators: requests over HTTP, streams, and errors."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import ClassVar

from contextrouter.builtin.generators.options import check_base_url, check_positive
from contextrouter.builtin.shared.bounded_client import cause_of
from contextrouter.builtin.shared.server_client import ServerClient
from contextrouter.contracts import Completion, Generator, Thought, Writing
from contextrouter.errors import PluginError
from contextrouter.runtime.masking import mask

_WITHOUT_LIST = (404, 405, 501)
"""Statuses by which a server says that it has no list of models."""


class RequestNotTaken(PluginError):
    """The server answered 400 or 422: it does not take the request as it is. `code` is the server's own."""

    code: str = ""


class Remote(ServerClient, Generator):
    """Asks `model` at `base_url` (empty: the `service`'s own) by a client that `open()` makes."""

    service: ClassVar[str]
    such_as: ClassVar[str]  # a model of it

    def __init__(self, model: str, base_url: str, api_key: str, request_timeout: float) -> None:
        if not model.strip():
            raise ValueError(f"model is empty. Give the name of a model, such as {self.such_as!r}.")
        self.model, self.base_url = model, check_base_url(base_url)
        self.request_timeout = check_positive("request_timeout", request_timeout)
        self._api_key = api_key

    async def ping(self) -> None:
        """Ask for the list of models, which costs nothing. Raises PluginError when the server is not reached
        or refuses the key; a server that has no such list is there all the same.
        """
        client = self._get_client()
        try:
            await client.models.list()
        except (importlib.import_module(self.package).APIError, ValueError) as error:
            if getattr(error, "status_code", None) not in _WITHOUT_LIST:
                raise self._refused_by_server(error) from None

    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """The answer in pieces."""
        async with aclosing(self._stream_completion(messages, Writing())) as pieces:
            async for piece in pieces:
                if isinstance(piece, str) and not isinstance(piece, Thought):
                    yield piece

    def write(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncIterator[str | Completion]:
        """The answer in pieces, and last the Completion. Raises PluginError when the server fails."""
        return self._stream_completion(messages, writing)

    @abstractmethod
    def _stream_completion(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncGenerator[str | Completion, None]:
        """As `write()`."""

    def _make_error(self, problem: str, *, hint: str = "") -> PluginError:
        """What went wrong, and where."""
        return PluginError(self._describe(problem, hint))

    def _refused_by_server(self, error: Exception) -> PluginError:
        """The error of a client, in words that say how to mend it."""
        status = getattr(error, "status_code", None)
        problem = cause_of(error) or f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError) and not cause_of(error):
            problem = f"it did not answer with JSON ({problem})"
        if status in (400, 422):
            refused = RequestNotTaken(self._describe(problem, "It does not take this request."))
            refused.code = str(getattr(error, "code", None) or "")
            return refused
        if status == 429:
            return self._make_error(problem, hint="It limits requests: ask less often, or raise the limit.")
        if status is not None and status >= 500:
            return self._make_error(problem, hint="The server has a fault; it may pass.")
        if status is not None and 300 <= status < 400:
            problem = f"it redirects to another address (status {status}), which is not followed"
            return self._make_error(problem, hint="Check base_url.")
        hint = "Check base_url, model and api_key." if status is not None else "Check base_url."
        return self._make_error(problem, hint=hint)

    def _describe(self, problem: str, hint: str) -> str:
        server = self.base_url or self.service
        failure = f"Model {self.model!r} at {server} failed: {problem.rstrip('.')}."
        return mask(f"{failure} {hint}".rstrip(), [self._api_key])
