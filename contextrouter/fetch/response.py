"""HTTP request and response of a fetch: the fetched body, the errors, and the `Retry-After` header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from contextrouter.errors import SourceError, SourceTimeout


class FetchRequest(NamedTuple):
    """One request: method, URL, headers and body. `repeatable`: sent twice, it does what it does once."""

    method: str
    url: str
    accept: Sequence[str] = ()
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    polite: bool = False
    keep: bool = False
    repeatable: bool = True


class Fetched(NamedTuple):
    """The result of a fetch: the URL after redirects, the `Content-Type`, the decoded body, and the steps."""

    url: str
    content_type: str
    body: bytes
    steps: tuple[str, ...] = ()  # one line for each exchange
    unchanged: bool = False  # the server answered 304, so the body is from the cache
    modified: str = ""  # the header `Last-Modified`


class FetchFailed(SourceError):
    """A fetch failed. `.status` is the HTTP status, `.retry_after` the seconds to wait; None when absent.

    `.refused` says what is not read by rule: "robots.txt", or a content type; "" for a failure.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        transient: bool = False,
        refused: str = "",
    ) -> None:
        super().__init__(message)
        self.refused = refused
        self.status, self.retry_after, self.transient = status, retry_after, transient
        self.steps: tuple[str, ...] = ()


class FetchLate(SourceTimeout):
    """A fetch timed out. `.steps` are the exchanges before that."""

    def __init__(self, message: str, steps: tuple[str, ...]) -> None:
        super().__init__(message)
        self.steps = steps


def parse_retry_after(text: str) -> float | None:
    """Return the seconds of a `Retry-After` header, a number or a date; None when it is invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
