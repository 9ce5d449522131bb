"""CORS: which pages of other sites may ask, and the headers that tell their browser so."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from contextrouter.server.auth import is_loopback

METHODS = "GET, POST, DELETE"
EXPOSED = "x-request-id, x-trace-id, x-deadline-seconds, retry-after, mcp-session-id, mcp-protocol-version"
MAX_AGE = "600"
"""Seconds for which a browser keeps the answer to a preflight request."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_MOST = 64  # names of headers in one preflight request


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser asks on behalf of a page what it may send."""
    return method == "OPTIONS" and "Access-Control-Request-Method" in headers


def allows(origin: str, origins: Collection[str], *, loopback: bool = False) -> bool:
    """Whether the pages of an origin may ask. With `loopback` those of this machine may, whatever their port:
    that is where programs that try out agents run.
    """
    if origin in origins:
        return True
    if not loopback:
        return False
    try:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and is_loopback(parts.hostname or "")
    except ValueError:  # "http://["
        return False


def cors_headers(method: str, headers: Mapping[str, str], origin: str) -> dict[str, str]:
    """Return the headers of an answer to a page of an allowed origin. A preflight request gets back the names
    of headers that it asks for: which ones a client sends is its own affair, and its key decides.
    """
    answer = {
        "Access-Control-Allow-Origin": origin,
        "Vary": "Origin",
        "Access-Control-Expose-Headers": EXPOSED,
    }
    if not is_preflight(method, headers):
        return answer
    wanted_headers = headers.get("Access-Control-Request-Headers", "").split(",")
    names = [name for part in wanted_headers[:_MOST] if _TOKEN.fullmatch(name := part.strip())]
    answer |= {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Max-Age": MAX_AGE,
        "Vary": "Origin, Access-Control-Request-Headers",
    }
    if names:
        answer["Access-Control-Allow-Headers"] = ", ".join(names)
    del answer["Access-Control-Expose-Headers"]
    return answer
