"""Tables of wikitext as tables of Markdown."""

from __future__ import annotations

import re

from contextrouter.builtin.connectors.files.parsing.parsed import markdown_table

_ATTRIBUTES = re.compile(r"^\s*(?:[\w-]+\s*=\s*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s|]+)\s*)+\|(?!\|)")


def wiki_tables(text: str) -> str:
    """The text with its tables as pipe tables. A table inside another one becomes a part of its cell."""
    out: list[str] = []
    rows: list[list[str]] | None = None
    depth = 0
    for line in text.split("\n"):
        mark = line.strip()
        if mark.startswith("{|"):
            depth += 1
            rows = rows if rows is not None else [[]]
        elif rows is None:
            out.append(line)
        elif mark.startswith("|}"):
            depth -= 1
            if not depth:
                out += ["", markdown_table([row for row in rows if any(row)]), ""]
                rows = None
        else:
            _add(rows, mark)
    if rows is not None:  # a table without end
        out += ["", markdown_table([row for row in rows if any(row)])]
    return "\n".join(out)


def _add(rows: list[list[str]], line: str) -> None:
    if line.startswith("|+"):
        return
    if line.startswith("|-"):
        rows.append([])
    elif line.startswith(("|", "!")):
        separator = r"\|\||!!" if line.startswith("!") else r"\|\|"
        rows[-1] += [_ATTRIBUTES.sub("", cell).strip() for cell in re.split(separator, line[1:])]
    elif line and rows[-1]:
        rows[-1][-1] = f"{rows[-1][-1]} {line}".strip()
