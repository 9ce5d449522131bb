"""Citations (step 10): what `[n]` stands for, where it opens, and the heading of its block.

A citation can be followed: it has the address or the file that opens, the headings above the piece, and the
page, line or moment at which it begins. Where two documents would have one heading, their names stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from contextrouter.model import Citation, Document, Envelope
from contextrouter.pipeline.connection_titles import Origin, source_of
from contextrouter.pipeline.neighbour_merging import further_pages
from contextrouter.text.analysis import analyse
from contextrouter.text.prompt_injection import clean, clean_line

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # one letter alone is a drive
_RUNS = re.compile(r"(?:javascript|vbscript|data|blob):", re.IGNORECASE)
"""The beginnings of addresses that browsers run, or show as a page of their own."""
_UNSEEN = re.compile(r"[\x00-\x20\x7f]+")  # browsers pass over these in an address
_WEB = ("https://", "http://")
_PDF = "application/pdf"


def make_citation(number: int, envelope: Envelope, origin: Origin, question: str = "") -> Citation:
    """Return the citation of a document, at the page of it that has most words of the question. What
    strangers wrote has no invisible characters in it.
    """
    document = visible_document(envelope.document)
    metadata = document.metadata
    seconds = metadata.get("start_seconds")
    page = _page_of(document, question)
    return Citation(
        number=number,
        title=title_of(document),
        url=_url_that_opens(document, origin.file, page),
        source=source_of(envelope),
        job=document.job or origin.job,
        path=_headings(document),
        page=page,
        line=_whole(metadata.get("line")),
        seconds=float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 1e7 else None,
        file=origin.file,
    )


def heading_of(citation: Citation, connection: str, document: Document, name: str) -> str:
    """Return the first line of a block: number, title, connection, compartment; the page or moment, and the
    name of the document where others are called the same.
    """
    is_line = citation.page is None and citation.seconds is None  # no use to a model
    position = "" if is_line else citation.place
    heading = f"### [{citation.number}] {citation.title}"
    for part in (connection, document.compartment, name, position):
        if part:
            heading += f" — {clean_line(part)}"
    return heading


def names_apart(envelopes: Sequence[Envelope], origin: Callable[[Envelope], Origin]) -> Mapping[str, str]:
    """Return the names of the documents that share title and connection with another one, by their ids."""
    names: dict[tuple[str, str, str | None], dict[str, str]] = {}
    titles = [title_of(envelope.document) for envelope in envelopes]
    if len({*titles}) == len(titles):
        return {}
    for envelope, title in zip(envelopes, titles, strict=True):
        document = envelope.document
        key = (title, origin(envelope).title, document.compartment)
        id = identity_of(document)
        names.setdefault(key, {})[id] = document.url if _ADDRESS.match(document.url) else id
    return {id: name for group in names.values() if len(group) > 1 for id, name in group.items()}


def identity_of(document: Document) -> str:
    """Return what tells a document from others: its id, that of its parent, or its address."""
    return document.parent or document.id or document.url


def title_of(document: Document) -> str:
    """Return the title of a document in one line, or what else names it."""
    return one_line(document.title) or one_line(document.url) or one_line(document.id) or "untitled"


def visible_document(document: Document) -> Document:
    """Return a document without characters that no reader sees, where strangers wrote it."""
    if not document.untrusted:
        return document
    parts = {name: clean(getattr(document, name))[0] for name in ("title", "url", "id", "content")}
    return document.replace(**parts, path=tuple([clean(part)[0] for part in document.path]))


def _page_of(document: Document, question: str) -> int | None:
    """Return the page of a piece that has most words of the question, the first of equals."""
    metadata = document.metadata
    page = _whole(metadata.get("page"))
    if page is None or not (pages := further_pages(document)):
        return page
    numbers, cuts = [page, *[number for number, _ in pages]], [0, *[begin for _, begin in pages]]
    words = {*analyse(question)} - {""}
    texts = [document.content[begin:end] for begin, end in pairwise([*cuts, len(document.content)])]
    counts = [len(words.intersection(analyse(text))) for text in texts]
    return numbers[counts.index(max(counts))]


def _headings(document: Document) -> tuple[str, ...]:
    """Return the headings of a document below its title."""
    if not document.path:
        return ()
    headings = tuple([one_line(part) for part in document.path])
    return headings[1:] if headings[0] == title_of(document) else headings


def _url_that_opens(document: Document, file: str, page: int | None) -> str:
    """Return the address of a document. One that would run a program is none, and where a document comes
    from a file, a `file:` address of its own leads nowhere else.
    """
    url = document.url
    if not file and not page and url.startswith(_WEB):  # as of most documents: there is nothing to change
        return url
    bare = _UNSEEN.sub("", url[:1000])
    if _RUNS.match(bare) or (file and bare[:5].lower() == "file:"):
        url = ""
    if not file and not page:
        return url
    if not _ADDRESS.match(url):
        if not file:
            return url
        from pathlib import Path  # takes milliseconds to load, and few answers need it

        url = Path(file).as_uri()
    is_pdf = document.media_type == _PDF or url.lower().endswith(".pdf")
    return f"{url}#page={page}" if page and is_pdf and "#" not in url else url


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def one_line(text: str) -> str:
    """Return a text with a space in place of each white space."""
    return " ".join(text.split())
