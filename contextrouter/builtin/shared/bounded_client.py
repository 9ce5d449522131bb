"""HTTP clients of model servers, bounded: no redirects, nothing compressed, answers of limited size."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import Any

MOST_BYTES = 128 * 2**20
"""Bytes of one answer: more than a batch of vectors has, and no more than memory can hold."""


class AnswerTooLarge(ValueError):
    """A server sent more than any answer has, or compressed what was not to be."""


def bounded_options(client_class: Any) -> dict[str, Any]:
    """Return the options of a client of OpenAI or Anthropic. `client_class` is the package's own class of
    HTTP clients, `DefaultAsyncHttpxClient`.

    A redirect would carry the question to another server. What is compressed can be a thousand times as large
    as what came, so it is not asked for, and refused.
    """
    http_client = client_class(follow_redirects=False, event_hooks={"response": [_bound]})
    return {"http_client": http_client, "default_headers": {"Accept-Encoding": "identity"}}


def cause_of(error: BaseException) -> str:
    """Return why an answer was refused here, also if a client's exception hides it; "" for other errors."""
    causes = (error, error.__cause__)
    return next((str(cause) for cause in causes if isinstance(cause, AnswerTooLarge)), "")


async def _bound(response: Any) -> None:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerTooLarge(f"the answer is compressed ({encoding[:20]!r}), which was not asked for")
    response.stream = _bounded_stream(response)


def _bounded_stream(response: Any) -> Any:
    """Return the stream of a response that ends with an error after `MOST_BYTES`."""
    package = importlib.import_module(type(response).__module__.partition(".")[0])  # httpx, or its successor
    stream = response.stream

    class _Bounded(package.AsyncByteStream):  # type: ignore[name-defined, misc]  # of the package in use
        """A stream that is read up to a limit."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > MOST_BYTES:
                    raise AnswerTooLarge(f"the answer has more than {MOST_BYTES:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return _Bounded()
