"""LaTeX to Markdown, as far as its structure goes: sections, lists, code, notes; formulas as they stand."""

from __future__ import annotations

import re

from contextrouter.builtin.connectors.files.parsing.media import MARKDOWN
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed
from contextrouter.builtin.connectors.markup import code_fence

_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_BRACES = r"\{((?:[^{}]|\{[^{}]*\}){0,2000})\}"
_SECTION = re.compile(rf"\\({'|'.join(_LEVELS)})\*?(?:\[[^\]\n]*\])?{_BRACES}")
_TITLE = re.compile(rf"\\title(?:\[[^\]\n]*\])?{_BRACES}")
_CODE = re.compile(
    r"\\begin\{(verbatim|lstlisting|minted)\*?\}(?:\[[^\]\n]*\])?(?:\{[^}\n]*\})?(.*?)\\end\{\1\*?\}", re.S
)
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_DROPPED = re.compile(
    r"\\(?:label|vspace|hspace|includegraphics|usepackage|documentclass|bibliographystyle|bibliography|input"
    r"|include|setcounter|pagestyle|thispagestyle|newcommand|renewcommand)\*?(?:\[[^\]\n]*\])*"
    rf"(?:{_BRACES})*"
)
_FOOTNOTE = re.compile(rf"\\footnote{_BRACES}")
_REFERENCE = re.compile(r"~?\\(?:ref|eqref|cref|Cref|cite[tp]?|autoref)\*?(?:\[[^\]\n]*\])*\{([^}\n]*)\}")
_STYLE = re.compile(
    rf"\\(?:emph|text\w{{2}}|textnormal|underline|mbox|url|caption|author|date|href{_BRACES}){_BRACES}"
)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{(?!equation|align|math|tabular|array)[^}\n]*\}(?:\[[^\]\n]*\])?")
_SIGNS = {
    r"\&": "&", r"\%": "%", r"\$": "$", r"\#": "#", r"\_": "_", r"\{": "{", r"\}": "}", "~": " ",
    r"\ldots": "…", r"\dots": "…", "``": "“", "''": "”", r"\LaTeX": "LaTeX", r"\TeX": "TeX",
}  # fmt: skip
_SILENT = re.compile(
    r"\\(?:maketitle|tableofcontents|noindent|centering|newpage|clearpage|par|small|large)\b"
)
_SIGN = re.compile("|".join(re.escape(sign) for sign in sorted(_SIGNS, key=len, reverse=True)))


def read_latex(data: bytes) -> Parsed:
    """The text below `\\begin{document}`, or all of it."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    title = _TITLE.search(text)
    body = text.partition(r"\begin{document}")[2].partition(r"\end{document}")[0] or text
    pieces, position = [], 0
    for code in _CODE.finditer(body):
        pieces += [_prose(body[position : code.start()]), code_fence(code[2])]
        position = code.end()
    pieces.append(_prose(body[position:]))
    name = _without_commands(title[1]) if title else ""
    return Parsed(text="\n\n".join(filter(None, pieces)), media_type=MARKDOWN, title=name)


def _prose(text: str) -> str:
    text = _SECTION.sub(
        lambda match: f"\n\n{'#' * _LEVELS[match[1]]} {' '.join(match[2].split())}\n\n",
        _COMMENT.sub("", text),
    )
    text = _DROPPED.sub("", _TITLE.sub("", text))
    text = re.sub(r"\\item(?:\[([^\]\n]*)\])?[ \t]*", lambda m: f"\n- {m[1] + ' ' if m[1] else ''}", text)
    text = _ENVIRONMENT.sub("\n\n", text)
    lines = (line.strip() for line in _without_commands(text).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _without_commands(text: str) -> str:
    """Words without the commands around them; a second time for those inside others."""
    text = _FOOTNOTE.sub(r" (\1)", text)
    for _ in range(2):
        text = _STYLE.sub(lambda match: match[2], text)
    text = _SILENT.sub("", text)
    return _SIGN.sub(lambda match: _SIGNS[match[0]], _REFERENCE.sub(r" [\1]", text)).replace("\\\\", "\n")
