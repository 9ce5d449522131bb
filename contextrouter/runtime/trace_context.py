"""Trace context (W3C): the header `traceparent` that fetches send, to one's own sources only."""

from __future__ import annotations

from contextvars import ContextVar

traceparent: ContextVar[str] = ContextVar("traceparent", default="")
"""The header for the fetches of the present call; "": they send none."""
