"""robots.txt: which rules are ours, which one wins, and that crawling keeps to them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile import ALLOWED, Hostile, send

from contextrouter.fetch import Fetcher, FetchFailed, FetchOptions, robots


@contextlib.asynccontextmanager
async def fetching(**options: Any) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(
        FetchOptions(**{"allow_private": ALLOWED, "fetch_seconds": 2.0, **options}), extra="web"
    )
    await fetcher.open()
    try:
        yield fetcher
    finally:
        await fetcher.aclose()


ROBOTS = """
User-agent: *
Disallow: /private
Allow: /private/open
Disallow: /*.pdf$
Crawl-delay: 2

User-agent: other
User-agent: contextrouter
Disallow: /only-us
Disallow: /a*b*c
Sitemap: https://example.org/sitemap.xml
"""


@pytest.mark.parametrize(
    ("agent", "path", "allowed"),
    [
        ("somebody/1.0", "/private/x", False),
        ("somebody/1.0", "/private/open/x", True),
        ("somebody/1.0", "/x.pdf", False),
        ("somebody/1.0", "/x.pdf?y", True),
        ("somebody/1.0", "/only-us", True),
        ("contextrouter", "/private", True),
        ("ContextRouter/2 (+https://example.org)", "/only-us/x", False),
        ("contextrouter", "/%6fnly-us", False),
        ("contextrouter", "/a1b2c3", False),
        ("contextrouter", "/a1c2b3", True),
    ],
)
def test_robots_rules_are_of_the_group_that_names_us_and_the_longest_wins(
    agent: str, path: str, allowed: bool
) -> None:
    assert robots.parse_rules(ROBOTS, agent).allows("https://example.org" + path) is allowed


def test_robots_say_their_delay_and_sitemaps() -> None:
    assert robots.parse_rules(ROBOTS, "somebody").delay == 2.0
    assert robots.parse_rules(ROBOTS, "contextrouter").sitemaps == ("https://example.org/sitemap.xml",)
    assert robots.parse_rules("", "x").allows("https://example.org/")


@given(st.text(max_size=300))
def test_any_text_is_a_robots_file(text: str) -> None:
    robots.parse_rules(text, "x").allows("https://example.org/a?b")


def test_no_pattern_of_robots_takes_long() -> None:
    rules = robots.parse_rules("User-agent: *\nDisallow: /" + "*a" * 2_000, "x")
    assert rules.allows("https://example.org/" + "a" * 1_000 + "b")


@pytest.mark.parametrize(
    ("status", "body", "allowed"),
    [
        ("200 OK", b"User-agent: *\nDisallow: /good", False),
        ("200 OK", b"User-agent: *\nDisallow: /other", True),
        ("404 Not Found", b"", True),
        ("503 Unavailable", b"", False),
    ],
)
async def test_crawling_keeps_to_robots_and_asks_for_it_once(status: str, body: bytes, allowed: bool) -> None:
    async with Hostile() as hostile, fetching(retries=0) as fetcher:
        hostile.more = {"/robots.txt": lambda writer, _: send(writer, status, body)}
        for _ in range(2):
            if allowed:
                await fetcher.get(f"{hostile.url}/good/page", polite=True)
            else:
                with pytest.raises(FetchFailed, match=r"robots\.txt"):
                    await fetcher.get(f"{hostile.url}/good/page", polite=True)
        assert hostile.hits.count("/robots.txt") == 1
        assert hostile.hits.count("/good/page") == (2 if allowed else 0)
        await fetcher.get(f"{hostile.url}/good/page")
