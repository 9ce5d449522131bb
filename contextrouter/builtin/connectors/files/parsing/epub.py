"""EPUB books to Markdown: the chapters in their reading order, with their headings."""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import unquote

from contextrouter.builtin.connectors.files.parsing.markups.html_elements import html_markdown
from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.office_files.packages import Package
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable
from contextrouter.builtin.connectors.pages.charset import page_text

_DC = "{http://purl.org/dc/elements/1.1/}"
_OPF = "{http://www.idpf.org/2007/opf}"
_ENCRYPTION = "META-INF/encryption.xml"
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"


def read_epub(data: bytes) -> Parsed:
    """The chapters of a book. A chapter that cannot be read is named. Raises Unreadable when none can."""
    package = Package(data)
    rootfile = next(package.xml("META-INF/container.xml").iter(_CONTAINER + "rootfile"), None)
    if rootfile is None:
        raise Unreadable("is broken: its container names no book.")
    opf = rootfile.get("full-path", "")
    book = package.xml(opf)
    chapters: list[str] = []
    links: dict[str, None] = {}
    problems: list[str] = []
    protected = _encrypted(package)
    spine = _spine(book, posixpath.dirname(opf))
    if hidden := sum(name in protected for name in spine):
        problems.append(f"{hidden} of {len(spine)} chapters are encrypted and were left out.")
    for name in (name for name in spine if name not in protected):
        try:
            text, addresses = html_markdown(page_text(package.read(name), ""))
        except Exception as error:  # the others are read
            problems.append(f"chapter {name!r} cannot be read ({error}).")
            continue
        links.update(dict.fromkeys(link for link in addresses if "://" in link))
        chapters += [text] if text else []
    if not chapters:
        raise Unreadable("is encrypted." if hidden else "holds no text in its chapters.")
    author, date = _first(book, "creator"), _first(book, "date")
    return Parsed(
        text="\n\n".join(chapters),
        media_type=MARKDOWN,
        title=_first(book, "title"),
        language=_first(book, "language").partition("-")[0].lower(),
        date=date,
        links=list(links),
        metadata={"author": author} if author else {},
        problems=problems,
    )


def _encrypted(package: Package) -> set[str]:
    """The names of the parts that are encrypted; often these are fonts alone."""
    if _ENCRYPTION not in package.names:
        return set()
    references = package.xml(_ENCRYPTION).iter("{http://www.w3.org/2001/04/xmlenc#}CipherReference")
    return {unquote(reference.get("URI", "")) for reference in references}


def _spine(book: Any, folder: str) -> list[str]:
    """The names of the parts in reading order, without the table of contents."""
    items = {item.get("id"): item for item in book.iter(_OPF + "item")}
    names = []
    for reference in book.iter(_OPF + "itemref"):
        item = items.get(reference.get("idref"))
        if item is not None and "nav" not in (item.get("properties") or "").split():
            names.append(posixpath.normpath(posixpath.join(folder, unquote(item.get("href", "")))))
    return names


def _first(book: Any, name: str) -> str:
    for element in book.iter(_DC + name):
        if text := " ".join("".join(element.itertext()).split()):
            return text
    return ""
