"""Cutting: the laws on every document of the folders named, how fast each strategy is, and LlamaIndex's and
LangChain's splitters.

    [BENCH_PEERS=1] python bench/chunking.py [--rounds 3] [--quick] [FOLDER ...]

Of folders all files are read; without any, those of the collections chunker-docs, html-extraction and feeds
in the folder that BENCH_DATA names, and without that, this package's own documents and code. Every chunk of
every document is held to the laws: a slice of the text that was parsed, not blank, not above the maximum,
nothing lost between, ids distinct. Times are CPU seconds of one pass over texts in memory, best of the
rounds, the memory of words emptied before each. With BENCH_PEERS each peer is installed in an environment of
its own, where it and this package cut the same texts in turns, with the same tokenizer and the same sizes;
what a peer cuts at headings it then cuts to size, for that is what ours does, too. Exits 1 when a law is
broken, when `fixed` takes longer than the faster splitter of a peer, or `headings` 1.5 x as long.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

import corpora
from peers import RESULT, environment

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.transforms.chunking import Chunk, Fixed, Headings
from contextrouter.model import Document
from contextrouter.text import tokens

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "collections"
OWN = [HERE.parent / "docs", HERE.parent / "contextrouter"]
PEERS = {"llamaindex": "llama-index-core>=0.14", "langchain": "langchain-text-splitters>=1.0"}
TARGET, MAXIMUM, OVERLAP = 512, 1024, 50
BETWEEN = re.compile(r"[\s,\ufeff]+")
"""What may be left out: blank space everywhere, commas between records."""
LIMITS = {"fixed": 1.0, "headings": 1.5}
Cut = Callable[[str], Sequence[object]]


async def read(folders: Sequence[Path], patterns: Sequence[str]) -> tuple[list[Document], list[str]]:
    """What is in the folders, parsed, and what could not be."""
    documents: list[Document] = []
    problems: list[str] = []
    for folder in folders:
        source = Files(path=str(folder), patterns=patterns, max_files=1_000_000)
        await source.open()
        documents += [document async for document in source.crawl()]
        problems += source.problems
        await source.aclose()
    return [document for document in documents if document.content.strip()], problems


def broken(document: Document, chunks: Sequence[Document]) -> list[str]:
    """Which laws the chunks of a document break, and how."""
    text, covered, found = document.content, 0, []
    for chunk in chunks:
        start, end, header = (chunk.metadata.get(name) for name in ("start", "end", "header"))
        if chunk.content != (text[slice(*header)] if header else "") + text[start:end]:
            found.append(f"chunk at {start} is no slice of the text")
        if not chunk.content.strip():
            found.append(f"chunk at {start} is blank")
        if (size := tokens.count(chunk.content)) > MAXIMUM:
            found.append(f"chunk at {start} has {size} tokens")
        if lost := BETWEEN.sub("", text[covered:start]):
            found.append(f"{lost[:40]!r} before {start} is lost")
        covered = max(covered, end)
    if lost := BETWEEN.sub("", text[covered:]):
        found.append(f"{lost[:40]!r} at the end is lost")
    if len({chunk.id for chunk in chunks}) < len(chunks):
        found.append("two chunks have one id")
    return found


def laws(documents: Sequence[Document]) -> int:
    """Hold every chunk to the laws and print what was found; return how many violations there were."""
    chunker, count, chunks, violations = Chunk(), Counter[str](), Counter[str](), 0
    seconds: Counter[str] = Counter()
    for document in documents:
        began = process_time()
        made = chunker.cut(document)
        kind = type(chunker.strategy(document)).__name__.lower()
        seconds[kind] += process_time() - began  # type: ignore[assignment]  # the table starts with whole numbers
        count[kind] += 1
        chunks[kind] += len(made)
        for what in broken(document, made):
            violations += 1
            print(f"VIOLATION {document.id}: {what}")
    print(f"{'strategy':<12}{'documents':>10}{'chunks':>9}{'s':>8}{'documents/s':>13}{'chunks/s':>11}")
    for kind in sorted(count):
        took = max(seconds[kind], 1e-9)
        print(
            f"{kind:<12}{count[kind]:>10}{chunks[kind]:>9}{took:>8.2f}{count[kind] / took:>13.0f}{chunks[kind] / took:>11.0f}"
        )
    print(f"laws: {sum(count.values())} documents, {sum(chunks.values())} chunks, {violations} violations")
    return violations


def ours() -> dict[str, dict[str, Cut]]:
    """This package as a contestant: name -> strategy -> what cuts a text."""
    fixed, headings = (made(target=TARGET, maximum=MAXIMUM, overlap=OVERLAP) for made in (Fixed, Headings))
    return {
        "contextrouter": {
            "fixed": lambda text: fixed.cut(Document(id="d", content=text)),
            "headings": lambda text: headings.cut(Document(id="d", content=text, media_type="text/markdown")),
        }
    }


def race(
    texts: dict[str, list[str]], contestants: dict[str, dict[str, Cut]], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """strategy -> contestant -> [CPU seconds of the best round, chunks]; contestants take turns in each
    round.
    """
    best: dict[str, dict[str, list[float]]] = {strategy: {} for strategy in LIMITS}
    for _ in range(rounds):
        for name, cuts in contestants.items():
            for strategy, cut in cuts.items():
                tokens._seen.clear()
                began = process_time()
                made = sum(len(cut(text)) for text in texts[strategy])
                took = process_time() - began
                if took < best[strategy].get(name, [float("inf")])[0]:
                    best[strategy][name] = [took, made]
    return best


def against(peer: str, texts: dict[str, list[str]], rounds: int) -> tuple[bool, str]:
    """Race in the peer's own environment; whether the limits hold, and what was found."""
    python = environment(f"chunking-{peer}", PEERS[peer], "[static,markdown,code]")
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(texts, file)
        file.flush()
        quiet = {**os.environ, "BENCH_PEER": peer, "PYTHONWARNINGS": "ignore"}
        command = [str(python), str(HERE / "chunking.py"), "--rounds", str(rounds), "--texts", file.name]
        done = subprocess.run(command, check=True, env=quiet, stdout=subprocess.PIPE, text=True)
    best = json.loads(
        next(line for line in done.stdout.splitlines() if line.startswith(RESULT)).removeprefix(RESULT)
    )
    held, said = True, []
    for strategy, found in best.items():
        mine, count = found.pop("contextrouter")
        for name, (took, made) in found.items():
            characters = sum(map(len, texts[strategy])) / 1e6
            print(
                f"{strategy:<10} {name:<44}{took:>8.2f} s{made:>8.0f} chunks   ours{mine:>8.2f}"
                f" s{count:>8.0f} chunks   {mine / took:>6.2f} x   {len(texts[strategy])} texts,"
                f" {characters:.1f} MB"
            )
        ratio = mine / min(took for took, _ in found.values())
        held &= ratio <= LIMITS[strategy]
        said.append(f"{strategy} {ratio:.2f} x {peer}")
    return held, ", ".join(said)


def main() -> int:
    given = argparse.ArgumentParser()
    given.add_argument("folders", nargs="*", type=Path)
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--quick", action="store_true")
    given.add_argument("--texts", type=Path)
    asked = given.parse_args()
    if peer := os.environ.get("BENCH_PEER"):
        texts = json.loads(asked.texts.read_text("utf-8"))
        contestants = {**ours(), **importlib.import_module(f"chunking_{peer}").contestants(TARGET, OVERLAP)}
        print(RESULT + json.dumps(race(texts, contestants, asked.rounds)))
        return 0
    data = os.environ.get("BENCH_DATA")
    folders = asked.folders or (corpora.unpacked(Path(data), BUILD) if data else [])
    documents, problems = asyncio.run(read(folders, ["*"]) if folders else read(OWN, ["*.md", "*.py"]))
    for problem in problems[:5]:
        print(f"reported: {problem}")
    print(f"{len(documents)} documents, {len(problems)} problems reported while they were parsed")
    if asked.quick:
        documents = documents[::5]
    violations = laws(documents)
    texts = {
        "fixed": [document.content for document in documents],
        "headings": [document.content for document in documents if document.media_type == "text/markdown"],
    }
    held, said = violations == 0, [f"{len(documents)} documents, {violations} violations"]
    if os.environ.get("BENCH_PEERS"):
        for peer in PEERS:
            kept, found = against(peer, texts, asked.rounds)
            held &= kept
            said.append(found)
    else:
        said.append("peers are measured with BENCH_PEERS=1")
    print("; ".join(said))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
