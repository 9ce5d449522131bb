"""Whether the store in Postgres finds what the embedded one finds, on judged collections: text by nDCG@10,
vectors one by one.

    python bench/agreement.py FOLDER... [--dsn DSN]

FOLDER holds a judged collection (see `judged.py`). Both stores are filled with the same documents and the
vectors of the embedder `static`, and asked every judged question. The vector leg of Postgres measures all.
Without `--dsn` a server of its own is started. Exits 1 when nDCG@10 of a text leg is below .9 of the embedded
store's, or one question's ten nearest are other documents.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from judged import BATCH, Collection, entries_of, read, stores
from postgres import started

from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.contracts import Embedder, Provider
from contextrouter.model import Query

LEAST, LIMIT = 0.9, 10


def ndcg(found: Sequence[str], grades: Mapping[str, int]) -> float:
    """nDCG@10 as trec_eval has it: the grade is the gain, the ideal is over all that are judged."""
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:LIMIT]
    ideal = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(best))
    return (
        sum(max(grades.get(id, 0), 0) / math.log2(rank + 2) for rank, id in enumerate(found[:LIMIT])) / ideal
    )


async def filled(dsn: str, collection: Collection, embedder: Embedder) -> Postgres:
    """A store in a schema of its own with the collection in it."""
    store = Postgres(dsn=dsn, schema=f"agreement_{uuid.uuid4().hex[:20]}", exact_below=10_000_000)
    await store.open()
    await store.embedded_by(embedder.model, embedder.dimensions)
    for start in range(0, len(collection.documents), BATCH):
        await store.upsert(await entries_of(collection.documents[start : start + BATCH], embedder))
    return store


async def ids(store: Provider, query: Query) -> list[str]:
    """What a store finds, in order."""
    return [hit.document.id for hit in await store.search(query)]


async def compare(folder: Path, dsn: str, build: Path, embedder: Embedder) -> bool:
    """One collection in both stores; prints what was found, and says whether it holds."""
    collection = read(folder)
    if len(collection.sources) > 1:
        raise SystemExit(f"{folder}: has several sources; name a collection of one.")
    (embedded,) = (await stores(collection, build / collection.name, embedder)).values()
    server = await filled(dsn, collection, embedder)
    scores: dict[str, list[float]] = {"sqlite": [], "postgres": []}
    alike = 0
    for question in collection.judged:
        (vector,) = await embedder.embed([question.text], query=True)
        nearest = []
        for name, store in (("sqlite", embedded), ("postgres", server)):
            query = Query(text=question.text, leg="text", limit=LIMIT, vector=vector)
            scores[name].append(ndcg(await ids(store, query), collection.grades[question.id]))
            nearest.append(set(await ids(store, query.replace(leg="vector"))))
        alike += nearest[0] == nearest[1]
    await embedded.aclose()
    await server.clear()
    await server.aclose()
    asked = len(collection.judged)
    theirs, ours = (sum(each) / asked for each in scores.values())
    held = ours >= LEAST * theirs and alike == asked
    print(
        f"{collection.name}: text nDCG@10 postgres {ours:.4f}, sqlite {theirs:.4f} ({ours / theirs:.3f} of"
        f" it); the same ten nearest for {alike} of {asked} questions{'' if held else '   BEYOND THE LIMIT'}",
        flush=True,
    )
    return held


async def measure(dsn: str, folders: Sequence[Path], build: Path) -> int:
    """Every collection; 1 when one of them does not hold."""
    embedder = Static()
    await embedder.open()
    held = [await compare(folder, dsn, build, embedder) for folder in folders]
    await embedder.aclose()
    return 0 if all(held) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Postgres beside the embedded store on judged collections")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--dsn", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        return asyncio.run(measure(asked.dsn or started(Path(folder)), asked.folders, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
