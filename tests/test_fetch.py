"""The fetcher, against servers on this machine that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as clock
import gzip
import socket
import ssl
import tracemalloc
import typing
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support.feeds import ZEBRA, Answer, FeedServer, OpenRss, ids
from support.hostile import ALLOWED, FAILING, PAGE, REDIRECTS, WORKING, Forbidden, Hostile, battlefield, send

from contextrouter.builtin.connectors.http_api import HttpApi
from contextrouter.builtin.connectors.rss import Rss
from contextrouter.builtin.connectors.web import Web
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.fetch import (
    JSON,
    PAGES,
    Fetcher,
    FetchFailed,
    FetchKeys,
    FetchOptions,
    check_url,
    is_public,
    networks,
)
from contextrouter.fetch.response import parse_retry_after
from contextrouter.model import Query
from contextrouter.settings.schema import constructor_fields


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


# Addresses


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("64:ff9b::5db8:d822", True),
        ("::ffff:93.184.216.34", True),
        ("10.0.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("168.63.129.16", False),
        ("100.64.0.1", False),
        ("192.0.0.170", False),
        ("198.18.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("::127.0.0.1", False),
        ("fc00::1", False),
        ("fd00:ec2::254", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::1", False),
        ("4000::1", False),
        ("2002:7f00:1::", False),
        ("2001::1", False),
        ("2001:db8::1", False),
        ("3fff::1", False),
        ("not an address", False),
        ("", False),
    ],
)
@pytest.mark.case("WEB-10")
def test_an_address_is_public_only_when_everybody_can_reach_it(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_allowed_networks_hold_in_every_spelling_of_an_address_and_nothing_beside_them() -> None:
    allowed = networks(["10.1.0.0/16", "fd00:1::/32"], "X.allow_private")
    assert is_public("10.1.2.3", allowed)
    assert is_public("::ffff:10.1.2.3", allowed)
    assert is_public("64:ff9b::a01:203", allowed)
    assert is_public("fd00:1::9", allowed)
    assert not is_public("10.2.0.1", allowed)
    assert not is_public("127.0.0.1", allowed)


@pytest.mark.parametrize("given_", [True, "10.0.0.0/8", ["10.1.0.1/16"], ["intranet"], [5.0]])
def test_what_is_no_list_of_networks_is_refused_with_an_example(given_: Any) -> None:
    with pytest.raises(ValueError, match=r'give one such as \["10\.1\.0\.0/16"\]'):
        networks(given_, "Web.allow_private")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/",
        "file:///etc/passwd",
        "a.example",
        "http://",
        "http://a b/",
        "http://a\\b/",
        "http://a/\r\nX: y",
        "http://[1/",
        "http://a:99999/",
        "http://user:secret-word@a/",
        "http://a@b/",
        "javascript:alert(1)",
        "http://a:0/",
    ],
)
def test_only_plain_http_addresses_are_asked_for_and_no_password_is_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not http or https with a host|carries a user name") as caught:
        check_url(url)
    assert "secret-word" not in str(caught.value)


# What servers do


@pytest.mark.parametrize("how", FAILING)
async def test_whatever_a_server_does_there_is_a_reason_in_time(how: str) -> None:
    async with battlefield() as (hostile, forbidden), fetching(max_bytes=1_000_000) as fetcher:
        with pytest.raises(SourceError) as caught:
            async with asyncio.timeout(10):
                await fetcher.get(f"{hostile.url}/{how}/page", accept=PAGES, deadline=monotonic() + 1.0)
        assert f"{hostile.url}/{how}/page" in str(caught.value)
        if how in ("slow-first-byte", "slow-drip"):
            assert isinstance(caught.value, SourceTimeout)
        assert forbidden.hits == []
        fetched = await fetcher.get(f"{hostile.url}/good/page")  # and the fetcher works on
        assert fetched.body.decode() == PAGE


@pytest.mark.parametrize("how", WORKING)
async def test_what_can_be_read_is_read(how: str) -> None:
    async with battlefield() as (hostile, _), fetching() as fetcher:
        fetched = await fetcher.get(f"{hostile.url}/{how}/page", accept=PAGES)
        assert b"On zebras" in fetched.body
        assert fetched.url == f"{hostile.url}/{how}/page"


@pytest.mark.parametrize("number", range(len(REDIRECTS)))
@pytest.mark.case("WEB-10")
async def test_no_redirect_leads_to_an_address_that_is_not_public(number: int) -> None:
    async with battlefield() as (hostile, forbidden), fetching() as fetcher:
        with pytest.raises(FetchFailed):
            await fetcher.get(f"{hostile.url}/to-{number}/page")
        with pytest.raises(FetchFailed):
            await fetcher.get(REDIRECTS[number].format(port=forbidden.port))
        assert forbidden.connections == 0


@pytest.mark.case("WEB-08")
async def test_a_name_whose_answer_changes_is_judged_by_the_address_that_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Hostile() as hostile, Forbidden("127.0.0.1", port=hostile.port) as forbidden:
        real, answers = socket.getaddrinfo, ["127.0.0.2", "127.0.0.1", "127.0.0.1"]

        def changing(host: Any, *args: Any, **more: Any) -> Any:
            return real(answers.pop(0) if host == "rebinding.test" else host, *args, **more)

        monkeypatch.setattr(socket, "getaddrinfo", changing)
        url = f"http://rebinding.test:{hostile.port}/good/page"
        async with fetching() as fetcher:
            assert (await fetcher.get(url)).body.decode() == PAGE
            assert len(answers) == 2  # no second look between the check and the connection
        async with fetching() as fetcher:
            with pytest.raises(FetchFailed, match=r"127\.0\.0\.1 is not a public address"):
                await fetcher.get(url)
        assert len(hostile.hits) == 1
        assert forbidden.connections == 0


@pytest.mark.parametrize("how", ["gzip-bomb", "deflate-bomb", "brotli-bomb", "never-ends"])
@pytest.mark.case("WEB-13")
async def test_memory_is_bounded_whatever_a_body_would_become(how: str) -> None:
    async with battlefield() as (hostile, _), fetching(max_bytes=1_000_000) as fetcher:
        with contextlib.suppress(FetchFailed):
            await fetcher.get(f"{hostile.url}/{how}/page")  # what is loaded once, and the bomb itself
        tracemalloc.start()
        try:
            with pytest.raises(FetchFailed, match="longer than `max_bytes` = 1000000"):
                await fetcher.get(f"{hostile.url}/{how}/page")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8_000_000


# TLS


@contextlib.contextmanager
def certified(folder: Path, *names: str):
    """A server's TLS context for `names`, and the file of the authority that certified it."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    yield context, str(folder / "ca.pem")


async def test_a_certificate_for_another_name_or_of_nobody_is_refused(tmp_path: Path) -> None:
    with certified(tmp_path, "right.test") as (context, ca):
        async with Hostile(context=context) as hostile:
            for more in ({"ca_file": ca}, {}):
                async with fetching(**more) as fetcher:
                    with pytest.raises(FetchFailed, match="its certificate does not hold"):
                        await fetcher.get(f"{hostile.url}/good/page")
            assert hostile.hits == []


async def test_a_certificate_of_an_authority_of_ones_own_holds(tmp_path: Path) -> None:
    with certified(tmp_path, "127.0.0.2") as (context, ca):
        async with Hostile(context=context) as hostile, fetching(ca_file=ca) as fetcher:
            assert (await fetcher.get(f"{hostile.url}/good/page")).body.decode() == PAGE


async def test_a_ca_file_that_is_none_is_said_when_opening(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    for name in ("none.pem", "missing.pem"):
        with pytest.raises(SourceError, match="ca_file"):
            async with fetching(ca_file=str(tmp_path / name)):
                pass


# Redirects, credentials, proxies


async def test_credentials_go_to_their_host_and_never_along_with_a_redirect() -> None:
    async with Hostile() as first, Hostile("127.0.0.3") as other:
        first.targets = {"away": f"{other.url}/good/page", "home": "/good/page"}
        credentials = {
            f"127.0.0.2:{first.port}": "Bearer first-secret",
            f"127.0.0.3:{other.port}": "X-Key: other-secret",
        }
        async with fetching(allow_private=["127.0.0.0/30"], credentials=credentials) as fetcher:
            await fetcher.get(f"{first.url}/away/page", headers={"X-Token": "mine"})
            assert "Authorization: Bearer first-secret" in first.heads[0]
            assert "X-Token: mine" in first.heads[0]
            assert not any(word in other.heads[0] for word in ("first-secret", "other-secret", "mine"))
            await fetcher.get(f"{first.url}/home/page")
            assert all("first-secret" in head for head in first.heads)
            await fetcher.get(f"{other.url}/good/page")
            assert "X-Key: other-secret" in other.heads[1]


async def test_credentials_are_seen_in_no_message() -> None:
    async with Hostile() as hostile:
        async with fetching(credentials={f"127.0.0.2:{hostile.port}": "Bearer a-long-secret"}) as fetcher:
            with pytest.raises(FetchFailed) as caught:
                await fetcher.get(f"{hostile.url}/status-404/a-long-secret?token=xyzxyz")
        assert "secret" not in str(caught.value)
        assert "xyzxyz" not in str(caught.value)


@pytest.mark.parametrize("credentials", [{"a/b": "x"}, {"": "x"}, {"a": " "}, {"a": "x\r\nY: z"}])
def test_credentials_that_cannot_be_sent_are_refused(credentials: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="credentials"):
        FetchOptions(credentials=credentials).check("Web")


async def test_a_post_is_sent_once_and_follows_no_redirect() -> None:
    async with Hostile() as hostile, fetching(retries=3) as fetcher:
        hostile.targets = {"away": "/good/api"}
        with pytest.raises(FetchFailed, match="redirects a POST"):
            await fetcher.post(f"{hostile.url}/away/api", b"{}", accept=JSON)
        with pytest.raises(FetchFailed, match="status 503"):
            await fetcher.post(f"{hostile.url}/once-503/api", b"{}", accept=JSON)
        assert len(hostile.hits) == 2


async def test_a_proxy_of_the_environment_is_used_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Hostile() as hostile, Hostile("127.0.0.3") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        allowed = ["127.0.0.0/30"]
        proxy.more[f"{hostile.url}/good/page"] = lambda writer, _: send(writer, "200 OK", b"by proxy")
        async with fetching(allow_private=allowed) as fetcher:
            assert (await fetcher.get(f"{hostile.url}/good/page")).body.decode() == PAGE
            assert proxy.hits == []
        async with fetching(allow_private=allowed, environment_proxies=True) as fetcher:
            assert (await fetcher.get(f"{hostile.url}/good/page")).body == b"by proxy"


# Retries, pace, time


@pytest.mark.parametrize("how", ["once-503", "once-429"])
async def test_a_fast_failure_is_tried_once_more_and_the_steps_say_so(how: str) -> None:
    async with Hostile() as hostile:
        async with fetching() as fetcher:
            fetched = await fetcher.get(f"{hostile.url}/{how}/page")
            assert len(hostile.hits) == 2
            assert any("Again in" in step for step in fetched.steps)
        async with fetching(retries=0) as fetcher:
            with pytest.raises(FetchFailed, match="status"):
                await fetcher.get(f"{hostile.url}/{how}/other")


@pytest.mark.parametrize(
    ("how", "asked"), [("status-404", 1), ("status-429-later", 1), ("status-503", 2), ("hang-up", 2)]
)
async def test_only_temporary_failures_are_tried_again(how: str, asked: int) -> None:
    """A Retry-After beyond the deadline is no reason to wait."""
    async with Hostile() as hostile, fetching() as fetcher:
        begun = monotonic()
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(f"{hostile.url}/{how}/page")
        assert monotonic() - begun < 60
        assert len(hostile.hits) == asked
        assert caught.value.retry_after == (3600 if "429" in how else None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert parse_retry_after(text) == seconds


def test_retry_after_may_be_a_date_ahead() -> None:
    ahead = clock.datetime.now(clock.UTC) + clock.timedelta(seconds=100)
    assert parse_retry_after(ahead.strftime("%a, %d %b %Y %H:%M:%S GMT")) == pytest.approx(99.5, abs=5)


async def test_exchanges_with_one_host_are_bounded() -> None:
    """The limit counts exchanges at the same time."""
    async with Hostile() as hostile:

        async def slow(writer: asyncio.StreamWriter, _: str) -> None:
            await asyncio.sleep(0.05)
            await send(writer, "200 OK", b"x")

        hostile.more = {f"/{n}": slow for n in range(9)}
        async with fetching(per_host=2) as fetcher, asyncio.TaskGroup() as group:
            for n in range(9):
                group.create_task(fetcher.get(f"{hostile.url}/{n}"))
        assert hostile.most_at_once == 2
        assert len(hostile.hits) == 9


async def test_between_two_beginnings_lies_the_delay() -> None:
    async with Hostile() as hostile, fetching(host_delay=0.15) as fetcher:
        begun = monotonic()
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(fetcher.get(f"{hostile.url}/good/page/{n}"))
        assert monotonic() - begun >= 0.3


async def test_who_waits_in_line_ends_with_his_deadline() -> None:
    async with Hostile() as hostile, fetching(host_delay=30.0) as fetcher:
        await fetcher.get(f"{hostile.url}/good/page")
        with pytest.raises(SourceTimeout, match="before the deadline"):
            await fetcher.get(f"{hostile.url}/good/page", deadline=monotonic() + 0.2)


async def test_a_session_that_is_not_open_says_so() -> None:
    with pytest.raises(SourceError, match="not open"):
        await Fetcher(FetchOptions(), extra="web").get("http://a.example/")


# Asking on a condition


async def conditional(writer: asyncio.StreamWriter, head: str) -> None:
    if 'If-None-Match: "v1"' in head or "If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT" in head:
        return await send(writer, "304 Not Modified")
    await send(writer, "200 OK", b"body", {"ETag": '"v1"', "Content-Type": "text/plain"})


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def test_a_body_that_did_not_change_is_not_sent_again_and_outlives_the_process(tmp_path: Path) -> None:
    async with Hostile() as hostile:
        hostile.more = {"/page": conditional}
        async with fetching(cache_path=str(tmp_path / "cache")) as fetcher:
            first = await fetcher.get(f"{hostile.url}/page")
            second = await fetcher.get(f"{hostile.url}/page")
        assert (first.body, first.unchanged) == (b"body", False)
        assert (second.body, second.unchanged, second.content_type) == (b"body", True, "text/plain")
        async with fetching(cache_path=str(tmp_path / "cache")) as fetcher:
            assert (await fetcher.get(f"{hostile.url}/page")).unchanged
            assert not (await fetcher.get(f"{hostile.url}/page", headers={"X-Me": "another"})).unchanged
        assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
        async with fetching() as fetcher:
            assert not (await fetcher.get(f"{hostile.url}/page")).unchanged


async def test_a_copy_that_is_not_whole_is_not_used(tmp_path: Path) -> None:
    async with Hostile() as hostile:
        hostile.more = {"/page": conditional}
        async with fetching(cache_path=str(tmp_path)) as fetcher:
            await fetcher.get(f"{hostile.url}/page")
        (copy,) = files(tmp_path)
        for data in (copy.read_bytes()[:-1], b"", b"{}\n", b"\xff" * 100):
            copy.write_bytes(data)
            async with fetching(cache_path=str(tmp_path)) as fetcher:
                fetched = await fetcher.get(f"{hostile.url}/page")
                assert (fetched.body, fetched.unchanged) == (b"body", False)


async def test_what_its_server_does_not_want_kept_is_not_kept(tmp_path: Path) -> None:
    async with Hostile() as hostile:
        headers = {"ETag": '"v1"', "Cache-Control": "private, no-store"}
        hostile.more = {"/page": lambda writer, _: send(writer, "200 OK", b"body", headers)}
        async with fetching(cache_path=str(tmp_path)) as fetcher:
            await fetcher.get(f"{hostile.url}/page")
        assert files(tmp_path) == []


# Settings


@pytest.mark.parametrize("connector", [HttpApi, Rss, Web])
def test_a_connector_that_fetches_has_the_fetch_keys_with_the_defaults_of_fetch_options(
    connector: type[HttpApi | Rss | Web],
):
    fields = constructor_fields(connector, "connector")
    types = typing.get_type_hints(FetchKeys, include_extras=True)
    assert list(fields)[-len(types) :] == list(types)
    assert {name: fields[name].default for name in types} == msgspec.structs.asdict(FetchOptions())
    assert {name for name in types if fields[name].is_path} == {"ca_file", "cache_path"}
    assert not any(fields[name].finite for name in types)


def test_fetch_keys_and_fetch_options_have_the_same_types():
    options = {field.name: field.type for field in msgspec.structs.fields(FetchOptions)}
    assert options == typing.get_type_hints(FetchKeys)


def test_a_keyword_that_is_no_fetch_key_is_refused():
    with pytest.raises(TypeError, match="fetch_second"):
        Rss(urls=["http://x.example"], fetch_second=1)  # type: ignore[call-arg]  # what is under test


# Fetching for a connector


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{}/",
        "http://localhost:{}/",
        "http://[::1]:{}/",
        "http://2130706433:{}/",
        "http://0x7f.0.0.1:{}/",
    ],
)
@pytest.mark.case("WEB-10")
async def test_private_addresses_are_refused_in_whatever_form(
    feed_server: FeedServer, open_rss: OpenRss, url: str
) -> None:
    feed_server.answers["/"] = ZEBRA
    source = await open_rss(url.format(feed_server.url.rpartition(":")[2]), allow_private=[])
    with pytest.raises(SourceError, match="could not be fetched"):
        await source.search(Query(text="zebra"))
    assert feed_server.paths == []


@pytest.mark.case("WEB-08")
async def test_the_address_that_is_connected_to_is_the_one_that_is_checked(
    open_rss: OpenRss, feed_server: FeedServer
) -> None:
    source = await open_rss(feed_server.url + "/", allow_private=[])
    with pytest.raises(
        SourceError, match=r"127\.0\.0\.1 is not a public address; name its network in `allow_private`"
    ):
        await source.search(Query(text="zebra"))


async def test_redirects_are_followed_five_times_and_no_further(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def hop(request: web.Request) -> web.Response:
        number = int(request.path[1:])
        return web.Response(status=302, headers={"Location": f"/{number - 1}" if number > 1 else "/feed"})

    feed_server.answers = {f"/{n}": hop for n in range(1, 7)} | {"/feed": ZEBRA}
    assert len(await ids(await open_rss(feed_server.url + "/5"))) == 1
    with pytest.raises(SourceError, match="redirects more than 5 times"):
        await ids(await open_rss(feed_server.url + "/6"))


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://example.org/", "gopher://x/"])
async def test_a_redirect_to_anything_but_http_is_refused(
    feed_server: FeedServer, open_rss: OpenRss, target: str
) -> None:
    async def away(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": target})

    feed_server.answers["/feed"] = away
    with pytest.raises(SourceError, match="is not http or https with a host"):
        await ids(await open_rss(feed_server.url + "/feed"))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "bare"])
@pytest.mark.case("WEB-13")
async def test_a_compressed_body_is_read_and_a_bomb_is_cut_off(
    feed_server: FeedServer, open_rss: OpenRss, encoding: str
) -> None:
    def squeeze(data: bytes) -> bytes:
        if encoding == "gzip":
            return gzip.compress(data)
        bare = zlib.compressobj(wbits=-15 if encoding == "bare" else 15)
        return bare.compress(data) + bare.flush()

    def serve(data: bytes) -> Answer:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(
                body=data, headers={"Content-Encoding": "gzip" if encoding == "gzip" else "deflate"}
            )

        return answer

    feed_server.answers = {"/feed": serve(squeeze(ZEBRA)), "/bomb": serve(squeeze(ZEBRA + b" " * 30_000_000))}
    assert len(await ids(await open_rss(feed_server.url + "/feed"))) == 1
    with pytest.raises(SourceError, match="longer than `max_bytes` = 1000"):
        await ids(await open_rss(feed_server.url + "/bomb", max_bytes=1_000))


async def test_a_body_longer_than_max_bytes_is_refused_on_disk_too(
    feed_server: FeedServer, open_rss: OpenRss, tmp_path: Path
) -> None:
    feed_server.answers["/feed"] = ZEBRA
    (tmp_path / "feed.xml").write_bytes(ZEBRA)
    fetched = await open_rss(feed_server.url + "/feed", max_bytes=50)
    for source in (fetched, await open_rss(paths=[str(tmp_path / "feed.xml")], max_bytes=50)):
        with pytest.raises(SourceError, match="max_bytes"):
            await ids(source)
    assert len(await ids(await open_rss(feed_server.url + "/feed", max_bytes=len(ZEBRA)))) == 1


async def test_secrets_in_a_feeds_address_stay_out_of_messages(
    feed_server: FeedServer, open_rss: OpenRss
) -> None:
    async def missing(_: web.Request) -> web.Response:
        return web.Response(status=403)

    feed_server.answers["/feed"] = missing
    with pytest.raises(SourceError) as caught:
        await ids(await open_rss(feed_server.url + "/feed?api_key=abcdef123456"))
    assert "abcdef123456" not in str(caught.value)


async def test_the_user_agent_is_sent_and_cookies_are_not(feed_server: FeedServer, open_rss: OpenRss) -> None:
    seen: list[tuple[str | None, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.headers.get("User-Agent"), request.headers.get("Cookie")))
        response = web.Response(body=ZEBRA)
        response.set_cookie("a", "b")
        return response

    feed_server.answers["/feed"] = answer
    source = await open_rss(feed_server.url + "/feed", user_agent="reader/1", refresh_seconds=0)
    await ids(source)
    await ids(source)
    assert seen == [("reader/1", None)] * 2
