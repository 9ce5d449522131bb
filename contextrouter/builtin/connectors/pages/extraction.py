"""Text extraction: turns pages and long feeds into text, in processes with a time limit."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, BinaryIO, cast

import msgspec

from contextrouter.builtin.connectors.markup import as_moment
from contextrouter.builtin.connectors.pages import extraction_worker
from contextrouter.builtin.connectors.pages.feed_parser import AHEAD, Feed, parse_feed
from contextrouter.builtin.connectors.pages.html_text import plain_text
from contextrouter.builtin.connectors.reader_process import end_process, start_process
from contextrouter.errors import MissingDependency
from contextrouter.runtime.threads import Threads

WORKERS = 2
JOBS = 500
"""Pages after which a process makes room for a new one."""
LONG_FEED = 256_000
"""Bytes up to which a feed is parsed in a thread of this process: at worst in about half a second."""


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says. `how` it was got: strict, loose, recall, baseline, description or text; without text
    there is a `why`.
    """

    text: str = ""
    title: str = ""
    author: str = ""
    date: str = ""
    site: str = ""
    description: str = ""
    language: str = ""
    how: str = ""
    why: str = ""
    hidden: int = 0  # characters that no reader of the page sees, taken out
    linked: float = 0.0  # share of the text that is links
    links: Sequence[str] = ()
    noindex: bool = False
    nofollow: bool = False
    canonical: str = ""  # the address that the page gives as its own

    @property
    def moment(self) -> datetime | None:
        """The date as an instant; None for none, or an absurd one."""
        moment = as_moment(self.date)
        is_absurd = moment is None or moment.year < 1990 or moment >= datetime.now(UTC) + AHEAD
        return None if is_absurd else moment


class Extractor:
    """Reads pages and long feeds in at most two processes, started when they are needed. A page has
    `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._threads: Threads | None = None
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._places: asyncio.Semaphore

    async def open(self, *, pages: bool = True) -> None:
        """Make ready, for feeds alone or for pages, too; no process is started yet. Raises
        MissingDependency.
        """
        for package in ("trafilatura", "lxml_html_clean") if pages else ():
            if find_spec(package) is None:
                raise MissingDependency(package, "web", what="Reading web pages")
        if self._threads is None:
            self._threads, self._places = Threads(WORKERS, "extract"), asyncio.Semaphore(WORKERS)

    async def aclose(self) -> None:
        """End the processes."""
        threads, self._threads = self._threads, None
        for worker in (*self._idle, *self._busy):
            worker.kill()
        self._idle.clear()
        if threads is not None:
            threads.close()

    async def read(self, html: str, url: str) -> Extracted:
        """Return what a page says; also a page that cannot be read, or not in time, is an answer, with a
        `why`.
        """
        if self._threads is None:
            return Extracted(why="the connector was closed meanwhile.")
        try:
            answer = await self._ask({"html": html, "url": url}, self.seconds)
        except TimeoutError:
            return Extracted(why=f"reading it took more than {self.seconds:g} seconds.")
        if answer is None:
            return Extracted(why="the process that read it ended.")
        return msgspec.convert(answer, Extracted)

    async def feed(self, body: bytes, url: str, content_type: str, max_items: int, seconds: float) -> Feed:
        """What `parse_feed` returns, and raises. Raises ValueError also for a feed that cannot be parsed
        within `seconds`.
        """
        if self._threads is None:
            raise ValueError("the connector was closed meanwhile.")
        if len(body) <= LONG_FEED:
            return await self._threads.run(parse_feed, body, url, content_type, max_items)
        job = {"feed": base64.b64encode(body).decode(), "url": url, "type": content_type, "items": max_items}
        try:
            answer = await self._ask(job, seconds)
        except TimeoutError:
            raise ValueError(f"to parse it took more than {seconds:g} seconds.") from None
        if answer is None:
            raise ValueError("the process that parsed it ended.")
        if reason := answer.get("why"):
            raise ValueError(reason)
        return msgspec.convert(answer["feed"], Feed)

    async def _ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """What a process answers; None when it ended instead. Raises TimeoutError when that takes longer than
        `seconds`.
        """
        assert self._threads is not None
        async with self._places:
            worker = self._idle.pop() if self._idle else _Worker()
            self._busy.add(worker)
            answer = None
            try:
                async with asyncio.timeout(seconds):
                    answer = await self._threads.run(worker.ask, job | {"seconds": seconds})
            finally:
                self._busy.discard(worker)
                if answer is not None and worker.jobs < JOBS and self._threads is not None:
                    self._idle.append(worker)
                else:
                    worker.kill()  # without an answer: it would come to nobody, or to the next
        return answer

    def plain(self, text: str) -> Extracted:
        """A page that is no HTML: its text, titled by its first line."""
        lines = text.strip().splitlines()
        title = plain_text(lines[0].lstrip("# ").strip())[:200] if lines else ""
        return Extracted(text=text.strip(), title=title, how="text", why="" if lines else "it is empty.")


class _Worker:
    """One process. `ask` blocks: it runs in a thread, and ends when the process is killed."""

    def __init__(self) -> None:
        self.jobs = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = self._asked = False

    def ask(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to one job; None when the process ended instead."""
        self.jobs += 1
        self._asked = True
        process = self._process or self._start()
        try:
            extraction_worker.send(cast(BinaryIO, process.stdin), job)
            return extraction_worker.receive(cast(BinaryIO, process.stdout))
        except (OSError, ValueError):
            return None
        finally:
            self._asked = False
            if self._killed:
                end_process(process)

    def _start(self) -> subprocess.Popen[bytes]:
        process = self._process = start_process(extraction_worker.__file__)
        if self._killed:
            process.kill()
        return process

    def kill(self) -> None:
        """End the process, whatever it does. Returns at once."""
        self._killed = True
        process = self._process
        if process is not None:
            process.kill()
            if not self._asked:  # else whoever waits for its answer sees it end, and closes it
                end_process(process)
