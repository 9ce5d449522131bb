"""The rss connector: feeds as they really are, fetched from real servers on this machine."""

from __future__ import annotations

import asyncio
import codecs
import gzip
import json
import signal
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from contextrouter.builtin.connectors.pages import extraction as extract_module
from contextrouter.builtin.connectors.pages.extraction import LONG_FEED, Extractor
from contextrouter.builtin.connectors.pages.feed_parser import decode, parse_date, parse_feed
from contextrouter.builtin.connectors.pages.html_text import plain_text
from contextrouter.builtin.connectors.rss import Rss, feed_polling
from contextrouter.contracts import Partial
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Document, Period, Query

EXAMPLES = Path(__file__).parents[1] / "examples"
QUESTION = "What books talk about machine learning for beginners?"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def rss(*items: str, head: str = "<title>T</title><link>https://example.org/</link>") -> bytes:
    body = "".join(f"<item>{item}</item>" for item in items)
    return f'<?xml version="1.0" encoding="utf-8"?><rss version="2.0"><channel>{head}{body}</channel></rss>'.encode()


ZEBRA = rss("<title>zebra</title><link>https://example.org/z</link>")


class Server:
    """A web server on the loopback interface; `paths` are the requests it got, in order."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | bytes] = {}
        self.paths: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        found = self.answers[request.path]
        return (
            web.Response(body=found, content_type="application/rss+xml")
            if isinstance(found, bytes)
            else await found(request)
        )


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    it = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", it.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    it.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield it
    await runner.cleanup()


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Awaitable[Rss]]]:
    """Make and open sources; they are closed at the end."""
    made: list[Rss] = []

    async def make(*urls: str, **more: object) -> Rss:
        source = Rss(urls=urls, **{"allow_private": ["127.0.0.0/8"], "retries": 0, **more})  # type: ignore[arg-type]  # keywords of many types
        await source.open()
        made.append(source)
        return source

    yield make
    for source in made:
        await source.aclose()


Make = Callable[..., Awaitable[Rss]]


async def ids(source: Rss, text: str = "zebra", **more: object) -> list[str]:
    return [hit.document.id for hit in await source.search(Query(text=text, **more))]  # type: ignore[arg-type]  # fields of many types


def only(body: bytes, url: str = "https://example.org/feed") -> Document:
    (document,) = parse_feed(body, url).documents
    return document


# The cases that users of other feed readers reported


@pytest.mark.case("RSS-01")
async def test_a_server_that_never_answers_ends_with_the_deadline(server: Server, opened: Make) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError("not reached")

    server.answers["/feed"] = silent
    source = await opened(server.url + "/feed")
    begun = time.monotonic()
    with pytest.raises(SourceTimeout, match="did not answer before the deadline"):
        await source.search(Query(text="zebra", deadline=begun + 0.2))
    assert time.monotonic() - begun < 20


@pytest.mark.case("RSS-01")
async def test_a_body_that_trickles_for_ever_ends_without_a_deadline_too(
    server: Server, opened: Make
) -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    server.answers["/feed"] = trickle
    source = await opened(server.url + "/feed", fetch_seconds=0.2)
    with pytest.raises(SourceTimeout, match=r"within 0\.2 seconds"):
        await source.search(Query(text="zebra"))


@pytest.mark.case("RSS-03")
def test_an_item_without_a_date_is_kept_and_undated() -> None:
    document = only(rss("<title>a</title><link>https://example.org/a</link>"))
    assert document.updated_at is None
    assert "date" not in document.metadata


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Mo, 25 Jun 2018 11:41:36", datetime(2018, 6, 25, 11, 41, 36, tzinfo=UTC)),
        ("Mi, 05 Dez 2018 10:00:00 +0100", datetime(2018, 12, 5, 9, 0, tzinfo=UTC)),
        ("mar., 3 févr. 2026 09:00:00 GMT", datetime(2026, 2, 3, 9, 0, tzinfo=UTC)),
        ("Mon, 25 Jun 2018 11:41:36 GMT", datetime(2018, 6, 25, 11, 41, 36, tzinfo=UTC)),
        ("2018-06-25T11:41:36+02:00", datetime(2018, 6, 25, 9, 41, 36, tzinfo=UTC)),
    ],
)
@pytest.mark.case("RSS-04")
def test_localised_dates_are_read(text: str, moment: datetime) -> None:
    document = only(rss(f"<title>a</title><link>https://example.org/a</link><pubDate>{text}</pubDate>"))
    assert document.updated_at == moment
    assert document.metadata["date"] == text


@pytest.mark.case("RSS-04")
def test_a_date_nobody_can_read_is_unknown_and_kept_raw() -> None:
    document = only(rss("<title>a</title><link>https://example.org/a</link><pubDate>kesällä 2018</pubDate>"))
    assert document.updated_at is None
    assert document.metadata["date"] == "kesällä 2018"


@pytest.mark.case("RSS-06")
def test_a_broken_byte_does_not_overrule_the_declared_charset() -> None:
    text = (
        rss("<title>机器学习入门</title><link>https://example.org/a</link>")
        .decode()
        .replace("utf-8", "gb18030")
    )
    body = text.encode("gb18030").replace("门".encode("gb18030"), "门".encode("gb18030") + b"\xff")
    document = only(body)
    assert document.title == "机器学习入门\ufffd"


@pytest.mark.case("RSS-08")
def test_relative_links_become_absolute() -> None:
    item = "<title>a</title><link>/en/games/x</link>"
    assert only(rss(item)).url == "https://example.org/en/games/x"
    assert (
        only(rss(item, head="<title>T</title>"), "https://feeds.example.net/all.xml").url
        == "https://feeds.example.net/en/games/x"
    )


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "http://[broken",
        "mailto:a@example.org",
        "file:///etc/passwd",
    ],
)
@pytest.mark.case("RSS-08")
def test_a_link_that_cannot_be_an_http_address_drops_the_item_with_a_reason(link: str) -> None:
    feed = parse_feed(rss(f"<title>a</title><link>{link}</link>"), "")
    assert feed.documents == []
    assert "cannot be made an http address" in feed.problems[-1]


@pytest.mark.case("RSS-08")
def test_a_relative_link_in_a_local_file_without_a_site_drops_the_item() -> None:
    feed = parse_feed(rss("<title>a</title><link>/x</link>", head="<title>T</title>"), "")
    assert feed.documents == []
    assert "'/x'" in feed.problems[-1]


BOMB = "<!DOCTYPE rss [" + "".join(
    f'<!ENTITY e{n} "{"" if n else "boom"}{f"&e{n - 1};" * 10 if n else ""}">' for n in range(8)
)


@pytest.mark.parametrize(
    "prolog",
    [
        BOMB + "]>",
        '<!-- <rss> --><!DOCTYPE rss [<!entity a "b">]>',
        '<!DOCTYPE rss SYSTEM "<!--" [<!ENTITY a "b">]><!-- -->',
        "<!DOCTYPE rss SYSTEM '<![CDATA[' [<!ENTITY % a SYSTEM 'file:///etc/passwd'>]>",
        '<?x <rss> ?><!DOCTYPE rss [<!-- ]> --><!ENTITY a "b">]>',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.case("RSS-10")
def test_entity_declarations_are_refused_before_anything_is_parsed(prolog: str, encoding: str) -> None:
    text = f"{prolog}<rss version='2.0'><channel><item><title>&e7;</title></item></channel></rss>"
    begun = time.monotonic()
    with pytest.raises(ValueError, match="declares entities"):
        parse_feed(text.encode(encoding), "")
    assert time.monotonic() - begun < 20


@pytest.mark.case("RSS-10")
def test_an_article_about_entities_and_an_old_doctype_are_no_attack() -> None:
    doctype = (
        b'<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN"'
        b' "http://my.netscape.com/publish/formats/rss-0.91.dtd">'
    )
    body = rss(
        "<title>a</title><link>https://example.org/a</link><description><![CDATA[How <!ENTITY"
        " works]]></description>"
    )
    assert only(body.replace(b"<rss", doctype + b"<rss", 1)).title == "a"


# Formats


def test_atom_is_read_with_its_updated_instant() -> None:
    body = (
        '<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><entry><id>urn:1</id><title'
        ' type="html">&lt;b>a&lt;/b></title><link'
        ' href="https://example.org/a"/><published>2026-01-01T00:00:00Z</published><updated>2026-01-02T00:00:00Z</updated><content'
        ' type="html">&lt;p>One&lt;/p>&lt;p>Two &amp;amp; three&lt;/p></content></entry></feed>'
    )
    document = only(body.encode())
    assert (document.id, document.title, document.content) == ("urn:1", "a", "One\nTwo & three")
    assert document.updated_at == datetime(2026, 1, 2, tzinfo=UTC)


def test_rdf_is_read() -> None:
    body = (
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
        ' xmlns="http://purl.org/rss/1.0/"><channel><title>T</title>'
        "</channel><item><title>a</title><link>https://example.org/a</link><description>text</description></item></rdf:RDF>"
    )
    document = only(body.encode())
    assert (document.title, document.content, document.url) == ("a", "text", "https://example.org/a")


def test_json_feed_is_read() -> None:
    items = [
        {
            "id": 7,
            "url": "/a",
            "content_html": "<p>x<br>y</p>",
            "date_published": "2026-01-02T00:00:00Z",
            "tags": ["t", 1],
        },
        {"id": "8", "content_text": "plain <b>"},
        "nonsense",
    ]
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": "T",
        "home_page_url": "https://example.org/",
        "items": items,
    }
    first, second = parse_feed(json.dumps(feed).encode(), "").documents
    assert (first.id, first.url, first.content, first.labels) == (
        "7",
        "https://example.org/a",
        "x\ny",
        ("t",),
    )
    assert first.updated_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert (second.id, second.content) == ("8", "plain <b>")


def test_a_document_is_web_with_plain_text_snippet_and_feed_title() -> None:
    text = "<p>" + "word " * 100 + "</p><script>alert(1)</script>"
    document = only(
        rss(
            f"<guid isPermaLink='false'>g</guid><title>a</title><description><![CDATA[{text}]]></description>"
        )
    )
    assert (document.id, document.url, document.kind) == ("g", "", "web")
    assert document.content == ("word " * 100).strip()
    assert document.snippet == document.content[:200]
    assert document.metadata == {"feed": "T"}


def test_an_item_without_guid_and_link_has_an_id_that_stays() -> None:
    body = rss("<title>a</title><description>b</description>")
    assert only(body).id == only(body).id != only(rss("<title>a</title><description>c</description>")).id


def test_two_links_under_one_guid_are_two_documents_and_a_repeated_item_is_one() -> None:
    item = "<guid isPermaLink='false'>1</guid><title>a</title><link>https://example.org/{}</link>"
    feed = parse_feed(rss(item.format("a"), item.format("b"), item.format("a")), "")
    assert [document.url for document in feed.documents] == ["https://example.org/a", "https://example.org/b"]
    assert feed.documents[0].id == "1" != feed.documents[1].id


def test_a_feed_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    body = rss(
        "<title>a</title><link>https://example.org/a</link>",
        "<title>b</title><link>https://example.org/b</link>",
    )
    feed = parse_feed(body[: body.index(b"<title>b") + 9], "")
    assert feed.documents[0].title == "a"
    assert "not well-formed" in feed.problems[0]


NO_FEEDS = [
    b"",
    b"hello",
    b"<html><body>x</body></html>",
    b"{}",
    b'{"version": 1}',
    b'{"a":' * 100_000,
    b"{" * 100_000,
]


@pytest.mark.parametrize("body", NO_FEEDS)
def test_what_is_no_feed_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ValueError, match="it is "):
        parse_feed(body, "")


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (codecs.BOM_UTF16_LE + "ä".encode("utf-16-le"), "text/xml; charset=iso-8859-1", "ä"),
        ("ä".encode("cp1252"), "text/xml; charset=iso-8859-1", "ä"),
        (
            b"<?xml version='1.0' encoding='ascii'?>\xe4",
            "text/xml; charset=utf-8",
            "<?xml version='1.0' encoding='ascii'?>ä",
        ),
        ("ä".encode(), "text/xml; charset=ascii", "Ã¤"),
        ("ä".encode(), "text/xml; charset=zlib", "ä"),
        ("ä".encode(), "text/xml; charset=unknown-8bit", "ä"),
        (b"<?xml version='1.0' encoding='utf-16'?>\xc3\xa4", "", "<?xml version='1.0' encoding='utf-16'?>ä"),
        ("ä".encode("cp1252"), "", "\ufffd"),
    ],
)
def test_the_byte_order_mark_then_the_document_then_the_server_name_the_charset(
    body: bytes, content_type: str, text: str
) -> None:
    assert decode(body, content_type) == text


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "charset=gb18030", "charset=utf-7", "charset=punycode", "charset=hex"]),
)
def test_any_bytes_are_decoded(body: bytes, content_type: str) -> None:
    assert isinstance(decode(body, content_type), str)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>a &amp; b <b>c</b><script>x<y</script>d &lt;tag> 3 < 4<br/>e</p>", "a & b c d <tag> 3 < 4\ne"),
        ('<img alt="a > b" src=x>c<!-- d <p> -->e', "ce"),
        ("<td>a</td><td>b</td>", "a b"),
        ("&#" + "9" * 5_000 + ";x", "\ufffdx"),
        ("<img src='data:" + "a" * 5_000 + "'>after", "after"),
    ],
)
def test_html_becomes_plain_text(markup: str, text: str) -> None:
    assert plain_text(markup) == text


@given(st.text(alphabet="<>&#;!-/\"' abpx[]\n", max_size=120))
def test_no_markup_breaks_the_reader(markup: str) -> None:
    assert plain_text(markup) == "\n".join(
        filter(None, (" ".join(line.split()) for line in plain_text(markup).split("\n")))
    )


@pytest.mark.parametrize("piece", ["<a ", "<!--", "<![a", '<a "', "</p <p ", "<script>", "&#", "<"])
def test_hostile_markup_takes_linear_time(piece: str) -> None:
    begun = time.process_time()
    plain_text(piece * (200_000 // len(piece)))
    assert time.process_time() - begun < 2


@given(st.text(max_size=40))
def test_any_text_is_a_date_or_none(text: str) -> None:
    moment = parse_date(text)
    assert moment is None or moment.utcoffset() == timedelta(0)


# Searching


async def test_the_example_feed_answers_the_example_question() -> None:
    source = Rss(paths=[str(EXAMPLES / "news.xml")])
    await source.open()
    hits = await source.search(Query(text=QUESTION))
    assert hits[0].document.url == "https://example.org/news/five-books"
    assert "track(" not in hits[0].document.content
    assert hits[0].document.labels == ("books", "machine learning")
    hits = await source.search(Query(text="data beginners opening course Python catalogue Kurs statistical"))
    everything = {hit.document.id: hit.document for hit in hits}
    assert len(everything) == 8
    assert everything["shelf-1041"].url == "https://example.org/news/data-lab"
    assert everything["shelf-1041"].title == "Library opens a lab for data & chance"
    assert everything["shelf-1041"].updated_at == datetime(2026, 4, 2, 15, 5, tzinfo=UTC)
    assert everything["shelf-1038"].updated_at is None
    assert everything["shelf-1032"].updated_at == datetime(2026, 3, 16, 11, 41, 36, tzinfo=UTC)
    assert everything["shelf-1003"].updated_at is None
    assert everything["shelf-1027"].url == "https://example.org/news/python-mornings?from=feed&kind=course"
    assert source.problems == []
    await source.aclose()


async def test_equals_come_newest_first_and_undated_last_within_the_limit(
    server: Server, opened: Make
) -> None:
    item = "<title>zebra</title><guid isPermaLink='false'>{}</guid><pubDate>{}</pubDate>"
    dates = {
        "undated": "soon",
        "old": "Thu, 01 Jan 2026 00:00:00 GMT",
        "new": "Fri, 02 Jan 2026 00:00:00 GMT",
    }
    server.answers["/feed"] = rss(*(item.format(name, when) for name, when in dates.items()))
    source = await opened(server.url + "/feed")
    assert await ids(source) == ["new", "old", "undated"]
    assert await ids(source, limit=2) == ["new", "old"]
    assert await ids(source, limit=1, period=Period(end=date(2026, 1, 1))) == ["old"]
    assert await ids(source, filters={"kind": "book"}) == []


async def test_items_beyond_max_age_are_left_out_and_max_items_keeps_the_newest(
    server: Server, opened: Make
) -> None:
    item = (
        "<title>zebra</title><guid isPermaLink='false'>{}</guid><pubDate>{:%a, %d %b %Y %H:%M:%S}"
        " +0000</pubDate>"
    )
    ages = {"a": 1, "b": 30, "c": 100}
    now = datetime.now(UTC)
    server.answers["/feed"] = rss(
        *(item.format(name, now - timedelta(hours=age)) for name, age in ages.items())
    )
    assert await ids(await opened(server.url + "/feed", max_age_hours=48)) == ["a", "b"]
    assert await ids(await opened(server.url + "/feed")) == ["a", "b", "c"]
    assert await ids(await opened(server.url + "/feed", max_items=1)) == ["a"]


async def test_one_failing_feed_of_several_makes_the_answer_partial(server: Server, opened: Make) -> None:
    async def missing(_: web.Request) -> web.Response:
        return web.Response(status=404)

    server.answers = {"/good": ZEBRA, "/bad": missing}
    source = await opened(server.url + "/bad", server.url + "/good")
    hits = await source.search(Query(text="zebra"))
    assert isinstance(hits, Partial)
    assert [hit.document.url for hit in hits] == ["https://example.org/z"]
    assert "status 404" in hits.reason
    assert len(source.problems) == 1
    assert "status 404" in source.problems[0]


async def test_when_every_feed_fails_the_source_fails_and_says_why(
    server: Server, opened: Make, tmp_path: Path
) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>no feed</html>")

    server.answers["/page"] = page
    source = await opened(server.url + "/page", "http://127.0.0.1:1/", paths=[str(tmp_path / "none.xml")])
    with pytest.raises(SourceError, match=r"(?s)it is no feed.*could not be fetched.*cannot be read"):
        await source.search(Query(text="zebra"))


async def test_a_slow_feed_does_not_hold_up_the_others_beyond_the_deadline(
    server: Server, opened: Make
) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError("not reached")

    server.answers = {"/slow": silent, "/good": ZEBRA}
    source = await opened(server.url + "/slow", server.url + "/good")
    hits = await source.search(Query(text="zebra", deadline=time.monotonic() + 1.0))
    assert isinstance(hits, Partial)
    assert len(hits) == 1


async def test_items_are_kept_for_refresh_seconds_and_concurrent_questions_share_one_fetch(
    server: Server, opened: Make
) -> None:
    server.answers["/feed"] = ZEBRA
    kept = await opened(server.url + "/feed")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ids(kept)) for _ in range(5)]
    assert [len(task.result()) for task in tasks] == [1] * 5
    await ids(kept)
    assert len(server.paths) == 1
    fresh = await opened(server.url + "/feed", refresh_seconds=0)
    await ids(fresh)
    await ids(fresh)
    assert len(server.paths) == 3
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ids(fresh)) for _ in range(6)]
    assert len(server.paths) <= 5  # one for the first, one for all that asked while it ran


async def test_one_cancelled_question_does_not_fail_those_that_share_its_fetch(
    server: Server, opened: Make
) -> None:
    arrived, gate = asyncio.Event(), asyncio.Event()

    async def gated(_: web.Request) -> web.Response:
        arrived.set()
        await gate.wait()
        return web.Response(body=ZEBRA)

    server.answers["/feed"] = gated
    source = await opened(server.url + "/feed")
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(ids(source)), group.create_task(ids(source))
        await arrived.wait()
        first.cancel()
        gate.set()
    assert len(second.result()) == 1


async def test_a_feed_that_failed_is_not_asked_again_at_once(server: Server, opened: Make) -> None:
    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=500)

    server.answers["/feed"] = broken
    source = await opened(server.url + "/feed")
    for _ in range(2):
        with pytest.raises(SourceError, match="status 500"):
            await source.search(Query(text="zebra"))
    assert len(server.paths) == 1


async def test_a_feed_that_failed_is_asked_again_sooner_than_one_that_answered(
    server: Server, opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_polling, "RETRY_SECONDS", 0.0)
    server.answers["/feed"] = b"no feed"
    source = await opened(server.url + "/feed")
    with pytest.raises(SourceError, match="it is no feed"):
        await ids(source)
    server.answers["/feed"] = ZEBRA
    assert len(await ids(source)) == 1
    server.answers["/feed"] = b"no feed"
    assert len(await ids(source)) == 1


# Polling


async def test_an_unchanged_feed_is_not_sent_again(server: Server, opened: Make) -> None:
    asked: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("If-None-Match"))
        if asked[-1] == '"v1"':
            return web.Response(status=304)
        return web.Response(body=ZEBRA, headers={"ETag": '"v1"'}, content_type="application/rss+xml")

    server.answers["/feed"] = answer
    source = await opened(server.url + "/feed", refresh_seconds=0)
    assert [len(await ids(source)) for _ in range(3)] == [1, 1, 1]
    assert asked == [None, '"v1"', '"v1"']


async def test_a_feed_that_fails_keeps_its_items_and_backs_off(
    server: Server, opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure doubles the time until the next attempt."""

    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=500)

    server.answers["/feed"] = ZEBRA
    source = await opened(server.url + "/feed", refresh_seconds=0)
    await ids(source)
    server.answers["/feed"] = broken
    for pause in (10, 20, 40):
        before = time.monotonic()
        hits = await source.search(Query(text="zebra"))
        after = time.monotonic()
        assert isinstance(hits, Partial)
        assert len(hits) == 1
        assert "status 500" in hits.reason
        assert "Its items of 0 s ago are used" in hits.reason
        snapshot = source._polling.snapshots[server.url + "/feed"]
        assert before + pause <= snapshot.next_read <= after + pause
        source._polling.snapshots[server.url + "/feed"] = snapshot._replace(next_read=0.0)
    server.answers["/feed"] = ZEBRA
    assert not isinstance(await source.search(Query(text="zebra")), Partial)


@pytest.mark.parametrize(
    ("status", "headers", "pause"), [(429, {"Retry-After": "100"}, 100), (410, {}, 3600), (404, {}, 10)]
)
async def test_a_feed_says_how_long_it_wants_to_be_left_alone(
    server: Server, opened: Make, status: int, headers: dict[str, str], pause: int
) -> None:
    async def refusing(_: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers)

    server.answers["/feed"] = refusing
    source = await opened(server.url + "/feed")
    before = time.monotonic()
    with pytest.raises(SourceError, match=f"status {status}"):
        await ids(source)
    snapshot = source._polling.snapshots[server.url + "/feed"]
    assert before + pause <= snapshot.next_read <= time.monotonic() + pause


async def test_a_reading_goes_on_when_who_asked_has_no_more_time(server: Server, opened: Make) -> None:
    arrived, gate = asyncio.Event(), asyncio.Event()

    async def gated(_: web.Request) -> web.Response:
        arrived.set()
        await gate.wait()
        return web.Response(body=ZEBRA, content_type="application/rss+xml")

    server.answers["/feed"] = gated
    source = await opened(server.url + "/feed")
    with pytest.raises(SourceTimeout):
        await ids(source, deadline=time.monotonic() + 0.1)
    gate.set()
    assert len(await ids(source)) == 1
    assert len(server.paths) == 1


@pytest.mark.parametrize(
    "date", ["Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 01 Jan 2999 00:00:00 GMT", "1899-12-31T00:00:00Z"]
)
def test_an_absurd_date_is_no_date_and_is_said(date: str) -> None:
    feed = parse_feed(rss(f"<title>a</title><link>https://example.org/a</link><pubDate>{date}</pubDate>"), "")
    assert feed.documents[0].updated_at is None
    assert feed.documents[0].metadata["date"] == date
    assert "absurd" in feed.problems[0] or parse_date(date) is None


# Full text


async def test_the_pages_of_the_newest_items_are_read_and_stand_in_their_place(
    server: Server, opened: Make
) -> None:
    def page(text: str) -> Answer:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(
                text=f"<html><body><article><p>{text * 20}</p></article></body></html>",
                content_type="text/html",
            )

        return answer

    item = (
        "<title>zebra {0}</title><link>{1}/{0}</link><description>short</description><pubDate>0{2} Jan 2026"
        " 00:00 GMT</pubDate>"
    )
    pages = {"/a": page("All about the stripes. "), "/b": page("All about the mane. ")}
    server.answers = {
        "/feed": rss(*(item.format(n, server.url, day) for n, day in (("a", 3), ("b", 2), ("c", 1)))),
        **pages,
    }
    source = await opened(server.url + "/feed", full_text=1)
    hits = await source.search(Query(text="zebra stripes mane"))
    assert hits[0].document.content.startswith("All about the stripes.")
    assert hits[0].document.parent == server.url + "/a"
    assert (hits[0].document.title, hits[0].document.updated_at) == (
        "zebra a",
        datetime(2026, 1, 3, tzinfo=UTC),
    )
    assert [hit.document.content for hit in hits[1:]] == ["short", "short"]
    assert server.paths == ["/feed", "/a"]
    await ids(source)
    assert server.paths == ["/feed", "/a"]


async def test_a_page_that_cannot_be_read_leaves_its_item_as_the_feed_has_it(
    server: Server, opened: Make
) -> None:
    async def missing(_: web.Request) -> web.Response:
        return web.Response(status=404)

    server.answers = {"/feed": rss(f"<title>zebra</title><link>{server.url}/gone</link>"), "/gone": missing}
    source = await opened(server.url + "/feed", full_text=5)
    hits = await source.search(Query(text="zebra"))
    assert [hit.document.content for hit in hits] == ["zebra"]
    assert not isinstance(hits, Partial)
    assert "status 404" in source.problems[0]


async def test_items_are_used_while_their_pages_are_still_read(server: Server, opened: Make) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError("not reached")

    server.answers = {"/feed": rss(f"<title>zebra</title><link>{server.url}/slow</link>"), "/slow": silent}
    source = await opened(server.url + "/feed", full_text=1)
    hits = await source.search(Query(text="zebra", deadline=time.monotonic() + 2.0))
    assert isinstance(hits, Partial)
    assert len(hits) == 1
    assert "not all pages of its items" in hits.reason


# Fetching from strangers


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
async def test_private_addresses_are_refused_in_whatever_form(server: Server, opened: Make, url: str) -> None:
    server.answers["/"] = ZEBRA
    source = await opened(url.format(server.url.rpartition(":")[2]), allow_private=[])
    with pytest.raises(SourceError, match="could not be fetched"):
        await source.search(Query(text="zebra"))
    assert server.paths == []


@pytest.mark.case("WEB-08")
async def test_the_address_that_is_connected_to_is_the_one_that_is_checked(
    opened: Make, server: Server
) -> None:
    source = await opened(server.url + "/", allow_private=[])
    with pytest.raises(
        SourceError, match=r"127\.0\.0\.1 is not a public address; name its network in `allow_private`"
    ):
        await source.search(Query(text="zebra"))


async def test_redirects_are_followed_five_times_and_no_further(server: Server, opened: Make) -> None:
    async def hop(request: web.Request) -> web.Response:
        number = int(request.path[1:])
        return web.Response(status=302, headers={"Location": f"/{number - 1}" if number > 1 else "/feed"})

    server.answers = {f"/{n}": hop for n in range(1, 7)} | {"/feed": ZEBRA}
    assert len(await ids(await opened(server.url + "/5"))) == 1
    with pytest.raises(SourceError, match="redirects more than 5 times"):
        await ids(await opened(server.url + "/6"))


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://example.org/", "gopher://x/"])
async def test_a_redirect_to_anything_but_http_is_refused(server: Server, opened: Make, target: str) -> None:
    async def away(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": target})

    server.answers["/feed"] = away
    with pytest.raises(SourceError, match="is not http or https with a host"):
        await ids(await opened(server.url + "/feed"))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "bare"])
@pytest.mark.case("WEB-13")
async def test_a_compressed_body_is_read_and_a_bomb_is_cut_off(
    server: Server, opened: Make, encoding: str
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

    server.answers = {"/feed": serve(squeeze(ZEBRA)), "/bomb": serve(squeeze(ZEBRA + b" " * 30_000_000))}
    assert len(await ids(await opened(server.url + "/feed"))) == 1
    with pytest.raises(SourceError, match="longer than `max_bytes` = 1000"):
        await ids(await opened(server.url + "/bomb", max_bytes=1_000))


async def test_a_body_longer_than_max_bytes_is_refused_on_disk_too(
    server: Server, opened: Make, tmp_path: Path
) -> None:
    server.answers["/feed"] = ZEBRA
    (tmp_path / "feed.xml").write_bytes(ZEBRA)
    fetched = await opened(server.url + "/feed", max_bytes=50)
    for source in (fetched, await opened(paths=[str(tmp_path / "feed.xml")], max_bytes=50)):
        with pytest.raises(SourceError, match="max_bytes"):
            await ids(source)
    assert len(await ids(await opened(server.url + "/feed", max_bytes=len(ZEBRA)))) == 1


async def test_secrets_in_a_feeds_address_stay_out_of_messages(server: Server, opened: Make) -> None:
    async def missing(_: web.Request) -> web.Response:
        return web.Response(status=403)

    server.answers["/feed"] = missing
    with pytest.raises(SourceError) as caught:
        await ids(await opened(server.url + "/feed?api_key=abcdef123456"))
    assert "abcdef123456" not in str(caught.value)


async def test_the_user_agent_is_sent_and_cookies_are_not(server: Server, opened: Make) -> None:
    seen: list[tuple[str | None, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.headers.get("User-Agent"), request.headers.get("Cookie")))
        response = web.Response(body=ZEBRA)
        response.set_cookie("a", "b")
        return response

    server.answers["/feed"] = answer
    source = await opened(server.url + "/feed", user_agent="reader/1", refresh_seconds=0)
    await ids(source)
    await ids(source)
    assert seen == [("reader/1", None)] * 2


# Construction and lifecycle


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "no feed to read"),
        ({"urls": "https://example.org/"}, "give a list"),
        ({"urls": ["ftp://example.org/"]}, "is not http or https"),
        ({"urls": ["example.org/feed"]}, "is not http or https"),
        ({"paths": ["x"], "max_items": 0}, "max_items"),
        ({"paths": ["x"], "max_bytes": 0}, "max_bytes"),
        ({"paths": ["x"], "max_age_hours": -1}, "max_age_hours"),
        ({"paths": ["x"], "refresh_seconds": float("nan")}, "refresh_seconds"),
        ({"paths": ["x"], "user_agent": "a\r\nX: y"}, "user_agent"),
    ],
)
def test_values_that_make_no_sense_are_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rss(**keywords)  # type: ignore[arg-type]  # a wrong type on purpose


async def test_a_source_that_is_not_open_says_so() -> None:
    with pytest.raises(SourceError, match="not open"):
        await Rss.example().search(Query(text="zebra"))


def test_it_can_be_used_in_one_event_loop_after_another() -> None:
    source = Rss(
        urls=["http://127.0.0.1:1/"], paths=[str(EXAMPLES / "news.xml")], allow_private=["127.0.0.0/8"]
    )

    async def once() -> int:
        await source.open()
        await source.open()
        hits = await source.search(Query(text="beginners"))
        await source.aclose()
        await source.aclose()
        return len(hits)

    assert asyncio.run(once()) == asyncio.run(once()) == 3


def long_feed() -> bytes:
    about = "<pubDate>Tue, 03 Nov 2026 10:00:00 +0100</pubDate><category>a</category><category>b</category>"
    text = (
        "<description>&lt;p style='display:none'&gt;unseen&lt;/p&gt;"
        + "text and more " * 60
        + "</description>"
    )
    return rss(*(f"<title>n {n}</title><link>/{n}</link>{about}{text}" for n in range(400)))


async def test_a_long_feed_is_parsed_in_a_process_and_says_the_same():
    body = long_feed()
    assert len(body) > LONG_FEED
    extractor = Extractor(5)
    await extractor.open(pages=False)
    try:
        found = await extractor.feed(body, "https://example.org/feed", "application/rss+xml", 500, 60)
        with pytest.raises(ValueError, match="it declares entities"):
            await extractor.feed(b'<!DOCTYPE r [<!ENTITY a "b">]>' + body, "", "", 500, 60)
    finally:
        await extractor.aclose()
    assert found == parse_feed(body, "https://example.org/feed", "application/rss+xml")
    assert len(found.documents) == 400


async def test_a_feed_that_takes_too_long_to_parse_is_given_up_with_its_process(
    server: Server, opened, monkeypatch
):
    started: list[subprocess.Popen[bytes]] = []
    start = extract_module._Worker._start
    monkeypatch.setattr(
        extract_module._Worker, "_start", lambda worker: started.append(process := start(worker)) or process
    )
    server.answers["/hostile"] = rss("<title>a</title><description>" + "<" * 4_000_000 + "</description>")
    server.answers["/good"] = ZEBRA
    source = await opened(f"{server.url}/hostile", f"{server.url}/good", fetch_seconds=0.7)
    answer = await source.search(Query(text="zebra"))
    assert isinstance(answer, Partial)
    assert [hit.document.title for hit in answer] == ["zebra"]
    assert "/hostile" in answer.reason
    assert "0.7 seconds" in answer.reason
    assert [await asyncio.to_thread(process.wait, 5) for process in started] == [-signal.SIGKILL]
