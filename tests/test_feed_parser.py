"""The feed parser: RSS, Atom, RDF and JSON Feed, their dates, links, charsets and broken markup."""

from __future__ import annotations

import codecs
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.feeds import only, rss

from contextrouter.builtin.connectors.pages.feed_parser import decode_feed, parse_date, parse_feed
from contextrouter.builtin.connectors.pages.html_text import plain_text


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
    assert decode_feed(body, content_type) == text


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "charset=gb18030", "charset=utf-7", "charset=punycode", "charset=hex"]),
)
def test_any_bytes_are_decoded(body: bytes, content_type: str) -> None:
    assert isinstance(decode_feed(body, content_type), str)


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


@pytest.mark.parametrize(
    "date", ["Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 01 Jan 2999 00:00:00 GMT", "1899-12-31T00:00:00Z"]
)
def test_an_absurd_date_is_no_date_and_is_said(date: str) -> None:
    feed = parse_feed(rss(f"<title>a</title><link>https://example.org/a</link><pubDate>{date}</pubDate>"), "")
    assert feed.documents[0].updated_at is None
    assert feed.documents[0].metadata["date"] == date
    assert "absurd" in feed.problems[0] or parse_date(date) is None
