"""robots.txt parser (RFC 9309): groups by product token, the longest rule wins, `*` and `$` in paths."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

MAX_BYTES = 512_000
MAX_RULES = 5_000
MAX_DELAY = 30.0


class Rules(NamedTuple):
    """What one site asks of us: (path pattern, whether it is allowed), and the seconds between two
    requests.
    """

    paths: tuple[tuple[str, bool], ...] = ()
    delay: float = 0.0
    sitemaps: tuple[str, ...] = ()
    closed: bool = False  # nothing may be read

    def allows(self, url: str) -> bool:
        """Whether a URL may be read. Of the rules that match, the longest decides, of two as long the one
        that allows.
        """
        if self.closed:
            return False
        parts = urlsplit(url)
        path = _same(parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        best, allowed = -1, True
        for pattern, allow in self.paths:
            if (len(pattern) > best or (len(pattern) == best and allow)) and _matches(pattern, path):
                best, allowed = len(pattern), allow
        return allowed


OPEN, CLOSED = Rules(), Rules(closed=True)


def parse(text: str, agent: str) -> Rules:
    """Return the rules for `agent`, whose name is what stands before the first `/` or space; those for `*`
    when none name it.
    """
    token = re.split(r"[/\s]", agent.strip().lower(), maxsplit=1)[0]
    groups: dict[str, list[tuple[str, bool]]] = {}
    delays: dict[str, float] = {}
    sitemaps: list[str] = []
    names: list[str] = []
    fresh = True  # whether a user-agent line would go on with the group's names
    for line in text.removeprefix("\ufeff").splitlines()[: 4 * MAX_RULES]:
        key, _, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if key == "user-agent":
            names = [*names, value.lower()] if fresh else [value.lower()]
            fresh = True
            for name in names:
                groups.setdefault(name, [])
        elif key in ("allow", "disallow"):
            fresh = False
            for name in names:
                if value and len(groups[name]) < MAX_RULES:
                    groups[name].append((_same(value), key == "allow"))
        elif key == "crawl-delay":
            fresh = False
            for name in names:
                delays[name] = _seconds(value)
        elif key == "sitemap" and len(sitemaps) < 50:
            sitemaps.append(value)
    chosen = token if token in groups else "*"
    return Rules(tuple(groups.get(chosen, ())), delays.get(chosen, 0.0), tuple(sitemaps))


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), MAX_DELAY)
    except ValueError:
        return 0.0


def _same(path: str) -> str:
    """The path with each character written in one way."""
    return quote(unquote(path, errors="replace"), safe="/*$?=&;:@!,()'+~%-._")


def _matches(pattern: str, path: str) -> bool:
    """Whether `path` begins as `pattern` says. Piece by piece, so that no pattern costs more than a few looks
    at the path.
    """
    whole = pattern.endswith("$")
    first, *rest = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    place = len(first)
    for index, piece in enumerate(rest):
        if whole and index == len(rest) - 1:
            return len(path) - len(piece) >= place and path.endswith(piece)
        place = path.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return not whole or place == len(path)
