"""HTML elements to Markdown, whole: for chapters, mails and notes, whose every word belongs to the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contextrouter.builtin.connectors.files.parsing.parsed import markdown_line, markdown_table, one_heading
from contextrouter.builtin.connectors.markup import code_fence

_SKIPPED = frozenset("script style head template noscript iframe svg object nav".split())
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details div dl dt fieldset figcaption figure footer form"
    " header hr html li main ol p pre section summary table tbody td th thead tr ul".split()
).union(_HEADINGS)
_DEEPEST = 200


def html_markdown(html: str) -> tuple[str, list[str]]:
    """The text of a page or a part of one as Markdown, and the addresses of its links."""
    from lxml import html as parser

    if not html.strip():
        return "", []
    root = parser.document_fromstring(html.encode(), parser=parser.HTMLParser(encoding="utf-8"))
    links = dict.fromkeys(a.get("href") for a in root.iter("a") if a.get("href", "#")[0] != "#")
    return "\n\n".join(element_blocks(root)), list(links)


def element_blocks(element: Any, depth: int = 0) -> Iterator[str]:
    """Yield the blocks below an element, and its own text."""
    words: list[str] = [element.text or ""]
    for child in element:
        name = _tag_name(child)
        if name == "br":
            words.append("\n")
        elif name and name not in _SKIPPED:
            if name in _BLOCKS or any(_tag_name(inner) in _BLOCKS for inner in child.iterdescendants()):
                yield from _paragraphs(words)
                words = []
                yield from _block(name, child, depth + 1)
            else:
                words.append(_inline(child))
        words.append(child.tail or "")
    yield from _paragraphs(words)


def _paragraphs(words: list[str]) -> Iterator[str]:
    line = markdown_line("".join(words))
    if line:
        yield line


def _tag_name(element: Any) -> str:
    """The name of an element without its namespace; "" for comments."""
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def _inline(element: Any) -> str:
    if _tag_name(element) == "img":
        return element.get("alt") or ""
    words = [element.text or ""]
    for child in element:
        if _tag_name(child) and _tag_name(child) not in _SKIPPED:
            words.append(_inline(child))
        words.append(child.tail or "")
    text = "".join(words)
    is_code = _tag_name(element) in ("code", "kbd", "tt") and text.strip() and "`" not in text
    return f"`{text}`" if is_code else text


def _block(name: str, element: Any, depth: int) -> Iterator[str]:
    if name in _HEADINGS:
        if heading := one_heading(_HEADINGS[name], "".join(element.itertext())):
            yield heading
    elif name == "pre":
        yield code_fence("".join(element.itertext()))
    elif depth > _DEEPEST:
        yield markdown_line("".join(element.itertext()))
    elif name in ("ul", "ol"):
        items = [_item(child, name, depth) for child in element if _tag_name(child)]
        if any(items):
            yield "\n".join(filter(None, items))
    elif name == "table":
        yield from _table(element, depth)
    elif name == "blockquote":
        text = "\n\n".join(element_blocks(element, depth))
        if text:
            yield "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    elif name != "hr":
        yield from element_blocks(element, depth)


def _item(element: Any, list_name: str, depth: int) -> str:
    mark = "1. " if list_name == "ol" else "- "
    text = "\n".join(element_blocks(element, depth))
    return mark + text.replace("\n", "\n" + " " * len(mark)) if text else ""


def _table_of(row: Any) -> Any:
    """The innermost table that a row stands in."""
    return next(parent for parent in row.iterancestors() if _tag_name(parent) == "table")


def _table(element: Any, depth: int) -> Iterator[str]:
    """Yield a table. One of a single column only frames its content."""
    rows = [
        [cell for cell in row if _tag_name(cell) in ("td", "th")]
        for row in element.iterdescendants()
        if _tag_name(row) == "tr" and _table_of(row) is element
    ]
    if max(map(len, rows), default=0) < 2:
        for row in rows:
            for cell in row:
                yield from element_blocks(cell, depth)
        return
    yield markdown_table([[" ".join(element_blocks(cell, depth)) for cell in row] for row in rows if row])
