"""robots.txt parser (RFC 9309): groups by product token, the longest rule wins, `*` and `$` in paths."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

MAX_BYTES = 512_000
MAX_RULES = 5_000
MAX_DELAY = 30.0


class Rules(NamedTuple):
    """The rules of one site: (path pattern, whether it is allowed), and the seconds between two requests."""

    paths: tuple[tuple[str, bool], ...] = ()
    delay: float = 0.0
    sitemaps: tuple[str, ...] = ()
    closed: bool = False  # nothing may be read

    def allows(self, url: str) -> bool:
        """Whether a URL may be fetched. The longest matching rule decides; between equals, `allow` wins."""
        if self.closed:
            return False
        parts = urlsplit(url)
        path = _normalize_path(parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        longest, allowed = -1, True
        for pattern, allow in self.paths:
            if (len(pattern) > longest or (len(pattern) == longest and allow)) and _matches_path(
                pattern, path
            ):
                longest, allowed = len(pattern), allow
        return allowed


OPEN, CLOSED = Rules(), Rules(closed=True)


def parse_rules(text: str, agent: str) -> Rules:
    """Return the rules for the product token of `agent` (the part before the first `/` or space), or those
    for `*`.
    """
    token = re.split(r"[/\s]", agent.strip().lower(), maxsplit=1)[0]
    groups: dict[str, list[tuple[str, bool]]] = {}
    delays: dict[str, float] = {}
    sitemaps: list[str] = []
    names: list[str] = []
    in_header = True  # whether a user-agent line would go on with the group's names
    for line in text.removeprefix("\ufeff").splitlines()[: 4 * MAX_RULES]:
        key, _, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if key == "user-agent":
            names = [*names, value.lower()] if in_header else [value.lower()]
            in_header = True
            for name in names:
                groups.setdefault(name, [])
        elif key in ("allow", "disallow"):
            in_header = False
            for name in names:
                if value and len(groups[name]) < MAX_RULES:
                    groups[name].append((_normalize_path(value), key == "allow"))
        elif key == "crawl-delay":
            in_header = False
            for name in names:
                delays[name] = _seconds(value)
        elif key == "sitemap" and len(sitemaps) < 50:
            sitemaps.append(value)
    group = token if token in groups else "*"
    return Rules(tuple(groups.get(group, ())), delays.get(group, 0.0), tuple(sitemaps))


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), MAX_DELAY)
    except ValueError:
        return 0.0


def _normalize_path(path: str) -> str:
    """Return the path with canonical percent-encoding."""
    return quote(unquote(path, errors="replace"), safe="/*$?=&;:@!,()'+~%-._")


def _matches_path(pattern: str, path: str) -> bool:
    """Whether a prefix of `path` matches `pattern`. It searches piece by piece, so the time is linear."""
    anchored = pattern.endswith("$")
    prefix, *pieces = pattern.removesuffix("$").split("*")
    if not path.startswith(prefix):
        return False
    position = len(prefix)
    for index, piece in enumerate(pieces):
        if anchored and index == len(pieces) - 1:
            return len(path) - len(piece) >= position and path.endswith(piece)
        position = path.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return not anchored or position == len(path)
