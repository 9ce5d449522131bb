"""Dumps of MediaWiki: each page as a document of its own, its wikitext as Markdown; no redirects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from contextrouter.builtin.connectors.files.parsing.markups.wiki_tables import wiki_tables
from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN, WIKI_DUMP
from contextrouter.builtin.connectors.files.parsing.office_files.packages import xml
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable, distinct_names
from contextrouter.builtin.connectors.markup import code_fence

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
_NOTE = re.compile(r"<ref\b[^>]*/>|<ref\b[^>]*>.*?(?:</ref>|\Z)|<references\s*/?>", re.S | re.I)
_CODE = re.compile(r"<(syntaxhighlight|source|pre)\b([^>]*)>(.*?)</\1>", re.S | re.I)
_LANGUAGE = re.compile(r"lang\s*=\s*[\"']?([\w+-]+)")
_INNERMOST = re.compile(r"\{\{(?:[^{}]|\{(?!\{)|\}(?!\}))*\}\}")
_CATEGORY = re.compile(
    r"\[\[\s*(?:Category|Kategorie|Catégorie|Categoría|Categoria)\s*:([^\]|\n]+)[^\]\n]*\]\]", re.I
)
_FILE = re.compile(
    r"\[\[\s*(?:File|Image|Datei|Fichier|Archivo|Bild)\s*:(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]", re.I
)
_LINK = re.compile(r"\[\[([^\[\]|\n]+)(?:\|([^\[\]\n]*))?\]\]")
_EXTERNAL = re.compile(r"\[((?:https?:)?//[^\s\]]+)(?:\s+([^\]\n]+))?\]")
_TAG = re.compile(
    r"</?(?:br|div|span|small|big|center|sub|sup|nowiki|poem|u|s|b|i|tt|code|blockquote)\b[^>]*>", re.I
)
_HEADING = re.compile(r"^(={1,6})\s*(.+?)\s*\1\s*$", re.M)
_LIST = re.compile(r"^([*#:;]+)\s*", re.M)
_MAGIC = re.compile(r"__[A-Z]+__|\{\{\{[^{}]*\}\}\}")
_DEEPEST = 40


def read_wiki_dump(data: bytes) -> Parsed:
    """The pages of a dump. Redirects are left out: the pages that they lead to are here, or elsewhere."""
    root = xml(data)
    language = (root.get("{http://www.w3.org/XML/1998/namespace}lang") or "").partition("-")[0]
    parts = [part for page in root.iterfind("{*}page") if (part := _wiki_page(page, language)) is not None]
    if not parts:
        raise Unreadable("holds no page with a text.")
    return Parsed(text="", media_type=WIKI_DUMP, parts=distinct_names(parts))


def _wiki_page(page: Any, language: str) -> Parsed | None:
    revision = page.find("{*}revision")
    source = "" if revision is None else revision.findtext("{*}text") or ""
    if page.find("{*}redirect") is not None or not source.strip():
        return None
    title = " ".join((page.findtext("{*}title") or "").split())
    text, labels, links = wikitext(source)
    return Parsed(
        text=text,
        media_type=MARKDOWN,
        name=title,
        title=title,
        language=language,
        date=revision.findtext("{*}timestamp") or "",
        labels=labels,
        links=links,
    )


def wikitext(source: str) -> tuple[str, list[str], list[str]]:
    """Wikitext as Markdown, the categories that it names, and the addresses that it links to."""
    codes: list[str] = []

    def keep(match: re.Match[str]) -> str:
        language = _LANGUAGE.search(match[2])
        codes.append(code_fence(match[3], language[1] if language else ""))
        return f"\n\n\x00{len(codes) - 1}\x00\n\n"

    text = _NOTE.sub("", _COMMENT.sub("", source.replace("\x00", "")))
    text = _CODE.sub(keep, text)
    for _ in range(_DEEPEST):
        shorter = _INNERMOST.sub("", text)
        if shorter == text:
            break
        text = shorter
    labels = list(dict.fromkeys(" ".join(name.split()) for name in _CATEGORY.findall(text)))
    links = list(dict.fromkeys(address for address, _ in _EXTERNAL.findall(text) if "://" in address))
    text = wiki_tables("\n".join(_markdown_lines(_FILE.sub("", _CATEGORY.sub("", text)))))
    text = re.sub("\x00(\\d+)\x00", lambda match: codes[int(match[1])], text)
    return re.sub(r"\n{3,}", "\n\n", text).strip(), labels, links


def _markdown_lines(text: str) -> Iterator[str]:
    """Yield lines without the marks of wikitext, or with those of Markdown in their place."""
    text = _LINK.sub(lambda match: match[2] or match[1].strip(":"), text)
    text = _EXTERNAL.sub(lambda match: match[2] or match[1], text)
    text = _MAGIC.sub("", _TAG.sub("", text)).replace("'''", "").replace("''", "")
    text = _HEADING.sub(lambda match: f"\n{'#' * len(match[1])} {match[2]}\n", unescape(text))
    for line in text.split("\n"):
        mark = _LIST.match(line)
        if mark and not line.startswith("# ") and not re.match(r"#{2,6} ", line):
            depth, sign = len(mark[1]) - 1, mark[1][-1]
            bullet = {"*": "- ", "#": "1. "}.get(sign, "")
            yield "  " * depth * bool(bullet) + bullet + line[mark.end() :]
        else:
            yield line
