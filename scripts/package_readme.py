"""A hook of hatchling: the README as the description of the distribution, without links into the repository.

A package index shows the description where no file of the repository is beside it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", re.M)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
MORE = "\n## More\n"
ENDING = """
## More

The source archive has the documentation in its folder `docs`. `make docs` builds it as a site.

Licence: Apache-2.0.
"""


class PackageReadme(MetadataHookInterface):
    """Sets `readme`, which `pyproject.toml` lists under `dynamic`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(text)}


def description(readme: str) -> str:
    """Return the text without pictures and links that lead into the repository, and with an ending that has none."""
    text = readme.partition(MORE)[0] + ENDING
    return LINK.sub(r"\1", PICTURE.sub("", text))
