"""Markdown of note-taking programs (Obsidian, Notion, Google Docs): what is no content is taken out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_OBSIDIAN = re.compile(r"!?\[\[[^\[\]\n]{1,300}\]\]|^> ?\[![a-zA-Z-]+\]|^ {0,3}```dataview", re.M)
_START = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<language>[^\n`]*)$|(?P<code>`+)|<!--|%%", re.M)
_EMBEDDED = re.compile(r"!\[([^\]\n]{0,300})\]\(data:[^()\s]*\)")
_LONGEST_CODE = 1_000  # characters
_DATA = re.compile(r"^ {0,3}\[[^\]\n]{1,200}\]:[ \t]*<?data:[^\n]*\n?", re.M)
_IMAGE = re.compile(r"!\[\[[^\[\]\n]{1,300}\.(?:png|jpe?g|gif|svg|webp|pdf|mp[34])(?:\|[^\]\n]*)?\]\]", re.I)
_CALLOUT = re.compile(r"^((?:> ?)+)\[!([a-zA-Z-]+)\][-+]?[ \t]*(.*)$", re.M)
_MARKED = re.compile(r"(?<![=\w])==(?=\S)([^=\n]{1,500}?)(?<=\S)==(?!=)")
_BLOCK_ID = re.compile(r"(?:^|[ \t])\^[A-Za-z0-9-]{1,60}[ \t]*$", re.M)
_TAG = re.compile(r"(?:^|(?<=[\s(]))#([^\W\d][\w/-]{0,100})(?=[\s.,;:!?)]|$)", re.M)
_NOTION = re.compile(r"(.+) [0-9a-f]{32}$")
_PROPERTY = re.compile(r"([A-Z][\w /&()-]{0,60}): (\S.*)$")
_ASIDE = re.compile(r"^[ \t]*</?aside>[ \t]*$\n?", re.M)


class Note(NamedTuple):
    """A text without what is no content, the tags in it, and the properties that stand below its title."""

    text: str
    tags: tuple[str, ...] = ()
    properties: Mapping[str, str] = MappingProxyType({})


def notion_title(stem: str) -> str:
    """The name of a file without the number that Notion puts behind it."""
    match = _NOTION.match(stem)
    return match[1] if match else stem


def read_note(text: str, stem: str) -> Note:
    """Take comments, embedded images and marks of programs out of Markdown. Code stays as it is."""
    is_obsidian = _OBSIDIAN.search(text) is not None
    tags: dict[str, None] = {}
    pieces = []
    for piece, is_code in _pieces(_DATA.sub("", text), is_obsidian):
        if not is_code:
            piece = _EMBEDDED.sub(r"\1", piece)
            if is_obsidian:
                tags.update(dict.fromkeys(_TAG.findall(piece)))
                piece = _of_obsidian(piece)
        pieces.append(piece)
    clean = "".join(pieces)
    properties: dict[str, str] = {}
    if _NOTION.match(stem):
        properties = _properties(clean)
        clean = _ASIDE.sub("", clean)
    return Note(clean, tuple(tags), properties)


def _of_obsidian(text: str) -> str:
    text = _CALLOUT.sub(lambda match: f"{match[1]}**{match[2].capitalize()}:** {match[3]}".rstrip(), text)
    return _BLOCK_ID.sub("", _MARKED.sub(r"\1", _IMAGE.sub("", text)))


def _pieces(text: str, is_obsidian: bool) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is code; comments and queries of Obsidian are left out."""
    pieces: list[tuple[str, bool]] = []
    position = search = 0
    has_end = {"-->": True, "%%": is_obsidian}
    while start := _START.search(text, search):
        search = start.end()
        if start["fence"]:
            end = _fence_end(text, start)
            pieces.append((text[position : start.start()], False))
            if not (is_obsidian and start["language"].strip() in ("dataview", "dataviewjs")):
                pieces.append((text[start.start() : end], True))
            position = search = end
        elif start["code"]:
            end = text.find(start["code"], search, _paragraph_end(text, search))
            if end >= 0:
                end += len(start["code"])
                pieces += [(text[position : start.start()], False), (text[start.start() : end], True)]
                position = search = end
        else:
            mark = "-->" if start[0] == "<!--" else "%%"
            end = text.find(mark, search) if has_end[mark] else -1
            has_end[mark] = has_end[mark] and end >= 0
            if end >= 0:
                pieces.append((text[position : start.start()], False))
                position = search = end + len(mark)
    pieces.append((text[position:], False))
    return pieces


def _fence_end(text: str, start: re.Match[str]) -> int:
    fence = start["fence"]
    close = re.compile(rf"^ {{0,3}}{re.escape(fence)}{re.escape(fence[0])}*[ \t]*$", re.M)
    end = close.search(text, start.end())
    return end.end() if end else len(text)


def _paragraph_end(text: str, position: int) -> int:
    """Where code within a line ends at the latest; looking further would take long in a long text."""
    end = text.find("\n\n", position, position + _LONGEST_CODE)
    return position + _LONGEST_CODE if end < 0 else end


def _properties(text: str) -> dict[str, str]:
    """The `Name: value` lines between the title and the first blank line behind them, as Notion writes
    them.
    """
    lines = text.lstrip().split("\n")
    if not lines or not lines[0].startswith("# "):
        return {}
    below = [line.strip() for line in lines[1:]]
    while below and not below[0]:
        below.pop(0)
    values: dict[str, str] = {}
    for line in below:
        match = _PROPERTY.match(line)
        if match is None:
            return values if not line else {}
        values[match[1].lower()] = match[2]
    return values
