"""HTML tables of results, which notebooks show in place of a `repr`. Every text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from contextrouter.text.prompt_injection import clean, clean_line

LONGEST_CELL = 200
_WEB = re.compile(r"https?://", re.IGNORECASE)


def escape(text: str) -> str:
    """Return a text as HTML."""
    from html import escape  # not at the top: few programs are notebooks, and it has all names of characters

    return escape(text)


def paragraph(text: str) -> str:
    """Return a text as a paragraph, without characters that hide others."""
    return f"<p>{escape(clean(text)[0])}</p>"


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. The cells of `rows` are HTML, as `text_cell` and `link_cell` make it."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<table><caption>{text_cell(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def text_cell(text: str) -> str:
    """Return the beginning of a text as HTML, in one line and without characters that hide others."""
    line = clean_line(text)
    return escape(line if len(line) <= LONGEST_CELL else line[:LONGEST_CELL] + " …")


def link_cell(text: str, url: str) -> str:
    """Return a text that leads to an address of the web; one of another kind is no link."""
    if not _WEB.match(url):
        return text_cell(text or url)
    return f'<a href="{escape(url)}" rel="noopener noreferrer nofollow">{text_cell(text or url)}</a>'
