"""Structured logging: JSON lines with request ids, without secrets and without questions."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from contextrouter.router import ContextRouter
from contextrouter.runtime.masking import MaskedLines, mask

log = logging.getLogger("contextrouter.server")
request_id: ContextVar[str] = ContextVar("request_id", default="")
trace_id: ContextVar[str] = ContextVar("trace_id", default="")
_LENGTH = 55  # of a traceparent of version 00
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)  # W3C Trace Context; versions after 00 may add fields


def read_trace_id(traceparent: str) -> str:
    """Return the trace id of a `traceparent` header; "" for one that is absent or malformed."""
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    if match is None or (match[0].startswith("00-") and len(match[0]) != _LENGTH):
        return ""
    return match[1]


class Masked(MaskedLines):
    """Lines of text without secrets."""

    def __init__(self, secrets: Sequence[str], worker: int = 0) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", secrets)
        self.worker = worker

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the number of the worker, then the fields of a record."""
        return {**({"worker": self.worker} if self.worker else {}), **fields(record)}

    def format(self, record: logging.LogRecord) -> str:
        """Format one record as a line."""
        extra = "".join(f" {name}={value}" for name, value in self.fields(record).items())
        extra = extra.replace("\n", "\\n")  # no caller's name begins a line of its own
        return mask((super().format(record) + extra).replace("\r", "\\r"), self.secrets)


class Structured(Masked):
    """One JSON object a line, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask(record.getMessage(), self.secrets),
            **self.fields(record),
        }
        if record.exc_info:
            line["traceback"] = mask(self.formatException(record.exc_info), self.secrets)
        return json.dumps(line, default=str)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the request id and the trace id of a record, and its fields from `extra={"fields": …}`."""
    ids = {"request_id": request_id.get(), "trace_id": trace_id.get()}
    return {**{name: value for name, value in ids.items() if value}, **getattr(record, "fields", {})}


def _is_fault_of_server(record: logging.LogRecord) -> bool:
    """Whether a record of aiohttp tells a fault of this server. A request with a header that is too long is
    one of its sender: it is one line, and no traceback for whoever likes to send many.
    """
    error = record.exc_info[1] if record.exc_info else None
    code = getattr(error, "code", None)
    if not (isinstance(code, int) and 400 <= code < 500):
        return True
    log.info("malformed request", extra={"fields": {"status": code, "error": type(error).__name__}})
    return False


def configure(form: str, secrets: Sequence[str], worker: int = 0) -> None:
    """Send all logs to stderr in this form. Replaces earlier logging settings. `worker` is the number of this
    process, where there are several.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(Structured(secrets, worker) if form == "json" else Masked(secrets, worker))
    logging.basicConfig(level=logging.WARNING, handlers=[lines], force=True)
    logging.getLogger("aiohttp.server").addFilter(_is_fault_of_server)
    logging.getLogger("contextrouter").setLevel(logging.INFO)


def configure_for(router: ContextRouter, worker: int = 0) -> Callable[[ContextRouter], None]:
    """Send all logs to stderr as the settings of a router say. Return what does so for a router that takes
    its place.
    """
    secrets: list[str] = []

    def apply(new: ContextRouter) -> None:
        secrets.extend(new.settings.secrets)  # the former ones stay secret
        configure(new.settings.serve.log_format, secrets, worker)

    apply(router)
    return apply
