"""RSS and Atom parser (0.9 to 2.0, RDF, JSON Feed): makes documents of the bytes of a feed."""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from contextrouter.builtin.connectors.markup import SNIPPET_CHARACTERS
from contextrouter.builtin.connectors.pages.charset import decode_page, header_charsets, xml_charsets
from contextrouter.builtin.connectors.pages.html_text import plain_text, visible_text
from contextrouter.model import Document

_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_DOCTYPE = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\[>"'])*(\[)?""")  # up to its internal subset, or its end
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LEFT_OUT = "cannot be made an http address; left out."
"""How the problem ends of an item that is not there because of its link."""
AHEAD = timedelta(days=366)
"""Dates before the one, or further ahead than the other, are mistakes: they say nothing, and would rank above
everything.
"""
_WEEKDAY = re.compile(r"^\s*[^\W\d]+\.?,?\s+(?=\d)")
_MONTHS = {
    "janv": "Jan",
    "ene": "Jan",
    "jän": "Jan",
    "gen": "Jan",
    "févr": "Feb",
    "fév": "Feb",
    "fev": "Feb",
    "mär": "Mar",
    "mrz": "Mar",
    "mars": "Mar",
    "mrt": "Mar",
    "avr": "Apr",
    "abr": "Apr",
    "mai": "May",
    "mag": "May",
    "mei": "May",
    "juin": "Jun",
    "giu": "Jun",
    "juil": "Jul",
    "lug": "Jul",
    "août": "Aug",
    "ago": "Aug",
    "sept": "Sep",
    "set": "Sep",
    "okt": "Oct",
    "ott": "Oct",
    "out": "Oct",
    "déc": "Dec",
    "dez": "Dec",
    "dic": "Dec",
}


class Feed(NamedTuple):
    """A feed's title, its items as documents in the feed's order, and what was wrong with it."""

    title: str
    documents: list[Document]
    problems: list[str]


class _Item(NamedTuple):
    """An item before it is a document: fields as the feed gave them, the text already plain."""

    guid: str
    link: str
    title: str
    text: str
    raw_date: str
    moment: datetime | None
    labels: tuple[str, ...]
    language: str | None
    hidden: int = 0  # characters of its text that no reader sees, taken out


def parse_feed(body: bytes, url: str, content_type: str = "", max_items: int = 500) -> Feed:
    """Parse a feed that came from `url`. Items that cannot be used are left out, with a reason in
    `.problems`.

    Raises ValueError when it is no feed at all, or declares entities.
    """
    text = decode_feed(body, content_type)
    if text.lstrip().startswith("{"):
        title, base, items, problems = _json_feed(text, url)
    else:
        refuse_entities(text)
        title, base, items, problems = _xml_feed(text, url)
    documents = (_document(item, base, title, problems) for item in items[:max_items])
    return Feed(title, _with_own_ids(document for document in documents if document), problems)


def _with_own_ids(documents: Iterable[Document]) -> list[Document]:
    """The items of one feed. Several titles under one address are several items: a feed of changes has them
    all on one page.
    """
    titles: dict[str, str] = {}
    items = []
    for document in documents:
        if titles.setdefault(document.id, document.title) != document.title:
            document = document.replace(id=_id_with(document.id, document.title))
        items.append(document)
    return distinct(items)


def distinct(documents: Iterable[Document]) -> list[Document]:
    """Drop what comes again, in this feed or another; two links under one id are two documents, and the
    second gets its own.
    """
    by_id: dict[str, Document] = {}
    for document in documents:
        if document.id in by_id and by_id[document.id].url != document.url:
            document = document.replace(id=_id_with(document.id, document.url))
        by_id.setdefault(document.id, document)
    return list(by_id.values())


def _id_with(id: str, text: str) -> str:
    return f"{id}#{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def decode_feed(body: bytes, content_type: str = "") -> str:
    """Return the text of a feed by its byte order mark or its declared charset, which a few broken bytes do
    not overrule.
    """
    return decode_page(body, [*xml_charsets(body), *header_charsets(content_type)])


def refuse_entities(text: str) -> None:
    """Raise ValueError when the document type declares entities, before any parser expands one.

    Only what stands before the root element can declare any; an article may write about them.
    """
    position = 0
    while (position := text.find("<", position)) >= 0:
        if text.startswith("<?", position):
            position = text.find("?>", position)
        elif text.startswith("<!--", position):
            position = text.find("-->", position)
        elif text.startswith("<!", position):
            subset = _DOCTYPE.match(text, position)
            assert subset is not None
            if subset.group(1) and re.search("<!ENTITY", text, re.I):
                raise ValueError("it declares entities, which feeds need not and attacks do; it is refused.")
            position = subset.end()
        else:
            return
        if position < 0:
            return


def _xml_feed(text: str, url: str) -> tuple[str, str, list[_Item], list[str]]:
    import feedparser

    clean = _CONTROLS.sub("", _DECLARATION.sub("", text, count=1))
    data = b'<?xml version="1.0" encoding="utf-8"?>' + clean.encode("utf-8", "replace")
    headers = {"content-type": "application/xml; charset=utf-8"}
    try:
        parsed = feedparser.parse(
            BytesIO(data), response_headers=headers, sanitize_html=False, resolve_relative_uris=False
        )
    except Exception as error:  # what hostile bytes make of the parser is this feed's failure alone
        raise ValueError(f"the parser failed on it ({type(error).__name__}: {error}).") from error
    if not parsed.get("version") and not parsed.entries:
        raise ValueError("it is no feed: neither RSS nor Atom nor JSON Feed.")
    problems = (
        [f"not well-formed ({parsed.get('bozo_exception')}); read as far as it goes."] if parsed.bozo else []
    )
    title, base = _plain(parsed.feed, "title"), _base(url, dict.get(parsed.feed, "link"))
    return title, base, [_xml_item(entry) for entry in parsed.entries], problems


def _xml_item(entry: dict[str, Any]) -> _Item:
    # dict.get: the parser's own get() answers for other keys, with a warning.
    def text(key: str) -> str:
        value = dict.get(entry, key)
        return value.strip() if isinstance(value, str) else ""

    contents = dict.get(entry, "content") or []
    markup = max((content.get("value") or "" for content in contents), key=len, default="") or text("summary")
    content, hidden = visible_text(markup)
    parsed = dict.get(entry, "updated_parsed") or dict.get(entry, "published_parsed")
    raw = text("updated") or text("published")
    tags = dict.get(entry, "tags") or []
    return _Item(
        guid=text("id"),
        link=text("link"),
        title=_plain(entry, "title"),
        text=content,
        hidden=hidden,
        raw_date=raw,
        moment=_join_parts(parsed) or parse_date(raw),
        language=None,
        labels=tuple(dict.fromkeys(str(tag.get("term")) for tag in tags if tag.get("term"))),
    )


def _plain(entry: dict[str, Any], key: str) -> str:
    """A title as plain text: markup is taken out only where the feed's type says there is some."""
    value = dict.get(entry, key) or ""
    detail = dict.get(entry, f"{key}_detail") or {}
    return plain_text(value) if "html" in str(detail.get("type")) else " ".join(str(value).split())


def _json_feed(text: str, url: str) -> tuple[str, str, list[_Item], list[str]]:
    try:
        feed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error}).") from None
    version = str(feed.get("version", "")) if isinstance(feed, dict) else ""
    if not version.startswith("https://jsonfeed.org/version/"):
        raise ValueError("it is JSON, but no JSON Feed: its `version` does not say so.")
    entries = feed.get("items")
    entries = entries if isinstance(entries, list) else []
    items = [_json_item(item) for item in entries if isinstance(item, dict)]
    return _first_text(feed, "title"), _base(url, feed.get("home_page_url")), items, []


def _first_text(item: Mapping[str, Any], *keys: str) -> str:
    """The first of `keys` that holds a text; a number counts as one, as in ids."""
    for key in keys:
        value = item.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _json_item(item: Mapping[str, Any]) -> _Item:
    raw, tags = _first_text(item, "date_modified", "date_published"), item.get("tags")
    content, hidden = visible_text(_first_text(item, "content_html"))
    return _Item(
        guid=_first_text(item, "id"),
        link=_first_text(item, "url", "external_url"),
        title=_first_text(item, "title"),
        text=content or _first_text(item, "content_text", "summary"),
        hidden=hidden,
        raw_date=raw,
        moment=parse_date(raw),
        labels=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        language=_first_text(item, "language") or None,
    )


def _base(url: str, link: object) -> str:
    """What relative links of a feed are relative to: the site it names, else its own address."""
    try:
        site = urljoin(url, link) if isinstance(link, str) else ""
    except ValueError:
        site = ""
    return site if site.startswith(("http://", "https://")) else url


def _document(item: _Item, base: str, feed_title: str, problems: list[str]) -> Document | None:
    link = _http_address(item, base)
    if item.link and not link:
        problems.append(f"item {item.title or item.guid!r}: link {item.link!r} {LEFT_OUT}")
        return None
    content = item.text or item.title
    if not content:
        problems.append(f"item {item.guid or item.link!r}: has neither a title nor a text; left out.")
        return None
    moment = item.moment
    if moment is not None and not EARLIEST < moment < datetime.now(UTC) + AHEAD:
        problems.append(
            f"item {item.title or item.guid!r}: its date {item.raw_date!r} is absurd; it counts as undated."
        )
        moment = None
    metadata: dict[str, Any] = {"feed": feed_title} if feed_title else {}
    if item.hidden:
        metadata["hidden_characters"] = item.hidden
    if item.raw_date:
        metadata["date"] = item.raw_date
    return Document(
        content=content,
        id=item.guid or link or sha256(f"{item.title}\0{content}".encode("utf-8", "replace")).hexdigest(),
        url=link,
        title=item.title,
        kind="web",
        snippet=content[:SNIPPET_CHARACTERS],
        updated_at=moment,
        labels=item.labels,
        language=item.language,
        metadata=metadata,
        untrusted=True,
    )


def _http_address(item: _Item, base: str) -> str:
    """The address of an item: its link, else its id, whichever is one first; "" for neither."""
    if not item.link:
        return item.guid if _is_http(item.guid) else ""
    try:
        link = urljoin(base, item.link)
    except ValueError:
        link = ""
    return next(filter(_is_http, (link, item.guid)), "")


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _join_parts(parts: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(calendar.timegm(parts), UTC) if parts else None
    except (ValueError, OverflowError, OSError, TypeError):
        return None


def parse_date(text: str) -> datetime | None:
    """Return an ISO or RFC 822 date as an aware instant in UTC, also with a weekday or month in another
    language; else None.
    """
    if not text or len(text) > 100:
        return None
    plain = _WEEKDAY.sub("", text.strip())
    plain = re.sub(
        r"[^\W\d_]+\.?", lambda word: _MONTHS.get(word.group().lower().rstrip("."), word.group()), plain
    )
    for candidate, parse in ((text.strip(), datetime.fromisoformat), (plain, parsedate_to_datetime)):
        try:
            moment = parse(candidate)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None
