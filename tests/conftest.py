"""What the tests share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import hypothesis
import pytest
from support.feeds import FeedServer, OpenRss, open_sources, serve_feeds

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")

for _name in ("CONTEXTROUTER_SETTINGS", "COLUMNS"):  # the width of the terminal is that of the tests
    os.environ.pop(_name, None)
for _name in [name for name in os.environ if name.startswith("CONTEXTROUTER_")]:
    del os.environ[_name]  # tests set their own


@pytest.fixture
async def feed_server() -> AsyncIterator[FeedServer]:
    """A server that sends feeds."""
    async with serve_feeds() as server:
        yield server


@pytest.fixture
async def open_rss(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenRss]:
    """Makes and opens rss sources, which have time for a page on a busy machine, too."""
    monkeypatch.setattr("contextrouter.builtin.connectors.rss.connector.EXTRACT_SECONDS", 60.0)
    async with open_sources() as make:
        yield make
