"""Code blocks of a page: kept aside during the extraction of its text, and put back with their lines."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from contextrouter.builtin.connectors.markup import code_fence

_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source|brush)[-:]\s*([\w+#-]+)")
_PADDING = "ctxpadding"


class CodeBlocks:
    """The `pre` elements of a page. In the tree a mark of about the same length stands in for each.

    A mark has the length of its code, because extraction judges a page by the lengths of its texts.
    """

    def __init__(self, tree: Any, html: str) -> None:
        self._mark = f"ctx{sha256(html.encode('utf-8', 'replace')).hexdigest()[:10]}n"
        self._blocks: list[str] = []
        for element in list(tree.iter("pre")):
            if element.getparent() is not None and not _is_in_table(element):
                self._keep(element)

    def _keep(self, element: Any) -> None:
        for line_end in element.iter("br"):
            line_end.tail = "\n" + (line_end.tail or "")
        code = "".join(element.itertext()).replace("\r\n", "\n").strip("\n").rstrip()
        if not code.strip():
            return
        language = _language(element)
        number, padding = len(self._blocks), len(code) // (len(_PADDING) + 1)
        self._blocks.append(code_fence(code, language))
        for child in list(element):
            element.remove(child)
        element.tag = "p"
        element.attrib.clear()
        element.text = " ".join([f"{self._mark}{number}z", *[_PADDING] * padding])

    def restore(self, text: str) -> str:
        """The text with the code in place of the marks, as fenced blocks."""
        if not self._blocks:
            return text
        pattern = re.compile(
            rf"[ \t]*(?:>[ \t]*)*(?:[-*][ \t]+)?{self._mark}(\d+)z(?:[ \t\n]+{_PADDING})*[ \t]*\n?"
        )

        def block(match: re.Match[str]) -> str:
            return f"\n\n{self._blocks[int(match[1])]}\n\n"

        restored = pattern.sub(block, text)
        return re.sub(r"\n{3,}(?=```)|(?<=```)\n{3,}", "\n\n", restored).strip()


def _is_in_table(element: Any) -> bool:
    """Whether a block stands in a cell, where a fence would break the table."""
    return any(parent.tag in ("td", "th") for parent in element.iterancestors())


def _language(element: Any) -> str:
    for each in (element, *element.iter("code"), element.getparent()):
        names = f"{each.get('class') or ''} {each.get('data-syntaxhighlighter-params') or ''}"
        if match := _LANGUAGE.search(names):
            return match[1].lower()
    return element.get("data-lang") or element.get("lang") or ""
