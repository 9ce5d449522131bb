"""The extraction process itself: a page or a feed in, its text out. It may be killed at any time.

`extraction.py` starts it as a script of its own, so that it holds nothing but what it needs: no settings, no
secrets. Messages on stdin and stdout are JSON after four bytes of length.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import signal
import struct
import sys
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urljoin, urlsplit

MEMORY = 2_000_000_000
"""Bytes of address space of this process."""
MOST_LINKS = 2_000
MOST_CHARACTERS = 2_000_000
ENOUGH = 0.95
"""The stricter of two extractions is taken unless it is shorter than this share of the other."""
TELLING = 25
"""Characters that an extraction must have to be one."""
LINKED = 0.6
"""A text of which more than this share are links is a list of other pages."""

# Where these are hidden, a script shows them to the reader.
_SEEN_LATER = ("html", "head", "body", "main", "article")
_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")


def extract_page(html: str, url: str) -> dict[str, Any]:
    """What a page says: title, text (Markdown), date, author, site, description, language; `how` it was got,
    and its links.

    `hidden` counts the characters that no reader of the page sees, which were taken out. An empty text has a
    `why`.
    """
    import trafilatura

    from contextrouter.builtin.connectors.pages.code_blocks import CodeBlocks
    from contextrouter.builtin.connectors.pages.page_signs import reason_unreadable

    tree = trafilatura.load_html(_DECLARATION.sub("", html, count=1)) if html.strip() else None
    if tree is None:
        return {"text": "", "why": "it holds no HTML."}
    hidden = _remove_hidden(tree)
    page: dict[str, Any] = {"hidden": hidden, "links": _links(tree, url)}
    page |= _metadata(tree, url) | _wiki_title(tree)
    codes = CodeBlocks(tree, html)
    strict, loose = _run(tree, favor_precision=True), _run(tree)
    text, how = (strict, "strict") if len(strict) >= ENOUGH * len(loose) else (loose, "loose")
    if len(text) < TELLING:
        text, how = _run(tree, favor_recall=True), "recall"
    if len(text) < TELLING:
        text, how = trafilatura.baseline(deepcopy(tree))[1] or "", "baseline"
    if len(text) < TELLING:
        text, how = page["description"] or page["title"], "description"
    if reason := reason_unreadable(tree, text):
        return {**page, "text": "", "why": reason}
    text = codes.restore(text)
    reason = "" if text else "no text was found in it."
    linked = _link_share(tree, how == "strict") if text else 0.0
    return {**page, "text": text[:MOST_CHARACTERS], "how": how, "why": reason, "linked": linked}


def read_feed(job: dict[str, Any]) -> dict[str, Any]:
    """The title, documents and problems of a feed; or `why` it is none."""
    import msgspec

    from contextrouter.builtin.connectors.pages.feed_parser import parse_feed

    try:
        feed = parse_feed(base64.b64decode(job["feed"]), job["url"], job["type"], job["items"])
    except ValueError as error:
        return {"why": str(error)}
    return {"feed": msgspec.to_builtins(feed)}


def _run(tree: Any, **options: Any) -> str:
    """One extraction as Markdown, without comments; empty when there is none."""
    import trafilatura

    with suppress(Exception):  # whatever a page makes of it: there are other ways to read it
        options |= {"include_comments": False, "output_format": "markdown"}
        return trafilatura.extract(deepcopy(tree), **options) or ""
    return ""


def _metadata(tree: Any, url: str) -> dict[str, Any]:
    """Title, author, date, site and description, from the page's own data where it has some, else from its
    head.
    """
    import trafilatura

    head = _head(tree, url)
    with suppress(Exception):
        page_data = trafilatura.extract_metadata(deepcopy(tree), default_url=url or None)
        values = {
            "title": page_data.title,
            "author": page_data.author,
            "date": page_data.date,
            "site": page_data.sitename,
            "description": page_data.description,
        }
        return {
            **head,
            **{name: " ".join(str(value).split())[:2_000] for name, value in values.items() if value},
        }
    return head


def _wiki_title(tree: Any) -> dict[str, str]:
    """The title of a page that Confluence exported, without the name of its space."""
    titles, crumbs = tree.xpath("//*[@id='title-text']"), tree.xpath("//ol[@id='breadcrumbs']//a")
    if not titles or not crumbs:
        return {}
    title, space = (" ".join("".join(element.itertext()).split()) for element in (titles[0], crumbs[0]))
    return {"title": title.removeprefix(f"{space} : "), "site": space}


def _link_share(tree: Any, strict: bool) -> float:
    """The share of links in the text that was extracted."""
    import trafilatura

    with suppress(Exception):
        document: Any = trafilatura.bare_extraction(
            deepcopy(tree), include_comments=False, include_links=True, favor_precision=strict
        )
        length = len("".join(document.body.itertext()))
        linked = sum(len("".join(link.itertext())) for link in document.body.iter("ref"))
        return linked / length if length else 0.0
    return 0.0


def _remove_hidden(tree: Any) -> int:
    """Take out what the page hides from its readers; return how many characters that was."""
    from contextrouter.builtin.connectors.pages.hidden_text import invisible

    total = len("".join(tree.itertext())) or 1
    removed_characters = 0
    for element in tree.xpath("//*[@style or @hidden or self::template]"):
        if element.tag in _SEEN_LATER or element.getparent() is None:
            continue
        is_hidden = element.tag == "template" or element.get("hidden") is not None
        if is_hidden or invisible(element.get("style", "")):
            size = len("".join(element.itertext()).strip())
            if size * 2 > total:
                continue  # most of the page: shown by a script
            removed_characters += size
            element.drop_tree()
    return removed_characters


def _head(tree: Any, url: str) -> dict[str, Any]:
    """What the head says for a page whose text cannot be had, and whether robots may index it and follow its
    links.
    """
    metas = {
        (m.get("name") or m.get("property") or "").lower(): m.get("content") or ""
        for m in tree.xpath("//meta[@content]")
    }
    titles = tree.xpath("//title")
    robots = metas.get("robots", "").lower()
    language = (tree.get("lang") or metas.get("language") or metas.get("og:locale") or "").strip()
    return {
        "title": " ".join((titles[0].text_content() if titles else "").split())[:500],
        "description": " ".join((metas.get("description") or metas.get("og:description") or "").split()),
        "language": re.split(r"[-_]", language)[0].lower()[:8],
        "noindex": "noindex" in robots or "none" in robots,
        "nofollow": "nofollow" in robots or "none" in robots,
        "canonical": _canonical(tree, url),
        **dict.fromkeys(("author", "date", "site"), ""),
    }


def _canonical(tree: Any, url: str) -> str:
    """The address that the page gives as its own: of its own host, and not that of the start page, which some
    sites give for all of theirs.
    """
    for link in tree.xpath("//link[@rel and @href]"):
        if "canonical" not in link.get("rel").lower().split():
            continue
        with suppress(ValueError):
            canonical = urljoin(url, link.get("href").strip()).partition("#")[0]
            address, target = urlsplit(url), urlsplit(canonical)
            is_here = target.scheme in ("http", "https") and target.netloc.lower() == address.netloc.lower()
            is_page = target.path not in ("", "/") or address.path in ("", "/")
            return canonical if is_here and is_page else ""
    return ""


def _links(tree: Any, url: str) -> list[str]:
    """Addresses that the page leads to, absolute, without fragments, in order."""
    base = next(iter(tree.xpath("//base/@href")), "")
    links: dict[str, None] = {}
    for link in tree.xpath("//a[@href]"):
        if "nofollow" in (link.get("rel") or ""):
            continue
        with suppress(ValueError):
            absolute = urljoin(urljoin(url, base), link.get("href").strip()).partition("#")[0]
            if absolute.startswith("https://www.google.com/url?"):  # as documents exported from Google have
                absolute = next(iter(parse_qs(urlsplit(absolute).query).get("q", [])), absolute)
            if urlsplit(absolute).scheme in ("http", "https"):
                links[absolute] = None
        if len(links) >= MOST_LINKS:
            break
    return list(links)


def receive(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one message; None at the end."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    body = stream.read(struct.unpack(">I", head)[0])
    message: dict[str, Any] = json.loads(body)
    return message


def send(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write one message."""
    body = json.dumps(message).encode()
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def main() -> None:
    """Answer messages until there are no more."""
    with suppress(ImportError, ValueError, OSError):  # where there is no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    sys.path.append(str(Path(__file__).parents[4]))  # this package, wherever it is
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints is no answer
    while (job := receive(sys.stdin.buffer)) is not None:
        if hasattr(signal, "alarm"):
            signal.alarm(int(job["seconds"]) + 2)  # ends this process also when who started it is gone
        try:
            answer = read_feed(job) if "feed" in job else extract_page(job["html"], job["url"])
        except (Exception, MemoryError) as error:
            reason = f"the parser failed on it ({type(error).__name__}: {str(error)[:200]})."
            answer = {"text": "", "why": reason}
        if hasattr(signal, "alarm"):
            signal.alarm(0)
        send(answers, answer)


if __name__ == "__main__":
    main()
