"""reStructuredText to Markdown, by docutils: headings, tables, code and notes; also directives of Sphinx."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN, PLAIN, RST
from contextrouter.builtin.connectors.files.parsing.parsed import (
    Parsed,
    markdown_line,
    markdown_table,
    one_heading,
)
from contextrouter.builtin.connectors.markup import code_fence, front_matter

_WITHOUT_TEXT = frozenset(
    "toctree index meta currentmodule module highlight sectionauthor codeauthor tabularcolumns role"
    " default-role contents sectnum header footer raw only-layout literalinclude".split()
)
_CODE = frozenset("code-block sourcecode ipython prompt parsed-literal console".split())
_VERSIONS = {
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
}
_TITLED = re.compile(r"(?s)(.+?)\s*<[^<>]+>\Z")
_WORDS = frozenset("ref doc term guilabel menuselection".split())
"""Roles whose text is words, and no code."""
_NOTES = frozenset("attention caution danger error hint important note tip warning seealso".split())
_SETTINGS = {
    "_disable_config": True,
    "doctitle_xform": False,
    "file_insertion_enabled": False,
    "halt_level": 5,
    "raw_enabled": False,
    "report_level": 5,
    "smart_quotes": False,
    "syntax_highlight": "none",
}


def read_rst(data: bytes) -> Parsed:
    """The text as Markdown; as it stands where docutils is not installed, or fails on it."""
    text = data.decode("utf-8", "replace")
    try:
        _install()
    except ImportError:
        return Parsed(text=text, media_type=RST)
    _, source, _ = front_matter(text)
    try:
        reader = _Reader()
        body = "\n\n".join(filter(None, reader.blocks(_parse(source), 1)))
    except Exception as error:
        problem = f"could not be read as reStructuredText ({type(error).__name__}), so it was read as text."
        return Parsed(text=text, media_type=PLAIN, problems=[problem])
    return Parsed(text=text[: len(text) - len(source)] + body, media_type=MARKDOWN, links=list(reader.links))


def _parse(text: str) -> Any:
    from docutils.core import publish_doctree

    return publish_doctree(text, settings_overrides=_SETTINGS)


_installed = False


def _install() -> None:
    """Let docutils take any directive and any role, since many documents use those of Sphinx. This process
    only parses, so nobody else sees the change.
    """
    global _installed
    from docutils.parsers.rst import directives, roles

    if _installed:
        return
    _installed = True
    of_docutils, role_of_docutils = directives.directive, roles.role
    unknown = _unknown_directive()

    def directive(name: str, *arguments: Any) -> Any:
        if name in _WITHOUT_TEXT or name in _CODE or name == "include":
            return unknown, []
        directive_class, messages = of_docutils(name, *arguments)
        return (directive_class, messages) if directive_class else (unknown, [])

    def role(name: str, *arguments: Any) -> Any:
        function, messages = role_of_docutils(name, *arguments)
        return (function, messages) if function else (_any_role, [])

    directives.directive, roles.role = directive, role


def _any_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = None
) -> Any:
    """A role of Sphinx: its title, or the last part of what `~` shortens."""
    from docutils import nodes

    titled = _TITLED.match(text)
    words = titled[1] if titled else text.lstrip("!")
    if words.startswith("~"):
        words = words[1:].rpartition(".")[2]
    is_code = not titled and name.rpartition(":")[2] not in _WORDS
    return [nodes.literal(rawtext, words) if is_code else nodes.inline(rawtext, words)], []


def _unknown_directive() -> Any:
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class AnyOption(defaultdict[str, Any]):
        """Takes every option as it stands."""

        def __missing__(self, key: str) -> Any:
            return lambda value: value

    class Unknown(Directive):  # type: ignore[misc]  # docutils has no types
        """Keeps the argument and the content of a directive that docutils does not have."""

        has_content = True
        optional_arguments = 1
        final_argument_whitespace = True
        option_spec = AnyOption(None, {"class": str})

        def run(self) -> list[Any]:
            argument = " ".join(self.arguments)
            if self.name in _WITHOUT_TEXT:
                return []
            if self.name == "include":
                return [nodes.paragraph("", f"Include: {argument}")]
            if self.name in _CODE:
                code = "\n".join(self.content)
                return [nodes.literal_block(code, code, classes=["code", argument])]
            if self.name in _VERSIONS:
                argument = f"{_VERSIONS[self.name]} {argument}"
            container = nodes.container()
            if self.name in _NOTES:
                container = nodes.admonition("", nodes.title("", "See also"))
                self.content.insert(0, argument, source="") if argument else None
            elif argument:
                container += nodes.paragraph("", "", nodes.literal("", argument))
            self.state.nested_parse(self.content, self.content_offset, container)
            return [container]

    return Unknown


class _Reader:
    """The blocks of one document tree. A method with the name of a node reads nodes of this kind."""

    def __init__(self) -> None:
        self.links: dict[str, None] = {}

    def blocks(self, parent: Any, level: int) -> Iterator[str]:
        """Yield the blocks below a node. `level` is the level of the next heading."""
        for node in parent.children:
            read = getattr(self, f"_{node.tagname}", None)
            if read is not None:
                yield from read(node, level)
            elif node.tagname in _NOTES:
                yield _quoted_blocks([f"**{node.tagname.capitalize()}:**", *self.blocks(node, level)])
            elif node.tagname in _SILENT:
                continue
            elif node.children and all(_is_inline(child) for child in node.children):
                yield markdown_line(self._inline(node))
            else:
                yield from self.blocks(node, level)

    def _section(self, node: Any, level: int) -> Iterator[str]:
        for child in node.children:
            if child.tagname == "title":
                yield one_heading(level, self._inline(child))
        yield from self.blocks(node, level + 1)

    def _title(self, node: Any, level: int) -> Iterator[str]:
        if node.parent.tagname not in ("section", "document"):
            yield f"**{self._inline(node).strip()}**"

    def _rubric(self, node: Any, level: int) -> Iterator[str]:
        yield f"**{self._inline(node).strip()}**"

    def _literal_block(self, node: Any, level: int) -> Iterator[str]:
        languages = [name for name in node.get("classes", ()) if name not in ("code", "")]
        yield code_fence(node.astext(), languages[0] if languages else "")

    _doctest_block = _math_block = _literal_block

    def _bullet_list(self, node: Any, level: int) -> Iterator[str]:
        yield "\n".join(filter(None, (self._item(item, "- ", level) for item in node.children)))

    def _enumerated_list(self, node: Any, level: int) -> Iterator[str]:
        yield "\n".join(filter(None, (self._item(item, "1. ", level) for item in node.children)))

    def _item(self, node: Any, mark: str, level: int) -> str:
        text = "\n\n".join(filter(None, self.blocks(node, level)))
        if all(child.tagname == "paragraph" for child in node.children):
            text = text.replace("\n\n", "\n")
        return mark + text.replace("\n", "\n" + " " * len(mark)) if text else ""

    def _definition_list_item(self, node: Any, level: int) -> Iterator[str]:
        terms = [self._inline(child).strip() for child in node.children if child.tagname == "term"]
        yield f"**{', '.join(terms)}**"
        for child in node.children:
            if child.tagname == "definition":
                yield from self.blocks(child, level)

    def _field(self, node: Any, level: int) -> Iterator[str]:
        name, body = node.children[0].astext(), " ".join(filter(None, self.blocks(node.children[1], level)))
        yield markdown_line(f"{name}: {body}" if body else name)

    def _option_list_item(self, node: Any, level: int) -> Iterator[str]:
        about = " ".join(filter(None, self.blocks(node.children[1], level)))
        yield f"`{node.children[0].astext()}`: {about}"

    def _block_quote(self, node: Any, level: int) -> Iterator[str]:
        yield _quoted_blocks(self.blocks(node, level))

    _admonition = _block_quote

    def _footnote(self, node: Any, level: int) -> Iterator[str]:
        label = node.children[0].astext() if node.children else ""
        body = " ".join(filter(None, self.blocks(node, level)))
        yield f"[^{label}]: {body.removeprefix(label).strip()}"

    _citation = _footnote

    def _line_block(self, node: Any, level: int) -> Iterator[str]:
        yield "  \n".join(markdown_line(line.astext()) for line in node.children)

    def _image(self, node: Any, level: int) -> Iterator[str]:
        yield markdown_line(node.get("alt", ""))

    def _table(self, node: Any, level: int) -> Iterator[str]:
        rows: list[list[str]] = []
        for row in node.findall(lambda child: child.tagname == "row"):
            cells: list[str] = []
            for entry in row.children:
                cells.append(" ".join(filter(None, self.blocks(entry, level))))
                cells += [""] * int(entry.get("morecols", 0))
            rows.append(cells)
        for child in node.children:
            if child.tagname == "title":
                yield f"**{self._inline(child).strip()}**"
        yield markdown_table(rows)

    def _inline(self, node: Any) -> str:
        name = node.tagname
        if name == "#text":
            return str(node.astext())
        if name == "literal":
            text = node.astext()
            return f"`{text}`" if "`" not in text else text
        if name in ("footnote_reference", "citation_reference"):
            return f"[^{node.astext()}]"
        if name == "image":
            return str(node.get("alt", ""))
        if name in ("raw", "system_message", "comment"):
            return ""
        if name == "reference" and "://" in node.get("refuri", ""):
            self.links[node["refuri"]] = None
        return "".join(map(self._inline, node.children))


_SILENT = frozenset(
    "comment substitution_definition target pending system_message raw meta label transition decoration"
    " colspec".split()
)


def _is_inline(node: Any) -> bool:
    from docutils import nodes

    return isinstance(node, nodes.Inline | nodes.Text)


def _quoted_blocks(blocks: Any) -> str:
    text = "\n\n".join(filter(None, blocks))
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n")) if text else ""
