"""Manual pages (man and mdoc macros of troff) to Markdown: sections as headings, options with their texts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable, markdown_line
from contextrouter.builtin.connectors.markup import code_fence

_ESCAPES = {
    r"\-": "-", r"\e": "\\", r"\ ": " ", r"\~": " ", r"\0": " ", r"\&": "", r"\|": "", r"\^": "", r"\%": "",
    r"\(bu": "•", r"\(em": "—", r"\(en": "–", r"\(aq": "'", r"\(dq": '"', r"\(lq": "“", r"\(rq": "”",
    r"\(oq": "‘", r"\(cq": "’", r"\(co": "©", r"\(ti": "~", r"\(ha": "^", r"\'": "´", r"\`": "`",
}  # fmt: skip
_ESCAPE = re.compile(r"\\\([a-z]{2}|\\[-e ~0&|^%'`]")
_FONT = re.compile(r"\\f(?:\[[^\]\n]{0,20}\]|\([A-Za-z]{2}|[A-Za-z0-9])|\\s[-+]?\d|\\[mM]\[[^\]\n]{0,20}\]")
_COMMENT = re.compile(r'\\["#].*')
_FONT_MACROS = frozenset("B I BR RB BI IB IR RI SM SB".split())
_PARAGRAPHS = frozenset("PP P LP HP IP TP TQ Pp It br sp".split())
_SILENT = frozenset(
    "TH Dd Dt Os RS RE ad na hy nh in ti ne ie el if de ds nr so ft tr Bl El Bd Ed UE ME fam ps ll".split()
)


def read_manual(data: bytes) -> Parsed:
    """The page, titled by its name and section. Raises Unreadable for a file that has no macros."""
    text = data.decode("utf-8", "replace")
    if not re.search(r"^[.'][ \t]*(?:TH|SH|Sh|Dt|Nm)\b", text, re.M):
        raise Unreadable("is no manual page.")
    reader = _Reader(text)
    blocks = [block for block in reader.blocks() if block]
    return Parsed(text="\n\n".join(blocks), media_type=MARKDOWN, title=reader.title)


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = iter(text.replace("\\\n", "").splitlines())
        self._words: list[str] = []
        self.title = ""

    def blocks(self) -> Iterator[str]:
        """Yield headings, paragraphs and examples."""
        for line in self._lines:
            if line.startswith((".", "'")):
                yield from self._macro(line[1:].lstrip())
            elif line.strip():
                self._words.append(_unescape(line))
            else:
                yield self._paragraph()
        yield self._paragraph()

    def _paragraph(self) -> str:
        text = markdown_line(" ".join(self._words))
        self._words = []
        return text

    def _macro(self, line: str) -> Iterator[str]:
        name, _, operands = line.partition(" ")
        arguments = _arguments(operands)
        if name in ("TH", "Dt") and arguments:
            self.title = f"{arguments[0]}({arguments[1]})" if len(arguments) > 1 else arguments[0]
        elif name.lower() in ("sh", "ss"):
            yield self._paragraph()
            yield ("## " if name.lower() == "sh" else "### ") + " ".join(arguments)
        elif name in ("nf", "EX"):
            yield self._paragraph()
            yield self._example("fi" if name == "nf" else "EE")
        elif name in _PARAGRAPHS:
            yield self._paragraph()
            self._words += arguments[:1] if name == "IP" else [_options(operands)] if name == "It" else []
        elif name in _FONT_MACROS:
            self._words.append(("" if len(name) == 2 and name[0] != "S" else " ").join(arguments))
        elif name in ("UR", "MT", "URL"):
            self._words += arguments[:1]
        elif name not in _SILENT and name[:1].isalpha():
            self._words.append(_options(f"{name} {operands}"))

    def _example(self, end: str) -> str:
        lines = []
        for line in self._lines:
            if line[1:].strip() == end and line[:1] in (".", "'"):
                break
            if not line.startswith("."):
                lines.append(_unescape(line))
            elif line[1:3].strip() in _FONT_MACROS:
                lines.append(" ".join(_arguments(line[1:].partition(" ")[2])))
        return code_fence("\n".join(lines)) if lines else ""


def _unescape(text: str) -> str:
    text = _FONT.sub("", _COMMENT.sub("", text))
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[0], ""), text)


def _arguments(text: str) -> list[str]:
    text = _COMMENT.sub("", text)
    try:
        lexer = shlex.shlex(text, posix=True)
        lexer.whitespace_split, lexer.escape, lexer.quotes, lexer.commenters = True, "", '"', ""
        return [_unescape(word) for word in lexer]
    except ValueError:  # a quotation mark without a partner
        return [_unescape(word.strip('"')) for word in text.split()]


def _options(text: str) -> str:
    """The words of a line of mdoc macros: `Fl a` is an option, names of other macros are left out."""
    words, dash = [], ""
    for word in _arguments(text):
        if word == "Fl":
            dash = "-"
        elif re.fullmatch(r"[A-Z][a-z]", word):
            continue
        else:
            words.append(dash + word)
            dash = ""
    return " ".join(words)
