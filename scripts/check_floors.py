"""Check the lower bounds of the dependencies: none lets in a version with a known security hole.

Add a line to HOLES for every advisory of a package that `pyproject.toml` names. `make check` runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# package -> the first version without the hole, and the hole
HOLES = {
    "aiohttp": ("3.13.4", "CVE-2025-53643, CVE-2025-69223 to 69230, CVE-2026-22815, CVE-2026-34516"),
    "anthropic": ("0.87.0", "CVE-2026-34450, CVE-2026-34452"),
    "brotli": ("1.2.0", "CVE-2025-6176"),
    "grpcio": ("1.66.2", "CVE-2024-11407"),
    "lxml-html-clean": ("0.4.4", "CVE-2024-52595, CVE-2026-28348, CVE-2026-28350"),
    "mcp": ("1.27.2", "CVE-2025-53365, CVE-2025-53366, CVE-2025-66416, GHSA-jpw9-pfvf-9f58"),
    "pdfminer-six": ("20251230", "CVE-2025-64512, CVE-2025-70559"),
}


def main() -> int:
    """Print what is wrong, one line each, and return 1 if anything is."""
    project = tomli.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    problems = list(check(project, HOLES))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def check(project: Mapping[str, Any], holes: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield what is wrong with the requirements of a `[project]` table."""
    extras = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    for extra, requirements in extras.items():
        for requirement in map(Requirement, requirements):
            name = canonicalize_name(requirement.name)
            if name == canonicalize_name(project["name"]):
                continue  # another extra
            floors = [
                Version(part.version) for part in requirement.specifier if part.operator in (">=", "==")
            ]
            if not floors:
                yield f"{extra}: {requirement} has no lower bound; write {name}>=VERSION."
            elif name in holes and max(floors) < Version(holes[name][0]):
                good, hole = holes[name]
                yield f"{extra}: {requirement} lets in versions with {hole}; write {name}>={good}."


if __name__ == "__main__":
    sys.exit(main())
