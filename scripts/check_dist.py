"""Check a wheel and a source archive: their metadata is valid, they agree, and the description has no dead link.

python scripts/check_dist.py FOLDER

`make dist` runs it on what it has built.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from packaging.metadata import Metadata


def main() -> int:
    """Print what is wrong, one line each, and return 1 if anything is."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    problems = list(check(folder))
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(*sorted(path.name for path in folder.iterdir()), sep="\n")
    return 1 if problems else 0


def check(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the one wheel and the one source archive of a folder."""
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        yield f"{folder} has {len(wheels)} wheels and {len(archives)} source archives. Build one of each: make dist"
        return
    texts = {wheels[0].name: of_wheel(wheels[0]), archives[0].name: of_archive(archives[0])}
    for name, text in texts.items():
        try:
            metadata = Metadata.from_email(text, validate=True)
        except ExceptionGroup as invalid:
            yield from (f"{name}: {error}" for error in invalid.exceptions)
            continue
        yield from (f"{name}: {problem}" for problem in description_problems(metadata))
    if len(set(texts.values())) != 1:
        yield f"{wheels[0].name} and {archives[0].name} have different metadata."


def of_wheel(path: Path) -> bytes:
    """Return the file METADATA of a wheel."""
    with zipfile.ZipFile(path) as opened:
        (name,) = [name for name in opened.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        return opened.read(name)


def of_archive(path: Path) -> bytes:
    """Return the file PKG-INFO of a source archive."""
    with tarfile.open(path) as opened:
        (name,) = [name for name in opened.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", name)]
        file = opened.extractfile(name)
        assert file is not None
        return file.read()


def description_problems(metadata: Metadata) -> Iterator[str]:
    """Yield why a package index could not show the description."""
    if metadata.description_content_type != "text/markdown":
        yield f"the description is {metadata.description_content_type}, not text/markdown."
    tokens = MarkdownIt("commonmark").enable("table").parse(metadata.description or "")
    if not any(token.type == "heading_open" for token in tokens):
        yield "the description has no heading; is it the README?"
    for token in tokens:
        for part in token.children or ():
            url = part.attrGet("href") or part.attrGet("src")
            if url is not None and urlsplit(str(url)).scheme not in ("http", "https"):
                yield f"the description links to {url}, which a package index does not have."


if __name__ == "__main__":
    sys.exit(main())
