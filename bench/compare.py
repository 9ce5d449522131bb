"""What this checkout costs beside another checkout of this project: a question, ingestion, the first answer,
and the disk.

    python bench/compare.py --with FOLDER [--data FOLDER] [--rounds N] [MEASURE ...]

FOLDER of `--with` is the other checkout (`git worktree add FOLDER COMMIT`), that of `--data` holds the
collections scifact, multihop-rag-500 and chunker-docs (else BENCH_DATA does). MEASURE is one of LIMITS; all
are taken without any. Each is taken in a process of its own (`compare_work.py`), of one checkout and the
other in turns, so that a busy machine slows both.

Each checkout fills stores of its own by its ingestion: transforms `chunk` and `keywords`, embedder `static`;
questions are asked with default settings. What the process that parses files takes is printed beside the
ingestion: it is that of other packages. Printed are the median CPU seconds of both, the median of the
rounds' ratios, the bytes of the stores, and how many answers have the same documents in the same order.
Exits 1 when a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import corpora

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "collections"
NAME = "contextrouter-rag"  # whose installed metadata is put aside
COLLECTIONS = ("scifact", "multihop-rag-500")
LIMITS = {"disk": 0.8, "scifact": 0.5, "multihop-rag-500": 0.6, "ingestion": 0.6, "cold": 0.7}
"""The most that each measure may be of the other checkout's."""


@dataclass
class Checkout:
    """One of the two: its name in the output, its folder, and where its stores are."""

    name: str
    folder: Path
    stores: Path
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @cached_property
    def metadata(self) -> Path:
        """A folder with the names of this checkout's plugins: those of the installed one may be others."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))["project"]
        folder = self.stores / self.name / "contextrouter_rag-0.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n", "utf-8")
        groups = [
            "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in names.items())])
            for group, names in project["entry-points"].items()
        ]
        (folder / "entry_points.txt").write_text("\n\n".join(groups) + "\n", "utf-8")
        return folder.parent

    def store(self, collection: str) -> Path:
        """The path of a store."""
        return self.stores / f"{self.name}-{collection}.db"

    def run(self, *arguments: str | Path) -> dict[str, Any]:
        """What `compare_work.py` prints when it imports this checkout."""
        environment = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-P", str(HERE / "compare_work.py"), *map(str, arguments)]
        done = subprocess.run(
            command,
            env=environment | {"PYTHONPATH": os.pathsep.join(map(str, (self.metadata, self.folder)))},
            cwd=self.stores,
            check=True,
            stdout=subprocess.PIPE,
        )
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


@dataclass
class Comparison:
    """The two checkouts, this one second, and what was measured of them."""

    pair: tuple[Checkout, Checkout]
    data: Path
    rounds: int
    missed: list[str] = field(default_factory=list)

    def show(self, measure: str, values: list[tuple[float, float]], unit: str, note: str = "") -> None:
        """Print one line, and hold it to its limit."""
        before, now = (statistics.median(value) for value in zip(*values, strict=True))
        ratio, limit = statistics.median(new / old for old, new in values), LIMITS.get(measure)
        verdict = "  MISSED" if limit is not None and ratio > limit else ""
        held_to = "" if limit is None else f" (at most {limit})"
        print(
            f"{measure:<24}{before:>12.4f}{now:>12.4f} {unit:<3}{ratio:>6.2f} x{held_to}{verdict}  {note}",
            flush=True,
        )
        if verdict:
            self.missed.append(f"{measure} {ratio:.2f} x")

    def take(self, *names: str | Path, store: str, fresh: bool = False) -> list[tuple[Any, Any]]:
        """Run one measure in turns, over the store of a collection, or one that is new each time."""
        rows: list[tuple[Any, Any]] = []
        for number in range(self.rounds):
            row: dict[str, Any] = {}
            for each in self.pair if number % 2 else self.pair[::-1]:
                path = each.store(store)
                if fresh:
                    remove(path)
                row[each.name] = each.run(*(path if name == "STORE" else name for name in names))
            rows.append((row[self.pair[0].name], row[self.pair[1].name]))
        return rows

    def fill(self) -> None:
        """Fill the stores that are missing."""
        for each in self.pair:
            for name in COLLECTIONS:
                if not each.store(name).exists():
                    each.run("fill", self.data / name, each.store(name))

    def disk(self) -> None:
        """Compare the bytes of the stores. The small one has no limit: its tables take 16 kB each, empty."""
        for name in COLLECTIONS:
            old, new = (each.store(name).stat().st_size / 1e6 for each in self.pair)
            self.show("disk" if name == COLLECTIONS[0] else f"disk of {name}", [(old, new)], "MB")

    def questions(self, name: str) -> None:
        """Compare the questions over a collection."""
        rows = self.take("ask", self.data / name, "STORE", store=name)
        old, new = (row["answers"] for row in rows[0])
        equal = sum(before == now for before, now in zip(old, new, strict=True))
        first = sum(before[:1] == now[:1] for before, now in zip(old, new, strict=True))
        note = f"{equal} of {len(new)} answers equal, {first} with the same first document"
        self.show(name, _seconds(rows), "s", note)

    def ingestion(self) -> None:
        """Compare the ingestion of files."""
        folder = next(
            folder for folder in corpora.unpacked(self.data, BUILD) if folder.name == "chunker-docs"
        )
        rows = self.take("files", folder, "STORE", store="files", fresh=True)
        old, new = ("{documents} documents, {chunks} chunks".format(**row) for row in rows[0])
        parsing = [statistics.median(row[which]["parsing"] for row in rows) for which in (0, 1)]
        beside = f"in processes that parse {parsing[0]:.2f} s; {parsing[1]:.2f} s"
        self.show("ingestion", _seconds(rows), "s", f"{old}; {new}; {beside}")

    def cold(self) -> None:
        """Compare the first answer of a new process."""
        file = self.data / "scifact" / "queries.dev.jsonl"
        question = json.loads(file.read_text("utf-8").splitlines()[0])["text"]
        self.take("cold", "STORE", question, store="scifact")  # byte code is written
        self.show("cold", _seconds(self.take("cold", "STORE", question, store="scifact")), "s")


def remove(path: Path) -> None:
    """Remove a store and the files beside it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def _seconds(rows: list[tuple[Any, Any]]) -> list[tuple[float, float]]:
    return [(old["seconds"], new["seconds"]) for old, new in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description="This checkout beside another one")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(LIMITS))
    parser.add_argument("--with", dest="other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--data", type=Path, default=os.environ.get("BENCH_DATA"), help="the collections")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", type=Path, help="keep the stores in this folder; else they are temporary")
    asked = parser.parse_args()
    if unknown := [name for name in asked.measures if name not in LIMITS]:
        parser.error(f"Measure {unknown[0]!r} is not known; give {', '.join(LIMITS)}.")
    if not asked.data or not Path(asked.data).is_dir():
        parser.error("The collections are not there; give their folder by --data or BENCH_DATA.")
    if not (asked.other / "contextrouter" / "__init__.py").is_file():
        parser.error(f"Folder {str(asked.other)!r} is no checkout of this project; give one by --with.")
    with tempfile.TemporaryDirectory() as temporary:
        stores = (asked.stores or Path(temporary)).resolve()
        stores.mkdir(parents=True, exist_ok=True)
        pair = (Checkout("other", asked.other.resolve(), stores), Checkout("this", HERE.parent, stores))
        comparison = Comparison(pair, Path(asked.data).resolve(), max(asked.rounds, 1))
        print(f"{'median':<24}{'other':>12}{'this':>12}")
        comparison.fill()
        for measure in asked.measures or LIMITS:
            if measure in COLLECTIONS:
                comparison.questions(measure)
            else:
                getattr(comparison, measure)()
    print("; ".join(comparison.missed) or "every ratio is within its limit")
    return 1 if comparison.missed else 0


if __name__ == "__main__":
    sys.exit(main())
