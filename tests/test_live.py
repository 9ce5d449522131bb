"""Every connector that fetches, against every server that means no good: an answer or a reason, in time, and
nothing forbidden.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import trustme
from support.hostile import ALLOWED, FAILING, REDIRECTS, WORKING, Forbidden, Hostile, battlefield, send

from contextrouter import ContextRouter
from contextrouter.builtin.connectors.http_api import HttpApi
from contextrouter.builtin.connectors.rss import Rss
from contextrouter.builtin.connectors.web import Web
from contextrouter.contracts import Connector, Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Hit, Query

Make = Callable[..., Connector]
FIELDS = {"content": "text", "title": "title", "id": "id", "url": "url"}


def rss(url: str, **more: Any) -> Rss:
    return Rss(urls=[f"{url}/feed"], **more)


def pages(url: str, **more: Any) -> Web:
    return Web(urls=[f"{url}/page"], **more)


def crawl(url: str, **more: Any) -> Web:
    return Web(urls=[f"{url}/page"], sitemaps=[f"{url}/page/sitemap"], crawl_depth=1, **more)


def engine(url: str, **more: Any) -> Web:
    """The search API itself is hostile."""
    return Web(search="custom", search_url=f"{url}/api?q={{query}}", **more)


def api(url: str, **more: Any) -> HttpApi:
    return HttpApi(url=f"{url}/api", parameters={"q": "{query}"}, results="results", fields=FIELDS, **more)


CONNECTORS: dict[str, Make] = {
    "rss": rss,
    "web": pages,
    "web-crawl": crawl,
    "web-engine": engine,
    "http_api": api,
}


async def asked(source: Connector, seconds: float = 1.0) -> Sequence[Hit] | SourceError:
    """What a connector makes of a question within its deadline. Anything later, or another exception, fails
    the test.
    """
    await source.open()
    try:
        deadline = monotonic() + seconds
        async with asyncio.timeout(seconds + 2.0):
            try:
                return await source.search(Query(text="zebra", deadline=deadline))
            except SourceError as error:
                return error
    finally:
        await source.aclose()


@pytest.mark.parametrize("name", CONNECTORS)
@pytest.mark.parametrize("how", FAILING)
async def test_a_hostile_server_costs_its_own_answer_and_is_reported_in_time(name: str, how: str) -> None:
    async with battlefield() as (hostile, forbidden):
        source = CONNECTORS[name](f"{hostile.url}/{how}", allow_private=ALLOWED, max_bytes=1_000_000)
        answer = await asked(source, 0.8)
        assert isinstance(answer, SourceError)
        assert hostile.url in str(answer)
        assert forbidden.connections == 0


@pytest.mark.parametrize("name", CONNECTORS)
@pytest.mark.parametrize("number", range(len(REDIRECTS)))
@pytest.mark.case("WEB-10")
async def test_nothing_is_fetched_from_a_forbidden_address(name: str, number: int) -> None:
    async with battlefield() as (hostile, forbidden):
        target = REDIRECTS[number].format(port=forbidden.port).rstrip("/")
        for url in (f"{hostile.url}/to-{number}", target):
            assert isinstance(
                await asked(CONNECTORS[name](url, allow_private=ALLOWED, retries=0)), SourceError
            )
        assert forbidden.connections == 0
        assert forbidden.hits == []


@pytest.mark.parametrize("name", ["rss", "web", "http_api"])
@pytest.mark.parametrize("how", WORKING)
async def test_what_can_be_read_is_found(name: str, how: str) -> None:
    async with battlefield() as (hostile, _):
        answer = await asked(CONNECTORS[name](f"{hostile.url}/{how}", allow_private=ALLOWED), 30.0)
        assert not isinstance(answer, SourceError), answer
        assert "zebra" in answer[0].document.content.lower()
        assert answer[0].document.untrusted


@pytest.mark.parametrize("name", ["rss", "web", "http_api"])
@pytest.mark.case("WEB-08")
async def test_an_answer_of_dns_that_changes_leads_nowhere_forbidden(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hostile() as hostile, Forbidden("127.0.0.1", port=hostile.port) as forbidden:
        real, turns = socket.getaddrinfo, iter(["127.0.0.2", *["127.0.0.1"] * 9])

        def changing(host: Any, *args: Any, **more: Any) -> Any:
            return real(next(turns) if host == "rebinding.test" else host, *args, **more)

        monkeypatch.setattr(socket, "getaddrinfo", changing)
        url = f"http://rebinding.test:{hostile.port}/good"
        assert len(await asked(CONNECTORS[name](url, allow_private=ALLOWED), 30.0)) > 0  # type: ignore[arg-type]  # classes with keywords of their own
        answer = await asked(CONNECTORS[name](url, allow_private=ALLOWED), 30.0)
        assert "127.0.0.1 is not a public address" in str(answer)
        assert forbidden.connections == 0


@pytest.mark.parametrize("name", CONNECTORS)
async def test_a_certificate_for_another_name_ends_the_connection(name: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("right.test").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with Hostile(context=context) as hostile:
        source = CONNECTORS[name](
            f"{hostile.url}/good", allow_private=ALLOWED, ca_file=str(tmp_path / "ca.pem")
        )
        assert "its certificate does not hold" in str(await asked(source))
        assert hostile.hits == []


@pytest.mark.parametrize("name", ["rss", "web", "web-engine", "http_api"])
@pytest.mark.parametrize("how", ["gzip-bomb", "brotli-bomb", "never-ends"])
@pytest.mark.case("WEB-13")
async def test_memory_is_bounded_in_every_connector(name: str, how: str) -> None:
    async with battlefield() as (hostile, _):

        async def once() -> None:
            source = CONNECTORS[name](f"{hostile.url}/{how}", allow_private=ALLOWED, max_bytes=1_000_000)
            ended = await asked(source, 60.0)
            assert isinstance(ended, SourceError)
            assert not isinstance(
                ended, SourceTimeout
            )  # however busy the machine is, so that all that is loaded once is loaded

        await once()  # what is loaded once, and the bomb itself
        tracemalloc.start()
        try:
            await once()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16_000_000  # of a GiB; the server's own buffers are among it


# A search whose pages are hostile


def results(hostile: Hostile, *ways: str) -> None:
    listed = {
        "results": [{"url": f"{hostile.url}/{how}/page/{n}", "title": f"T{n}"} for n, how in enumerate(ways)]
    }
    body = json.dumps(listed).encode()
    hostile.more["/search"] = lambda writer, _: send(
        writer, "200 OK", body, {"Content-Type": "application/json"}
    )


def searxng(hostile: Hostile, **more: Any) -> Web:
    given = {"allow_private": ALLOWED, "max_bytes": 1_000_000, "extract_seconds": 30.0, **more}
    return Web(search="searxng", search_url=hostile.url, **given)


@pytest.mark.parametrize(
    "how", ["slow-first-byte", "brotli-bomb", "status-503", "reset", "loop", "wrong-type"]
)
async def test_four_of_five_pages_in_time_are_an_answer_with_the_fifth_reported(how: str) -> None:
    async with battlefield() as (hostile, forbidden):
        results(hostile, "good", "good", how, "good", "good")
        answer = await asked(searxng(hostile, fetch_seconds=4.0), 30.0)
        assert isinstance(answer, Partial), answer
        assert {hit.document.url[-1] for hit in answer} == {"0", "1", "3", "4"}
        assert f"/{how}/page/2" in answer.reason
        assert forbidden.connections == 0


async def test_a_search_may_name_forbidden_addresses_and_none_is_fetched() -> None:
    async with battlefield() as (hostile, forbidden):
        results(hostile, "good", *(f"to-{n}" for n in range(len(REDIRECTS))))
        answer = await asked(searxng(hostile, max_results=50, retries=0), 30.0)
        assert isinstance(answer, Partial)
        assert {hit.document.url for hit in answer} == {f"{hostile.url}/good/page/0"}
        assert forbidden.connections == 0


async def test_the_router_says_partial_and_goes_on() -> None:
    async with battlefield() as (hostile, _):
        results(hostile, "good", "slow-first-byte")
        fetching = {"allow_private": ALLOWED, "fetch_seconds": 3.0}
        settings = {
            "rag": {"timeout_seconds": 30.0, "token_budget": 0},
            "connectors": {
                "search": {"use": "web", "search": "searxng", "search_url": hostile.url, **fetching},
                "feed": {"use": "rss", "urls": [f"{hostile.url}/slow-drip/feed"], **fetching},
                "good": {"use": "rss", "urls": [f"{hostile.url}/good/feed"], "allow_private": ALLOWED},
            },
        }
        async with ContextRouter(settings) as router:
            context = await router.route("Where is the zebra?")
        status = {report.source: report.status for report in context.coverage}
        assert status == {"search": "partial", "feed": "timeout", "good": "ok"}
        assert (
            len([report for report in context.coverage if report.source == "search"]) == 1
        )  # a search costs money
        assert len(hostile.hits) - len([hit for hit in hostile.hits if not hit.startswith("/search")]) == 1
        assert context.degraded
        assert context.text.startswith("What stands between <<<untrusted ")


async def test_a_closed_connector_leaves_no_process_and_no_task_behind() -> None:
    async with battlefield() as (hostile, _):
        source = pages(f"{hostile.url}/good", allow_private=ALLOWED)
        await source.open()
        task = asyncio.create_task(source.search(Query(text="zebra")))
        await asyncio.sleep(0.05)
        await source.aclose()
        with suppress(SourceError, asyncio.CancelledError):
            await task
        assert not source._extractor._busy
        assert not source._extractor._idle
