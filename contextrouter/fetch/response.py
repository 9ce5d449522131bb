"""HTTP request and response of a fetch: the fetched body, the errors, and the `Retry-After` header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from contextrouter.errors import SourceError, SourceTimeout


class Request(NamedTuple):
    """What to fetch, and how."""

    method: str
    url: str
    accept: Sequence[str] = ()
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    polite: bool = False
    keep: bool = False


class Fetched(NamedTuple):
    """What came back: the address it came from after redirects, its `Content-Type`, the decoded body, and how
    it came.
    """

    url: str
    content_type: str
    body: bytes
    steps: tuple[str, ...] = ()  # one line for each exchange
    unchanged: bool = False  # the server said that the copy from before still holds


class FetchFailed(SourceError):
    """Nothing came of a fetch. `.status` is the server's, `.retry_after` the seconds it asked for; None where
    it said neither.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        again: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after, self.again = status, retry_after, again
        self.steps: tuple[str, ...] = ()


class FetchLate(SourceTimeout):
    """A fetch had not ended in its time. `.steps` are the exchanges made."""

    def __init__(self, message: str, steps: tuple[str, ...]) -> None:
        super().__init__(message)
        self.steps = steps


def retry_after(text: str) -> float | None:
    """The seconds that `Retry-After` asks for, given as a number or a date; None for nothing that makes
    sense.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
