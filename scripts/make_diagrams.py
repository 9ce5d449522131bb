"""Make the diagrams of the documentation, docs/images/*.svg, without any package.

python scripts/make_diagrams.py

A diagram has its own colours as a picture, and those of the page where the page holds it.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 440  # units; narrow, so that it can be read on a telephone
LINE = 18  # units from one line of text to the next
STYLE = """
    .diagram .paper { fill: var(--md-default-bg-color, #fff) }
    .diagram .box { fill: var(--md-code-bg-color, #f5f7f9); stroke: var(--md-default-fg-color--light, #57606a) }
    .diagram .strong { fill: var(--md-primary-fg-color, #1f4b66); stroke: none }
    .diagram .frame { fill: none; stroke: var(--md-accent-fg-color, #1b6ea8); stroke-dasharray: 5 4 }
    .diagram .arrow { fill: none; stroke: var(--md-default-fg-color--light, #57606a); stroke-width: 1.5 }
    .diagram .head { fill: var(--md-default-fg-color--light, #57606a) }
    .diagram text { fill: var(--md-typeset-color, #1b1f24); font: 13px system-ui, sans-serif; text-anchor: middle }
    .diagram .strong + text { fill: #fff }
    .diagram .first { font-weight: 600 }
    .diagram .small { font-size: 11.5px }
"""


class Diagram:
    """Boxes with lines of text, and arrows between points."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.parts: list[str] = []

    def box(self, left: int, top: int, width: int, text: str, *, kind: str = "box") -> None:
        """Add a box. Its first line is bold; its height is that of the lines."""
        lines = text.split("\n")
        height = LINE * len(lines) + 14
        self.parts.append(
            f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>'
        )
        spans = "".join(
            f'<tspan x="{left + width / 2:g}" y="{top + 20 + LINE * number}" class="{style}">{escape(line)}</tspan>'
            for number, (line, style) in enumerate(
                zip(lines, ("first", *["small"] * len(lines)), strict=False)
            )
        )
        self.parts.append(f"<text>{spans}</text>")

    def frame(self, left: int, top: int, width: int, height: int) -> None:
        """Add a dashed frame around others."""
        self.parts.append(
            f'<rect class="frame" x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>'
        )

    def label(self, x: int, y: int, text: str) -> None:
        """Add a small text with its middle at `x`."""
        self.parts.append(f'<text class="small" x="{x}" y="{y}">{escape(text)}</text>')

    def arrow(self, *points: tuple[int, int]) -> None:
        """Add a line through points; its last part goes straight down or straight to the right."""
        (x, y), (before, _) = points[-1], points[-2]
        path = " ".join(f"{a},{b}" for a, b in points)
        down = before == x
        head = f"{x - 4},{y - 7} {x + 4},{y - 7}" if down else f"{x - 7},{y - 4} {x - 7},{y + 4}"
        self.parts.append(
            f'<polyline class="arrow" points="{path}"/><polygon class="head" points="{x},{y} {head}"/>'
        )

    def svg(self) -> str:
        """Return the whole picture."""
        body = "\n  ".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" width="560" viewBox="0 0 {WIDTH} {self.height}">\n'
            f"  <style>{STYLE}  </style>\n"
            f'  <rect class="paper" width="{WIDTH}" height="{self.height}"/>\n'
            f"  {body}\n</svg>\n"
        )


def question() -> Diagram:
    """The way of a question: understood, asked everywhere at once, merged, cited."""
    made = Diagram(446)
    made.box(90, 10, 260, "One question\nwith a scope and a deadline", kind="strong")
    made.arrow((220, 60), (220, 84))
    made.box(90, 84, 260, "Understand and plan\nqueries · entities · period · route")
    for left in (80, 220, 360):
        made.arrow((220, 134), (220, 150), (left, 150), (left, 180))
    made.frame(8, 160, 424, 122)
    made.box(18, 180, 126, "Your stores\nwords (BM25)\nand vectors")
    made.box(157, 180, 126, "Live sources\nsites · feeds\nfiles · APIs")
    made.box(296, 180, 126, "Facts\ngraphs of\nsubject – object")
    made.label(220, 272, "all at once, inside one deadline")
    made.arrow((220, 282), (220, 306))
    made.box(60, 306, 320, "Merge\nadmit · deduplicate · calibrate · fuse · rerank · select")
    made.arrow((220, 356), (220, 380))
    made.box(60, 380, 320, "One numbered context\ncitations · scores · coverage · trace", kind="strong")
    return made


def permissions() -> Diagram:
    """Where a scope comes from, and where it is enforced."""
    made = Diagram(366)
    made.box(10, 10, 200, "Caller\nkey, signed token, or your code", kind="strong")
    made.box(230, 10, 200, "Document\nlabels of its job or its own", kind="strong")
    made.arrow((110, 60), (110, 90))
    made.arrow((330, 60), (330, 90))
    made.box(10, 90, 200, "Scope\ntenant\ncompartments\nceiling")
    made.box(230, 90, 200, "Labels\ntenant\ncompartment\nsensitivity")
    made.arrow((110, 176), (110, 206))
    made.arrow((330, 176), (330, 206))
    made.box(60, 206, 320, "The source: a condition of the search", kind="box")
    made.arrow((220, 238), (220, 256))
    made.box(60, 256, 320, "Admission: every hit, once more")
    made.arrow((220, 288), (220, 306))
    made.box(60, 306, 320, "Ranking, cache, facts, trace, errors\nonly of what the scope allows")
    return made


TREE = (
    ("1  Is it stored?", "contextrouter ingest"),
    ("2  May the caller see it?", "labels and scope"),
    ("3  Is the source asked?", "routes, check, deadline"),
    ("4  Is it found?", "legs, words, filters"),
    ("5  Is it kept?", "limits, quotas, stages"),
    ("6  Is it cited?", "generator, coverage"),
)


def not_found() -> Diagram:
    """Six questions about a document that is not in the answer."""
    step = 66
    made = Diagram(step * len(TREE) + 50)
    for number, (asked, remedy) in enumerate(TREE):
        top = 10 + step * number
        made.box(10, top, 196, asked)
        made.box(244, top, 186, remedy)
        made.arrow((206, top + 16), (244, top + 16))
        made.label(222, top + 10, "no")
        made.arrow((115, top + 32), (115, top + step))
        made.label(100, top + 52, "yes")
    made.box(10, 10 + step * len(TREE), 196, "It is in the answer", kind="strong")
    return made


def ingestion() -> Diagram:
    """What a job does with each document of its source."""
    made = Diagram(396)
    made.box(60, 10, 320, "Source\na folder, a site or a feed", kind="strong")
    made.arrow((220, 60), (220, 84))
    made.box(60, 84, 320, "Label\nthe labels of the job, and those of the document")
    made.arrow((220, 134), (220, 158))
    made.box(60, 158, 230, "Unchanged?\nfile, fingerprint, transforms, model")
    made.arrow((290, 183), (340, 183))
    made.label(314, 177, "yes")
    made.box(340, 158, 90, "Skipped\nno work")
    made.arrow((120, 208), (120, 240))
    made.label(104, 228, "no")
    made.box(60, 240, 130, "Transform\nchunks, facts,\nkey phrases")
    made.arrow((190, 274), (250, 274))
    made.box(250, 240, 130, "Embed\nonly texts\nthat are new")
    made.arrow((315, 308), (315, 336))
    made.box(60, 336, 320, "Store\nwith its chunks and facts, in one transaction", kind="strong")
    return made


def main(folder: Path = FOLDER) -> list[Path]:
    """Write every diagram into `folder`, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for make in (question, permissions, not_found, ingestion):
        path = folder / f"{make.__name__.replace('_', '-')}.svg"
        path.write_text(make().svg(), "utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    for made in main():
        print(made)
