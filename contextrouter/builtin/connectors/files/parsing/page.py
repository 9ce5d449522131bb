"""HTML files and feed files to Markdown, by the readers of web pages and of feeds."""

from __future__ import annotations

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable, markdown_line
from contextrouter.builtin.connectors.pages.charset import page_text
from contextrouter.builtin.connectors.pages.extraction_worker import extract_page
from contextrouter.builtin.connectors.pages.feed_parser import parse_feed


def read_html(data: bytes) -> Parsed:
    """What a reader of a page sees of its main text, as Markdown. Raises Unreadable when there is none."""
    html = page_text(data, "")
    page = extract_page(html, "")
    if not page["text"] and html.strip():
        page = extract_page(f"<html><body>{html}</body></html>", "")  # a part of a page
    if not page["text"]:
        raise Unreadable(page["why"])
    metadata = {name: page[name] for name in ("author", "site", "description", "date") if page[name]}
    return Parsed(
        text=page["text"],
        media_type=MARKDOWN,
        title=page["title"],
        language=page["language"],
        links=page["links"],
        metadata=metadata,
    )


def read_feed(data: bytes) -> Parsed:
    """The items of a feed, a heading each. Raises Unreadable when it is none, or has none."""
    try:
        feed = parse_feed(data, "")
    except ValueError as error:
        raise Unreadable(str(error)) from None
    blocks = [f"# {feed.title}"] if feed.title else []
    for item in feed.documents:
        blocks += [f"## {' '.join(item.title.split())}", *map(markdown_line, item.content.splitlines())]
    if not feed.documents:
        raise Unreadable(feed.problems[0] if feed.problems else "is a feed without items.")
    links = [item.url for item in feed.documents if item.url]
    return Parsed(
        text="\n\n".join(filter(None, blocks)),
        media_type=MARKDOWN,
        title=feed.title,
        links=links,
        problems=feed.problems,
    )
