"""The text leg of the store in Postgres without pg_textsearch: what kinds of questions cost, and whether scoring
few chunks finds what scoring all of them finds.

    python bench/postgres_text.py [FOLDER ...] [--chunks 100000] [--questions 100] [--dsn DSN]

Chunks are of words drawn as in a language; one in a hundred is of the tenant `small`. Questions are words of one
chunk, and words by the share of chunks that have them. Each is asked in turns with plain SQL: the chunks with any
of its terms, ordered by `ts_rank`. A time is what the server's process computes for it, so that other programs
count for little; it is read from /proc, so the server runs here, on Linux. Of a fifth of the questions, the ten
best are compared with those of a leg that counts and scores all chunks with a term.

FOLDER holds a judged collection (see `judged.py`): nDCG@10 and R@100 of the leg and of the one that scores all.
Without `--dsn` a server of its own is started in a temporary folder. Exits 1 where nDCG@10 or R@100 differs by
more than .001, and, from 100,000 chunks, where p99 of a kind is 100 ms or more.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, quantiles
from time import process_time
from typing import Any
from unittest.mock import patch

import asyncpg
from corpora import generated
from judged import BATCH, entries_of, read
from measures import NDCG, RECALL, Run, at_most, by_question
from postgres import LARGE, SMALL, on_server

from contextrouter.builtin.providers.postgres import Postgres, nomination
from contextrouter.model import Document, Query
from contextrouter.scope import Scope
from contextrouter.text.analysis import analyse

P99, DIFFERENCE = 100.0, 0.001
LIMIT, TURNS, COMPARED = 10, 2, 5
SHARES = {
    "three words of 60 % and more": (0.6, 1.0),
    "three words of 15 to 60 %": (0.15, 0.6),
    "three words of 5 to 15 %": (0.05, 0.15),
    "three words of less than .1 %": (0.0, 0.001),
}
PLAIN = (
    "SELECT id FROM {}.chunks WHERE terms @@ $1::text::tsquery AND ($2 = '' OR tenant = $2)"
    f" ORDER BY ts_rank(terms, $1::text::tsquery) DESC, id LIMIT {LIMIT}"
)


@contextlib.contextmanager
def scoring_all() -> Iterator[None]:
    """Within, every chunk with a term is counted and scored."""
    with patch.multiple(nomination, WHOLE=sys.maxsize, LEAST_SCORED=sys.maxsize):
        yield


def questions(documents: Sequence[Document], many: int) -> dict[str, list[str]]:
    """Questions of every kind."""
    chance = random.Random(5)
    texts = [document.content.split() for document in documents]
    asked = {
        f"{name} words of one chunk": [" ".join(chance.sample(chance.choice(texts), k)) for _ in range(many)]
        for name, k in (("three", 3), ("twelve", 12))
    }
    counts = Counter(word for text in texts for word in set(text))
    for name, (low, high) in SHARES.items():
        words = [word for word, n in counts.items() if low * len(texts) <= n < high * len(texts) and n > 1]
        if len(words) >= 3:
            asked[name] = [" ".join(chance.sample(words, 3)) for _ in range(many)]
    return asked


async def filled(dsn: str, documents: Sequence[Document]) -> Postgres:
    """A store of text alone in a schema of its own."""
    store = Postgres(dsn=dsn, schema=f"text_{uuid.uuid4().hex[:20]}", embedder=None, pool_size=1)
    await store.open()
    await store.begin_load(None)
    for start in range(0, len(documents), BATCH):
        await store.upsert(await entries_of(documents[start : start + BATCH], None))
    await store.end_load()
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"VACUUM ANALYZE {store.pool.schema}.chunks")
    await connection.close()
    return store


async def removed(store: Postgres) -> None:
    """Close the store and take its schema away."""
    async with store.pool.alone() as connection:
        await connection.execute(f'DROP SCHEMA "{store.pool.schema}" CASCADE')
    await store.aclose()


async def ids(store: Postgres, query: Query) -> set[str]:
    """What is found."""
    return {hit.document.id for hit in await store.search(query)}


def spread(times: Sequence[float]) -> tuple[float, float, float]:
    """p50, p95 and p99."""
    cuts = quantiles(times, n=100)
    return cuts[49], cuts[94], cuts[98]


def computed(process: int) -> float:
    """Milliseconds that a process of the server has computed."""
    return int(Path(f"/proc/{process}/schedstat").read_text("ascii").split()[0]) / 1e6


async def asked_in_turns(store: Postgres, dsn: str, texts: Sequence[str], scope: Scope | None) -> list[Any]:
    """Milliseconds of the server for each question, for plain SQL, and of this process for a question."""
    plain, ours, theirs = await asyncpg.connect(dsn), [], []
    await plain.execute("SET max_parallel_workers_per_gather = 0")
    hand = plain.get_server_pid()
    async with store.pool.transaction() as connection:
        mine = connection.get_server_pid()
    cpu, sql, tenant = 0.0, PLAIN.format(store.pool.schema), (scope.tenant if scope else "") or ""
    for text in texts:
        query = Query(text=text, leg="text", limit=LIMIT, scope=scope)
        terms = " | ".join(f"'{term}'" for term in dict.fromkeys(analyse(text)) if term)
        turns = []
        for _ in range(TURNS):
            before, server, other = process_time(), computed(mine), computed(hand)
            await store.search(query)
            cpu += process_time() - before
            await plain.fetch(sql, terms, tenant)
            turns.append((computed(mine) - server, computed(hand) - other))
        ours.append(min(one for one, _ in turns))
        theirs.append(min(other for _, other in turns))
    await plain.close()
    return [ours, theirs, cpu * 1e3 / len(texts) / TURNS]


async def times(dsn: str, chunks: int, many: int) -> bool:
    """Every kind of question over made chunks; whether the limit holds."""
    documents = [
        each.replace(tenant="small" if n % 100 == 0 else "large") for n, each in enumerate(generated(chunks))
    ]
    store = await filled(dsn, documents)
    print(f"\n{chunks:,} chunks; CPU ms: p50, p95, p99 of the leg; p99 of plain SQL; this process")
    slowest = 0.0
    for kind, texts in questions(documents, many).items():
        for scope in (None, SMALL):
            ours, theirs, cpu = await asked_in_turns(store, dsn, texts, scope)
            alike = []
            for text in texts[::COMPARED]:
                query = Query(text=text, leg="text", limit=LIMIT, scope=scope)
                with scoring_all():
                    every = await ids(store, query)
                if every:
                    alike.append(len(every & await ids(store, query)) / len(every))
            p50, p95, p99 = spread(ours)
            slowest, good = max(slowest, p99), p99 < P99 or chunks < LARGE
            name = kind + (", of 1 % of the chunks" if scope else "")
            print(
                f"  {name:<52}{p50:7.1f}{p95:7.1f}{p99:7.1f}{spread(theirs)[2]:9.1f}{cpu:7.1f}   {mean(alike or [1.0]):.3f} of"
                f" the ten best{'' if good else '   BEYOND THE LIMIT'}",
                flush=True,
            )
    await removed(store)
    print(f"text leg, {chunks:,} chunks: p99 of the slowest kind of question {slowest:.0f} CPU-ms")
    return slowest < P99 or chunks < LARGE


async def judged(dsn: str, folder: Path) -> bool:
    """nDCG@10 and R@100 on a judged collection in one store; whether few chunks scored are as good as all."""
    collection = read(folder)
    store = await filled(dsn, collection.documents)
    means = []
    for name, manner in (("few", contextlib.nullcontext), ("all", scoring_all)):
        run = Run(name)
        with manner():
            for question in collection.judged:
                query = Query(text=question.text, leg="text", limit=100, scope=question.scope)
                run.found[question.id] = [(h.document.id, h.score or 0.0) for h in await store.search(query)]
        values = by_question(run, collection, (NDCG, RECALL))
        means.append({metric: mean(found.values()) for metric, found in values.items()})
    await removed(store)
    few, every = means
    print(
        f"\n{collection.name}: {len(collection.documents):,} documents, {len(collection.judged):,} questions"
    )
    for metric in (NDCG, RECALL):
        print(f"  {metric}: {few[metric]:.4f}, all scored {every[metric]:.4f}")
    worst = max(abs(few[metric] - every[metric]) for metric in (NDCG, RECALL))
    return at_most("difference", round(worst, 4), DIFFERENCE)


async def measure(dsn: str, asked: argparse.Namespace) -> int:
    """Collections, then times; 1 when a limit is missed."""
    held = [await judged(dsn, folder) for folder in asked.folders]
    held.append(await times(dsn, asked.chunks, asked.questions))
    return 0 if all(held) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="The text leg of the store in Postgres")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--chunks", type=int, default=LARGE)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--dsn", default="")
    return on_server(measure, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
