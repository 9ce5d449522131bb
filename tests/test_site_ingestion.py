"""A site in a store: what is gone is removed, what merely failed stays, and pages that are none are named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from support.hostile import Hostile, send
from test_web import TEXT, article, found, serve, web

from contextrouter.builtin.connectors.pages.charset import page_text
from contextrouter.builtin.connectors.pages.extraction_worker import extract_page
from contextrouter.builtin.connectors.web import Web
from contextrouter.builtin.connectors.web import site_crawler as site_module
from contextrouter.builtin.providers.memory import Memory
from contextrouter.errors import IngestError, SourceError
from contextrouter.ingest import Report, ingest
from contextrouter.model import Query

APP = b"<html><body><div id='root'></div><script>app()</script></body></html>"


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with Hostile() as server:
        yield server


def sitemap(hostile: Hostile, *paths: str) -> str:
    urls = "".join(f"<url><loc>{hostile.url}{path}</loc></url>" for path in paths)
    return serve(hostile, "/sm.xml", f"<urlset>{urls}</urlset>".encode(), "text/xml")


async def fill(store: Memory, **keys: object) -> tuple[Report, set[str]]:
    """The report of a run over a site, and the paths that are in the store."""
    async with web(**keys) as source:
        report = await ingest(source, store, [], None, origin="s")
    return report, {"/" + id.split("/", 3)[3] for id in await store.fingerprints()}


@pytest.mark.case("NEW-04")
async def test_what_a_site_forbids_or_nobody_reads_is_counted_and_breaks_nothing(hostile: Hostile) -> None:
    serve(hostile, "/robots.txt", b"User-agent: *\nDisallow: /private\n", "text/plain")
    for path in ("/a", "/b", "/private"):
        serve(hostile, path, article(path))
    serve(hostile, "/bytes", b"\0\1", "application/octet-stream")
    serve(hostile, "/empty", b"<html><body></body></html>")
    store, paths = Memory(), ("/a", "/b", "/private", "/bytes", "/empty")
    report, stored = await fill(store, sitemaps=[sitemap(hostile, *paths)])
    assert stored == {"/a", "/b"}
    assert report.not_read == {"robots.txt": 1, "application/octet-stream": 1}
    assert [reason.partition(" ")[0] for _, reason in report.skipped] == [f"{hostile.url}/empty"]
    serve(hostile, "/b", b"", status="404 Not Found")
    report, stored = await fill(store, sitemaps=[sitemap(hostile, "/a", "/private", "/bytes", "/empty")])
    assert (stored, report.deleted) == ({"/a"}, 1)


@pytest.mark.case("NEW-04", "ING-03")
async def test_a_page_that_fails_stays_and_one_that_is_gone_goes(hostile: Hostile) -> None:
    for n in range(4):
        serve(hostile, f"/p{n}", article(f"Zebra {n}"))
    store, url = Memory(), sitemap(hostile, "/p0", "/p1", "/p2", "/p3")
    assert (await fill(store, sitemaps=[url]))[1] == {"/p0", "/p1", "/p2", "/p3"}
    serve(hostile, "/p0", b"", status="410 Gone")  # the sitemap still names it
    serve(hostile, "/p2", b"", status="503 Busy")
    serve(hostile, "/p3", APP)
    report, stored = await fill(store, sitemaps=[url])
    assert stored == {"/p1", "/p2", "/p3"}
    said = " ".join(reason for _, reason in report.skipped)
    assert f"{hostile.url}/p3 has no text to read: its text is made by JavaScript, which is not run." in said
    assert "status 503" in said
    assert report.deleted == 1


@pytest.mark.case("ING-02")
async def test_more_pages_than_allowed_remove_nothing(hostile: Hostile) -> None:
    paths = [f"/p{n}" for n in range(6)]
    for path in paths:
        serve(hostile, path, article(path))
    store, url = Memory(), sitemap(hostile, *paths)
    await fill(store, sitemaps=[url])
    with pytest.raises(IngestError, match=r"nothing was removed: .*more than 3 pages; raise `max_pages`"):
        await fill(store, sitemaps=[url], max_pages=3)
    assert len(await store.fingerprints()) == 6


async def test_pages_behind_a_page_that_failed_stay(hostile: Hostile) -> None:
    serve(hostile, "/child", article("Child"))
    other = serve(hostile, "/other", article("Other"))
    start = serve(hostile, "/start", article("Start", links="<a href='/child'>Child</a>"))
    store = Memory()
    assert (await fill(store, urls=[start, other], crawl_depth=1))[1] == {"/start", "/child", "/other"}
    serve(hostile, "/start", b"", status="503 Busy")
    with pytest.raises(IngestError, match=r"where .*/start leads to is not known"):
        await fill(store, urls=[start, other], crawl_depth=1)
    assert len(await store.fingerprints()) == 3


@pytest.mark.case("WEB-02")
async def test_a_sitemap_that_failed_once_is_asked_again_soon(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(hostile, "/sm.xml", b"", status="503 Busy")
    serve(hostile, "/a", article("Zebra"))
    async with web(sitemaps=[url]) as source:
        with pytest.raises(SourceError, match="status 503") as failure:
            await found(source)
        assert type(failure.value) is SourceError  # no timeout
        sitemap(hostile, "/a")
        assert source._site._next - asyncio.get_running_loop().time() <= site_module.RETRY_SECONDS
        monkeypatch.setattr(source._site, "_next", 0.0)
        assert await found(source) == ["/a"]


@pytest.mark.case("WEB-02")
async def test_pages_stay_while_their_sitemap_fails(hostile: Hostile) -> None:
    serve(hostile, "/a", article("Zebra"))
    async with web(sitemaps=[sitemap(hostile, "/a")], refresh_seconds=0) as source:
        assert await found(source) == ["/a"]
        serve(hostile, "/sm.xml", b"", status="503 Busy")
        assert await found(source) == ["/a"]
        assert any("status 503" in problem for problem in source.problems)


async def test_pages_with_one_canonical_address_are_one(hostile: Hostile) -> None:
    head = "<link rel='canonical' href='/page'>"
    body = article("Zebra", head=head)
    for path in ("/page", "/print"):
        serve(hostile, path, body)
    serve(hostile, "/other", article("Other", head="<link rel='canonical' href='https://evil.example/x'>"))
    serve(hostile, "/deep", article("Deep", head="<link rel='canonical' href='/'>"))
    urls = [hostile.url + path for path in ("/print", "/page", "/other", "/deep")]
    async with web(urls=urls) as source:
        documents = [document async for document in source.crawl()]
    paths = sorted(document.url.removeprefix(hostile.url) for document in documents)
    assert paths == ["/deep", "/other", "/page"]


@pytest.mark.parametrize(
    ("html", "said"),
    [
        (APP.decode(), "JavaScript"),
        (
            "<html><body><noscript>You need to enable JavaScript to run this app.</noscript>"
            "<div id=app></div><script src=a.js></script></body></html>",
            "JavaScript",
        ),
        (
            "<html><head><title>Sign in</title></head><body><h1>Sign in to go on</h1><form><input name=u>"
            "<input type=password><button>Log in</button></form></body></html>",
            "a page to sign in",
        ),
        (
            "<html><head><title>404 - Page not found</title></head><body><h1>Oops</h1><p>The page you asked"
            " for could not be found on this server.</p></body></html>",
            "no such page",
        ),
    ],
)
def test_a_page_that_is_not_what_was_asked_for_is_named(html: str, said: str) -> None:
    page = extract_page(html, "https://example.org/x")
    assert page["text"] == ""
    assert said in page["why"]


@pytest.mark.parametrize(
    "html",
    [
        article("404 Not Found: what the status means").decode(),
        article("Zebra", links="<form><input type=password>Log in</form><script>x()</script>").decode(),
    ],
)
def test_a_page_about_these_things_is_read(html: str) -> None:
    assert TEXT in extract_page(html, "https://example.org/x")["text"]


@pytest.mark.parametrize("charset", ["cp1251", "koi8-r", "shift_jis", "gb18030", "big5", "euc-kr", "cp1252"])
def test_the_charset_of_a_page_that_names_none_is_detected(charset: str) -> None:
    text = {
        "cp1251": "Приливы и отливы вызваны притяжением Луны. Вода поднимается дважды в сутки.",
        "koi8-r": "Приливы и отливы вызваны притяжением Луны. Вода поднимается дважды в сутки.",
        "shift_jis": "潮の満ち引きは月の引力によって起こります。水は一日に二回上がります。",
        "gb18030": "潮汐是由月球的引力引起的。水每天上升两次，下降两次。这里是海港。",
        "big5": "潮汐是由月球的引力引起的。水每天上升兩次，下降兩次。這裡是海港。",
        "euc-kr": "밀물과 썰물은 달의 인력 때문에 생깁니다. 물은 하루에 두 번 올라갑니다.",
        "cp1252": "Über den Wellen – “Brücken” aus Käse für 5 €.",
    }[charset]
    page = f"<html><head><title>T</title></head><body><p>{text * 4}</p></body></html>"
    assert text in page_text(page.encode(charset), "")


def test_a_charset_that_is_declared_late_counts() -> None:
    page = (
        "<html><head>" + "<!-- x -->" * 2_000 + "<meta charset='iso-8859-2'></head><body>Łódź</body></html>"
    )
    assert "Łódź" in page_text(page.encode("iso-8859-2"), "")


async def test_a_search_after_a_crawl_has_its_own_problems(hostile: Hostile) -> None:
    urls = [serve(hostile, "/a", article("Zebra")), serve(hostile, "/b", APP)]
    async with web(urls=urls) as source:
        assert isinstance(source, Web)
        assert len([document async for document in source.crawl()]) == 1
        assert (len(source.problems), list(source.unread)) == (1, [hostile.url + "/b"])
        await source.search(Query(text="zebra"))
        assert "JavaScript" in source.problems[0]


@pytest.mark.case("USE-09")
@pytest.mark.parametrize(
    ("head", "header", "expected"),
    [
        ("", "Wed, 05 Mar 2025 06:07:08 GMT", ("2025-03-05T06:07:08+00:00", "server")),
        (
            '<meta name="date" content="2024-02-03">',
            "Wed, 05 Mar 2025 06:07:08 GMT",
            ("2024-02-03", "document"),
        ),
        ("", "Thu, 01 Jan 1970 00:00:00 GMT", ("None", None)),
        ("", "yesterday", ("None", None)),
        ("", "now", ("None", None)),
    ],
)
async def test_a_page_is_dated_by_itself_or_by_its_server(
    hostile: Hostile, head: str, header: str, expected: tuple[str, str | None]
) -> None:
    """A page that its server makes for every request has no date."""
    page = article("/a", head=head)
    header = format_datetime(datetime.now(UTC), usegmt=True) if header == "now" else header
    headers = {"Content-Type": "text/html", "Last-Modified": header}
    hostile.more["/a"] = lambda writer, _: send(writer, "200 OK", page, headers)
    async with web(urls=[f"{hostile.url}/a"]) as source:
        (document,) = [document async for document in source.crawl()]
    assert str(document.updated_at and document.updated_at.isoformat()).startswith(expected[0])
    assert document.metadata.get("dated_by") == expected[1]
