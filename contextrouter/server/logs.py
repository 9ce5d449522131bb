"""Structured logging: JSON lines with request ids, without secrets and without questions."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from contextrouter.runtime.masking import mask

log = logging.getLogger("contextrouter.server")
request_id: ContextVar[str] = ContextVar("request_id", default="")


class Masked(logging.Formatter):
    """Lines of text without secrets."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Format one record as a line."""
        extra = "".join(f" {name}={value}" for name, value in fields(record).items())
        return mask(super().format(record).replace("\r", "\\r") + extra, self.secrets)


class Structured(Masked):
    """One JSON object a line, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask(record.getMessage(), self.secrets),
            **fields(record),
        }
        if record.exc_info:
            line["traceback"] = mask(self.formatException(record.exc_info), self.secrets)
        return json.dumps(line, default=str)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the request id of a record, and its fields from `extra={"fields": …}`."""
    request: dict[str, Any] = {"request_id": request_id.get()} if request_id.get() else {}
    return {**request, **getattr(record, "fields", {})}


def configure(form: str, secrets: Sequence[str]) -> None:
    """Send all logs to stderr in this form. Replaces earlier logging settings."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(Structured(secrets) if form == "json" else Masked(secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[lines], force=True)
    logging.getLogger("contextrouter").setLevel(logging.INFO)
