"""Extraction of web pages: ours beside plain trafilatura, on the same pages, by the collection's own
measures.

    python bench/extraction.py FOLDER

FOLDER is the collection `html-extraction`: pages of the article extraction benchmark with their text
(precision, recall and F1 over shingles of four words, each page counting the same), and trafilatura's own
pages with strings that must and must not be in the text. Only the halves named `dev` are read. Ours is
Markdown, whose marks are taken off before comparing; of plain trafilatura, `extract()` as it comes and
without comments. Exits 1 when ours has a lower F1 than either on either.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import statistics
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import trafilatura

from contextrouter.builtin.connectors.pages.charset import page_text
from contextrouter.builtin.connectors.pages.extraction import Extractor

_TOKEN = re.compile(r"\w+")
_MARKS = re.compile(r"\*\*|__|`|^#+ |\\|(?<!\w)\*|\*(?!\w)", re.M)
Text = Mapping[str, str]


def members(path: Path) -> dict[str, bytes]:
    """The files of an archive, unpacked where they are packed."""
    with tarfile.open(path) as archive:
        files = {m.name: archive.extractfile(m) for m in archive if m.isfile()}
        read = {name: file.read() for name, file in files.items() if file is not None}
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in read.items()}


def shingles(text: str, size: int = 4) -> Counter[tuple[str, ...]]:
    """Runs of four words, with how often each occurs."""
    words = _TOKEN.findall(text)
    return (
        Counter(tuple(words[i : i + size]) for i in range(max(1, len(words) - size + 1)))
        if words
        else Counter()
    )


def by_shingles(gold: Text, found: Text) -> tuple[float, float, float]:
    """Precision, recall and F1, the first two as means over pages."""
    precision, recall = [], []
    for name, text in gold.items():
        true, ours = shingles(text), shingles(found[name])
        hit, extra, missed = (sum(c.values()) for c in (true & ours, ours - true, true - ours))
        precision.append(hit / (hit + extra) if hit + extra else float(not missed))
        recall.append(hit / (hit + missed) if hit + missed else float(not extra))
    p, r = statistics.mean(precision), statistics.mean(recall)
    return p, r, 2 * p * r / (p + r)


def by_strings(rows: list[dict[str, Any]], found: Text) -> tuple[float, float, float]:
    """Precision, recall and F1 over the strings that must and must not be in the texts."""
    hit = sum(text in found[row["file"]] for row in rows for text in row["must_contain"])
    wanted = sum(len(row["must_contain"]) for row in rows)
    extra = sum(text in found[row["file"]] for row in rows for text in row["must_not_contain"])
    p, r = hit / (hit + extra), hit / wanted
    return p, r, 2 * p * r / (p + r)


async def ours(pages: Text) -> tuple[Text, Counter[str], float]:
    """The pages as the `web` connector reads them; how each was got; the slowest, in seconds."""
    extractor = Extractor(60.0)
    await extractor.open()
    found, how = {}, Counter[str]()
    loop = asyncio.get_running_loop()
    slowest = 0.0
    for name, html in pages.items():
        started = loop.time()
        page = await extractor.read(html, "")
        slowest = max(slowest, loop.time() - started)
        found[name] = _MARKS.sub("", page.text)
        how[page.how or f"none: {page.why}"] += 1
    await extractor.aclose()
    return found, how, slowest


def plain(pages: Text, **options: Any) -> tuple[Text, float]:
    """The pages as trafilatura reads them, and the CPU seconds."""
    started = process_time()
    return {
        name: trafilatura.extract(html, **options) or "" for name, html in pages.items()
    }, process_time() - started


def compared(
    name: str, pages: Text, measure: Callable[[Text], tuple[float, float, float]]
) -> tuple[float, float]:
    """Print a table; return our F1 and the better one of plain trafilatura."""
    read, how, slowest = asyncio.run(ours(pages))
    rows = {
        "ours": read,
        "trafilatura": plain(pages)[0],
        "trafilatura, no comments": plain(pages, include_comments=False)[0],
    }
    print(f"{name}: {len(pages)} pages; ours by {dict(how)}, the slowest in {slowest:.2f} s")
    results = {each: measure(found) for each, found in rows.items()}
    for each, (p, r, f1) in results.items():
        print(f"  {each:<26} P {p:.4f}  R {r:.4f}  F1 {f1:.4f}")
    return results["ours"][2], max(f1 for each, (_, _, f1) in results.items() if each != "ours")


def main() -> int:
    if len(sys.argv) < 2:
        print("not measured: give the folder of the collection html-extraction")
        return 0
    folder = Path(sys.argv[1])
    with gzip.open(folder / "aeb-gold.dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    files = members(folder / "aeb-html.tar.gz")
    articles = {row["file"]: page_text(files[row["file"]], "") for row in rows}
    gold = {row["file"]: row["gold_text"] for row in rows}
    first = compared("article extraction benchmark", articles, lambda found: by_shingles(gold, found))
    rows = [
        json.loads(line) for line in (folder / "trafilatura-eval.dev.jsonl").read_text("utf-8").splitlines()
    ]
    files = members(folder / "trafilatura-pages.tar.gz")
    pages = {row["file"]: page_text(files[row["file"]], "") for row in rows}
    second = compared("trafilatura's pages", pages, lambda found: by_strings(rows, found))
    held = first[0] >= first[1] and second[0] >= second[1]
    pairs = "; ".join(f"{ours_:.4f} and {plain_:.4f}" for ours_, plain_ in (first, second))
    print(f"F1 of ours and of plain trafilatura at its best: {pairs}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
