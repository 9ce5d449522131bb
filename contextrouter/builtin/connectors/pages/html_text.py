"""HTML to plain text, without hidden text; in linear time on any input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from contextrouter.builtin.connectors.pages.hidden_text import invisible

HTML_CHARACTERS = 200_000
"""Markup of one item that is read."""
TAG_CHARACTERS = 2_000
"""Within this length a `>` in quotes does not end a tag; beyond it, the first one does."""

_NAME = re.compile(r"<(/?[A-Za-z][A-Za-z0-9:-]*)")
_TAG = re.compile(r"""<[^>"']*(?:"[^"]*"[^>"']*|'[^']*'[^>"']*)*>""")
_STYLE = re.compile(r"""\sstyle\s*=\s*["']([^"'>]*)|\s(hidden)(?=[\s>=/])""", re.I)
_ANY_TAG = re.compile(r"<[^>]*>")
_SPACES = re.compile(r"\s+")
_HUGE_REFERENCE = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
_BREAKS = frozenset(
    "p div br li ul ol tr table h1 h2 h3 h4 h5 "
    "h6 blockquote pre hr section article figure figcaption dt dd".split()
)
_SILENT = frozenset({"script", "style", "template", "noscript", "iframe"})


def plain_text(markup: str) -> str:
    """Return the text of HTML, one line per block, entities resolved, spaces squeezed; in linear time on any
    input.
    """
    return visible_text(markup)[0]


def visible_text(markup: str) -> tuple[str, int]:
    """As `plain_text`, and how many characters were left out because they are styled so that no reader sees
    them.
    """
    markup = _HUGE_REFERENCE.sub("\ufffd", markup[:HTML_CHARACTERS])
    gone: list[int] = []
    text = "".join(unescape(part) if is_text else part for part, is_text in _parts(markup, gone))
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line), sum(gone)


def _parts(markup: str, gone: list[int]) -> Iterator[tuple[str, bool]]:
    """Yield (text, True) between tags, and (space, False) in place of tags. A `<` that begins no tag is
    text.
    """
    position = 0
    while (opening := markup.find("<", position)) >= 0:
        yield _SPACES.sub(" ", markup[position:opening]), True
        name = _NAME.match(markup, opening)
        if name:
            position, space = _after_tag(markup, opening, name.group(1).lower())
            if position - opening < TAG_CHARACTERS and (style := _STYLE.search(markup, opening, position)):
                is_hidden = style[2] or invisible(style[1])
                after = _after_element(markup, position, name.group(1)) if is_hidden else position
                gone.append(len(_ANY_TAG.sub("", markup[position:after]).strip()))
                position = after
            yield space, False
        elif markup.startswith(("<!--", "<!", "<?"), opening):
            end = "-->" if markup.startswith("<!--", opening) else ">"
            position = markup.find(end, opening) + len(end)
            if position < len(end):
                return
        else:
            yield "<", True
            position = opening + 1
    yield _SPACES.sub(" ", markup[position:]), True


def _after_element(markup: str, position: int, name: str) -> int:
    """Where the text goes on after the element that was opened before `position`; one that is never closed
    ends all.
    """
    depth = 1
    for tag in re.compile(rf"<(/?){re.escape(name)}\b[^>]*>", re.I).finditer(markup, position):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag.end()
    return len(markup)


def _after_tag(markup: str, opening: int, name: str) -> tuple[int, str]:
    """Where the text goes on after the tag that begins at `opening`, and the space it leaves. A tag without
    end ends all.
    """
    tag = _TAG.match(markup, opening, opening + TAG_CHARACTERS)
    position = tag.end() if tag else markup.find(">", opening) + 1 or len(markup)
    if name in _SILENT:
        close = re.compile(f"</{name}[^>]*>", re.I).search(markup, position)
        return (close.end() if close else len(markup)), " "
    return position, "\n" if name.lstrip("/") in _BREAKS else " " if name in ("td", "th") else ""
