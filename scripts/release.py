"""Close the changelog for a release, set the version, and print the release notes.

python scripts/release.py VERSION

It changes CHANGELOG.md, pyproject.toml and contextrouter/runtime/distribution.py. It commits and publishes nothing.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
OPEN = "## Unreleased\n"
VERSION = re.compile(r"\d+\.\d+\.\d+")


class ReleaseError(Exception):
    """The release cannot be made; nothing was changed."""


def release(root: Path, version: str, day: str) -> str:
    """Set `version` in the files of `root`, and return the notes of the release.

    `day` is the day of the release, YYYY-MM-DD. Raises ReleaseError, before anything is written, if the version
    is no newer one, or if there is nothing to release.
    """
    changelog, project, module = (
        root / path for path in ("CHANGELOG.md", "pyproject.toml", "contextrouter/runtime/distribution.py")
    )
    text = project.read_text("utf-8")
    now = re.search(r'^version = "(.+)"$', text, re.M)
    if now is None:
        raise ReleaseError(f"{project} has no line `version = …`.")
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is not a version. Write three numbers, such as 0.2.0.")
    if _numbers(version) <= _numbers(now[1]):
        raise ReleaseError(f"{version} is not newer than {now[1]}. Choose a higher number.")
    head, opened, rest = changelog.read_text("utf-8").partition(OPEN)
    notes, heading, older = rest.partition("\n## ")
    if not opened or not notes.strip():
        raise ReleaseError(f"{changelog} has no changes under `{OPEN.strip()}`. Write them first.")
    closed = f"{head}{OPEN}\n## {version} ({day})\n{notes}{heading}{older}"
    changelog.write_text(closed, "utf-8")
    project.write_text(text.replace(now[0], f'version = "{version}"'), "utf-8")
    code = module.read_text("utf-8")
    module.write_text(re.sub(r'^VERSION = ".+"$', f'VERSION = "{version}"', code, flags=re.M), "utf-8")
    return notes.strip()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def main() -> int:
    """Make the release that the command line names."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(release(ROOT, sys.argv[1], f"{datetime.now(UTC):%Y-%m-%d}"))
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
