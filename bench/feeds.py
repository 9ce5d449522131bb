"""Feeds as they are: each gives its items, or a precise reason.

    python bench/feeds.py FOLDER

FOLDER is the collection `feeds`: captured feeds with an index of what a reference parser reads of each, pairs
with the parse that is expected, and the reference parser's own test suite. Each is parsed as bytes that came
without a content type. Exits 1 for a crash, a feed that takes more than SECONDS, an empty reason, a captured
feed with fewer items than the index counts and no reason for each missing one.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from contextrouter.builtin.connectors.pages.feed_parser import parse_feed

SECONDS = 5.0
ALL = 1_000_000  # items


class Read(NamedTuple):
    """What became of one feed."""

    items: int
    problems: list[str]
    reason: str  # why there are none
    crashed: str
    seconds: float


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()


def read(body: bytes, url: str) -> Read:
    started = perf_counter()
    items, problems, reason, crashed = 0, [], "", ""
    try:
        feed = parse_feed(body, url, max_items=ALL)
        items, problems = len(feed.documents), feed.problems
        reason = "" if items else "; ".join(problems) or "it has no items"
    except ValueError as error:
        reason = str(error)
    except Exception as error:
        crashed = f"{type(error).__name__}: {error}"
    return Read(items, problems, reason, crashed, perf_counter() - started)


def captured(folder: Path) -> int:
    """The captured feeds and the golden pairs, beside the index; returns how much is wrong."""
    index = {
        row["file"]: row for row in map(json.loads, (folder / "index.jsonl").read_text("utf-8").splitlines())
    }
    found = {
        name: read(body, came_from(index[name]["link"]))
        for name, body in members(folder / "feeds.tar.gz")
        if name in index
    }
    given = sum(row["entries"] for row in index.values())
    fewer = {n: r for n, r in found.items() if r.items < index[n]["entries"]}
    told = {n: r.items + len(r.problems) + bool(r.reason) for n, r in fewer.items()}
    unexplained = {n: r for n, r in fewer.items() if told[n] < index[n]["entries"] and not repeated(r)}
    items = sum(r.items for r in found.values())
    print(f"captured: {len(found)} of {len(index)} feeds; {items} items of {given} that the index counts")
    some, named = sum(r.items > 0 for r in found.values()), sum(bool(r.problems) for r in found.values())
    print(f"  with items {some}, with a reason instead {len(found) - some}, with problems named {named}")
    for name, r in fewer.items():
        why = r.reason or "; ".join(r.problems) or "the others come twice"
        print(f"  {name}: {r.items} of {index[name]['entries']}: {why[:150]}")
    return bad(found) + len(unexplained) + (len(index) - len(found))


def came_from(link: str) -> str:
    """An address that the feed may have come from."""
    return link if link.startswith(("http://", "https://")) else "https://example.org/feed"


def repeated(r: Read) -> bool:
    """Whether what is missing are items that come twice: nothing was left out for a reason."""
    return not r.problems and not r.reason


def suite(folder: Path) -> int:
    """The reference parser's test suite; returns how much is wrong."""
    archive = next(iter(sorted(folder.glob("feedparser-*-tests.tar.gz"))))
    found = {
        name: read(body, "https://example.org/feed")
        for name, body in members(archive)
        if name.endswith((".xml", ".json"))
    }
    reasons = Counter(kind(r.reason) for r in found.values() if not r.items)
    some = sum(r.items > 0 for r in found.values())
    print(f"test suite: {len(found)} files; with items {some}, with a reason instead {sum(reasons.values())}")
    for reason, count in reasons.most_common(12):
        print(f"  {count:5}  {reason}")
    return bad(found)


def kind(reason: str) -> str:
    return reason.split("(")[0].split(":")[0].strip()[:90]


def bad(found: dict[str, Read]) -> int:
    wrong = {n: r for n, r in found.items() if r.crashed or r.seconds > SECONDS or not (r.items or r.reason)}
    for name, r in wrong.items():
        print(f"  WRONG {name}: {r.crashed or f'{r.seconds:.1f} s'}")
    name, slowest = max(found.items(), key=lambda pair: pair[1].seconds)
    print(
        f"  crashes {sum(bool(r.crashed) for r in found.values())}; the slowest, {name}, took"
        f" {slowest.seconds:.2f} s"
    )
    return len(wrong)


def main() -> int:
    if len(sys.argv) < 2:
        print("not measured: give the folder of the collection feeds")
        return 0
    folder = Path(sys.argv[1])
    wrong = captured(folder) + suite(folder)
    print(f"{wrong} feeds without items and without a reason, crashed, or too slow")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
