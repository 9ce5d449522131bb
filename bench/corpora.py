"""Collections for benchmarks: read from files, or made here, the same at every run."""

from __future__ import annotations

import gzip
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np

from contextrouter.contracts import Embedder
from contextrouter.model import Document, Vector

FILES = ("chunker-docs", "html-extraction", "feeds")
"""Collections of files as they are found, to be parsed and cut."""
WORDS, SYLLABLES = (
    40_000,
    "ba de fi go ku la me ni po ru sa te vi wo xu ya ze chi dra flo gre kla spi tro".split(),
)


def read(path: Path) -> list[Document]:
    """The documents with text of a `corpus.jsonl.gz`, or of a folder that holds one; ids begin with the
    folder's name.
    """
    file = path / "corpus.jsonl.gz" if path.is_dir() else path
    with gzip.open(file, "rb") as lines:
        rows = [msgspec.json.decode(line) for line in lines]
    name = file.parent.name
    made = ((r, r.get("title") or "") for r in rows)
    found = (
        Document(id=f"{name}/{r['id']}", title=title, content=r.get("text") or title) for r, title in made
    )
    return [document for document in found if document.content.strip()]


def unpacked(data: Path, build: Path) -> list[Path]:
    """The collections of files in `data`, their archives unpacked under `build`; of html-extraction the dev
    half.
    """
    found = []
    for name in FILES:
        if not (data / name).is_dir():
            continue
        folder = build / name
        wanted = {
            row["file"] for path in (data / name).glob("*.dev.jsonl*") for row in _rows(path) if "file" in row
        }
        if not folder.exists():
            for archive in sorted((data / name).glob("*.tar.gz")):
                if archive.name.startswith("feedparser"):
                    continue  # made to break a parser, not to be read
                _unpack(archive, folder.with_suffix(".part"), wanted)
            folder.with_suffix(".part").rename(folder)
        found.append(folder)
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    data = path.read_bytes()
    return [
        msgspec.json.decode(line)
        for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    ]


def _unpack(archive: Path, folder: Path, wanted: set[str]) -> None:
    """Write the files of an archive, gzipped ones plain; where some of them are wanted by name, or are pages,
    only those.
    """
    with tarfile.open(archive) as files:
        members = [
            each
            for each in files
            if each.isfile() and ".." not in each.name and not each.name.startswith("/")
        ]
        if any(each.name in wanted for each in members):
            members = [each for each in members if each.name in wanted]
        elif any(each.name.endswith("/source.html") for each in members):
            members = [each for each in members if each.name.endswith("/source.html")]
        for each in members:
            file = files.extractfile(each)
            assert file is not None
            data, path = file.read(), folder / each.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".gz":
                data, path = gzip.decompress(data), path.with_suffix("")
            path.write_bytes(data)


def generated(count: int) -> list[Document]:
    """Documents of some 70 words, drawn with the frequencies of a language: the n-th most common one time in
    n.
    """
    chance = random.Random(11)
    words = [_word(number) for number in range(WORDS)]
    shares = np.cumsum(1.0 / np.arange(1, WORDS + 1)).tolist()
    return [
        Document(
            id=str(number),
            title=" ".join(chance.choices(words, cum_weights=shares, k=5)),
            content=" ".join(chance.choices(words, cum_weights=shares, k=chance.randint(30, 110))),
        )
        for number in range(count)
    ]


class Clusters(Embedder):
    """Unit vectors near one of a thousand centres; the text chooses which, and where."""

    model = "clusters"

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.centres = np.random.default_rng(3).standard_normal((1000, dimensions))

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text, shape (dimensions,), float32."""
        made: list[Vector] = []
        for text in texts:
            seed = crc32(text.encode())
            row = self.centres[seed % 1000] + np.random.default_rng(seed).standard_normal(self.dimensions)
            made.append((row / np.linalg.norm(row)).astype("<f4"))
        return made


def _word(number: int) -> str:
    """The n-th word of a language of our own, of two to four syllables."""
    base, found = len(SYLLABLES), []
    number += base
    while number:
        number, syllable = divmod(number, base)
        found.append(SYLLABLES[syllable])
    return "".join(found)
