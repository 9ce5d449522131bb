"""How often the second turn of a conversation finds its passage, without a language model.

    python bench/conversations.py DATA

The conversations of `conversations.jsonl` are of two turns: the second one refers to the first by a word such
as "it", goes on from it with "And …", or changes the subject. Half of them are over the shipped example, half
over the English paragraphs of the collection `xquad` in DATA. A passage "stands" if one of the three best
documents holds its words. Exits 1 where fewer than 25 of 30 stand, or a change of subject is joined with what
was before it.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextrouter import ContextRouter, Document
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.cli.demo import PARTS, example
from contextrouter.cli.demo import _copy as copy_part
from contextrouter.contracts import Entry
from contextrouter.ingest import run

HERE = Path(__file__).resolve().parent
LEAST, DEEPEST = 25, 3
NOTE = "followup"


def conversations(over: str) -> list[dict[str, str]]:
    """The conversations over one library."""
    rows = [json.loads(line) for line in (HERE / "conversations.jsonl").read_text("utf-8").splitlines()]
    return [row for row in rows if row["over"] == over]


async def ask(router: ContextRouter, row: dict[str, str], *, history: bool = True) -> tuple[bool, bool]:
    """Ask the second turn. Returns whether its passage is among the best, and whether it was joined."""
    turns = ({"role": "user", "content": row["first"]},) if history else ()
    context = await router.route(row["second"], history=turns)
    best = [" ".join(envelope.document.content.split()) for envelope in context.envelopes[:DEEPEST]]
    return any(row["passage"] in text for text in best), NOTE in context.intent.attributes


async def over_example(folder: Path) -> list[tuple[dict[str, str], bool, bool, bool]]:
    for part in PARTS:
        copy_part(example() / part, folder / part)
    await run(folder / "settings.toml")
    async with ContextRouter.from_toml(folder / "settings.toml") as router:
        return await asked(router, conversations("demo"))


async def over_xquad(folder: Path, data: Path) -> list[tuple[dict[str, str], bool, bool, bool]]:
    lines = gzip.decompress((data / "xquad" / "corpus.jsonl.gz").read_bytes()).decode().splitlines()
    rows: list[dict[str, Any]] = [row for row in map(json.loads, lines) if row["lang"] == "en"]
    settings = {"providers": {"store": {"use": "sqlite", "path": str(folder / "xquad.db")}}}
    async with ContextRouter(settings) as router:
        store = router.engine.sources["store"]
        assert isinstance(store, Sqlite)
        documents = [
            Document(id=row["id"], title=row["title"].replace("_", " "), content=row["text"]) for row in rows
        ]
        embedder = router.instances.embedders[store.embedder or "default"]
        vectors = await embedder.embed([f"{d.title}\n{d.content}" for d in documents])
        entries = [
            Entry(document=d, chunks=[d], vectors={"vector": [vector]}, fingerprint=d.fingerprint)
            for d, vector in zip(documents, vectors, strict=True)
        ]
        await store.upsert(entries)
        return await asked(router, conversations("xquad"))


async def asked(
    router: ContextRouter, rows: Sequence[dict[str, str]]
) -> list[tuple[dict[str, str], bool, bool, bool]]:
    """Each conversation: whether its passage stands, whether it was joined, and whether it stands alone."""
    return [(row, *(await ask(router, row)), (await ask(router, row, history=False))[0]) for row in rows]


async def measure(data: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = [*await over_example(Path(folder)), *await over_xquad(Path(folder), data)]
    for row, stands, joined, _ in results:
        if not stands or (joined and row["kind"] == "change"):
            print(f"{'joined' if stands else 'missed'}: {row['first']} / {row['second']}")
    stand = sum(stands for _, stands, _, _ in results)
    alone = sum(alone for *_, alone in results)
    changed = sum(joined for row, _, joined, _ in results if row["kind"] == "change")
    print(
        f"{stand} of {len(results)} second turns find their passage in the {DEEPEST} best ({alone} without the"
        f" first turn); {changed} changes of subject joined"
    )
    return 0 if stand >= LEAST and not changed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    return asyncio.run(measure(parser.parse_args().data))


if __name__ == "__main__":
    raise SystemExit(main())
