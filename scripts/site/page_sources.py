"""The pages of the documentation site that are made: of files outside docs/, and of docstrings.

The hooks of mkdocs and the tests read this.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Files outside docs/ that pages link to, and the pages that they become.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "benchmarks.md",
    "plugins/README.md": "plugins.md",
    "settings.toml": "settings-example.md",
    "tests/CASES.md": "cases.md",
} | {
    f"plugins/{path.parent.name}/README.md": f"{path.parent.name}.md"
    for path in sorted((ROOT / "plugins").glob("*/README.md"))
}
API = "api.md"
# A row of the table of docs/api.md: a title, the module, and the names of it.
ROW = re.compile(r"^\| ([^`|]+?) \| `([\w.]+)` \| ((?:`\w+`(?:, )?)+) \|", re.M)


class ApiPage(NamedTuple):
    """A page of the API: the names that it describes, and the module to import them from."""

    title: str
    module: str
    names: list[str]


def api_pages() -> dict[str, ApiPage]:
    """Return the pages of the API by their paths, as the table of docs/api.md lists them."""
    rows = ROW.findall((ROOT / "docs" / API).read_text("utf-8"))
    return {
        f"api/{title.casefold().replace(' ', '-')}.md": ApiPage(title, module, re.findall(r"`(\w+)`", names))
        for title, module, names in rows
    }


def made_pages() -> list[str]:
    """Return the paths of all pages that are no files of docs/."""
    return [*OUTSIDE.values(), *api_pages()]
