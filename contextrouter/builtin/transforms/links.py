"""Link extraction: finds the documents and addresses that a document links to."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urljoin, urlsplit

from contextrouter.contracts import Transform
from contextrouter.model import Document

_TARGET = r"<([^<>\n]{1,2000})>|([^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,2000})?)"
_INLINE = re.compile(rf"\]\(\s{{0,9}}(?:{_TARGET})")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]{1,200}\]:[ \t]{0,9}(?:<([^<>\n]{1,2000})>|(\S{1,2000}))", re.M)
_WIKI = re.compile(r"\[\[([^\[\]|#\n]{1,200})(?:[#|][^\[\]\n]{0,200})?\]\]")
_HTML = re.compile(r"""<a\s[^<>]{0,500}?href\s{0,9}=\s{0,9}(?:"([^"<>]{1,2000})"|'([^'<>]{1,2000})')""", re.I)
_RST = re.compile(r"`[^`<\n]{0,200}<([^`<>\n]{1,2000})>`_")
_ADDRESS = re.compile(r"""https?://[^\s<>"'`\\^{}|]{1,2000}""")
_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1[^\n]*$|\Z)|`[^`\n]+`", re.M | re.S)
_PATTERNS = {"text/x-rst": [_RST], "text/html": [_HTML]}
_MARKDOWN = ("text/markdown", "text/x-markdown")
_ENDS = ".,;:!?)]}'\"*_"


class Links(Transform):
    """Adds the links of a text to `links`, in their order.

    It reads Markdown, HTML, reStructuredText and [[wiki]] links, and plain addresses. It resolves relative
    links against the document's `url`: a link from `guide/a.md` to `../b.md#part` is the document `b.md`, and
    [[Name]] is `Name.md` in the same folder. It leaves out parts after `#`, links to the document itself,
    links in code, and addresses that are no page (`mailto:`, `javascript:`, `data:`). With `external = false`
    it also leaves out addresses of other hosts. It takes at most `limit` links.
    """

    def __init__(self, *, external: bool = True, limit: int = 500) -> None:
        if limit < 1:
            raise ValueError(f"limit {limit!r} is too small. Give 1 or more.")
        self.external, self.limit = external, limit

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its links. Existing links come first."""
        links = dict.fromkeys(document.links)
        for target in _targets(document):
            if len(links) >= self.limit:
                break
            link = resolve(target, document.url)
            if link and (self.external or _is_same_host(link, document.url)):
                links.setdefault(link)
        return [document if len(links) == len(document.links) else document.replace(links=tuple(links))]


def _targets(document: Document) -> Iterator[str]:
    """Yield the targets of links as written, in the order of the text."""
    text = document.content
    if not any(mark in text for mark in ("](", "]:", "[[", "://", "href", ">`_")):
        return
    media_type = document.media_type.partition(";")[0].strip().lower()
    if media_type in _MARKDOWN:
        text = _CODE.sub(lambda code: " " * len(code[0]), text)
    patterns = (
        [_INLINE, _REFERENCE, _WIKI, _HTML] if media_type in _MARKDOWN else _PATTERNS.get(media_type, [])
    )
    matches = [
        (match.start(), match) for pattern in (*patterns, _ADDRESS) for match in pattern.finditer(text)
    ]
    for _, match in sorted(matches, key=lambda pair: pair[0]):
        target = next((group for group in match.groups() if group), match[0] if match.re is _ADDRESS else "")
        if match.re is _WIKI:
            name = target.strip()
            yield name if posixpath.splitext(name)[1] else f"{name}.md"
        elif match.re is _ADDRESS:
            yield _trim(target)
        else:
            yield target.strip()


def _trim(address: str) -> str:
    """Return a plain address without punctuation at its end. A bracket that it opens belongs to it."""
    while (
        address
        and address[-1] in _ENDS
        and not (address[-1] == ")" and address.count("(") >= address.count(")"))
    ):
        address = address[:-1]
    return address


def resolve(target: str, base: str) -> str:
    """Return the id or address of a link in the document at `base`.

    Return "" if it is no link to a page, or a link to that document itself.
    """
    try:
        parts = urlsplit(target)
        if parts.scheme not in ("", "http", "https") or (
            not parts.scheme and not parts.path and not parts.netloc
        ):
            return ""
        if parts.scheme or parts.netloc or "://" in base:
            link = urljoin(base, target).partition("#")[0]
            return link if "://" in link and link != base.partition("#")[0] else ""
    except ValueError:  # no address at all, such as http://[
        return ""
    link = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(parts.path))).lstrip("/")
    return "" if link == base or link.startswith("..") or link in ("", ".") else link


def _is_same_host(link: str, base: str) -> bool:
    return "://" not in link or ("://" in base and urlsplit(link).netloc == urlsplit(base).netloc)
