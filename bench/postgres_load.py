"""Filling a store in Postgres: CPU and wall time of a job, beside another checkout of this package.

    python bench/postgres_load.py [--documents 2000] [--rounds 3] [--against CHECKOUT] [--workers 2]
    python bench/postgres_load.py --fingerprints 1000000

2,000 Markdown documents of four chunks each are chunked, embedded by the default embedder and stored, each
time into an empty schema of one server. The runs alternate. CPU is that of the client, with its workers, and
of the server. The rows of each run are compared. Exits 1 if rows differ, if the CPU is more than .65 of the
other checkout's, or the wall time with two workers more than .4 of it.

With `--fingerprints` a store that holds so many fingerprints is compared with a source that lists the same
documents. Exits 1 if the process needs 200 MB or more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import asyncpg
import psutil

from contextrouter.model import Document

if TYPE_CHECKING:
    from compare import Checkout

HERE = Path(__file__).resolve().parent
CPU, WALL, MEGABYTES = 0.65, 0.4, 200
DIGEST = """
SELECT md5(string_agg(line, '' ORDER BY line)) FROM (
  SELECT concat_ws('|', tenant, id, kind, labels, updated_at, fingerprint, payload) AS line FROM documents
  UNION ALL SELECT concat_ws('|', document, place, id, length, filters, terms, vector, keywords, payload) FROM chunks
  UNION ALL SELECT concat_ws('|', tenant, compartment, sensitivity, chunks, length) FROM counts
) s
"""


def write_documents(folder: Path, count: int) -> None:
    """Write Markdown documents of four sections, of words as frequent as in a language."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghiklmnoprstu", k=chance.randint(3, 10))) for _ in range(8_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    for number in range(count):
        sections = [
            f"## {' '.join(chance.choices(words, weights, k=3)).title()}\n\n"
            + "".join(f"{' '.join(chance.choices(words, weights, k=12)).capitalize()}. " for _ in range(4))
            for _ in range(4)
        ]
        (folder / f"d{number:05}.md").write_text(f"# Document {number}\n\n" + "\n\n".join(sections))


def settings(folder: Path, dsn: str, schema: str, **ingest: Any) -> str:
    """Return the settings of the job, as TOML."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in ingest.items()]
    return "\n".join(
        [
            "[embedders.default]\nuse = 'static'",
            f"[providers.docs]\nuse = 'postgres'\ndsn = '{dsn}'\nschema = '{schema}'",
            "[transforms.chunk]\noverlap = 0\n[transforms.keywords]",
            f"[connectors.notes]\nuse = 'files'\npath = '{folder}'\nmax_files = 1000000\nenabled = false",
            "[ingest]",
            *lines,
            "[ingest.notes]\nfrom = 'notes'\nto = 'docs'\ntransforms = ['chunk', 'keywords']",
        ]
    )


async def load(path: str) -> None:
    """Run the job, and print what it took as JSON: this is done by a process of its own."""
    from contextrouter import ContextRouter
    from contextrouter.ingest import run

    def cpu() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return process_time() + children.ru_utime + children.ru_stime

    async with ContextRouter.from_toml(path) as router:
        before, clock = cpu(), perf_counter()
        report = (await run(router))["notes"]
        wall = perf_counter() - clock
    figures = {"documents": report.documents, "chunks": report.chunks, "added": report.added}
    print(json.dumps({**figures, "problems": len(report.skipped), "wall": wall, "client": cpu() - before}))


class Listed:
    """A source that lists so many documents, all in the version that the store has, but for every thousandth,
    which is gone.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    async def crawl(self) -> AsyncIterator[Document]:
        raise NotImplementedError("the store has every version")
        yield

    async def crawl_since(self, known: Mapping[str, str]) -> AsyncIterator[tuple[str, str, Document | None]]:
        """Yield id and version of each document, without its content."""
        for number in range(self.count):
            if number % 1_000:
                id, version = f"folder/document-{number:08}.md", f"version{number}"
                if known.get(id) != version:
                    raise ValueError(f"{id} has another version in the store")
                yield id, version, None


async def compare_fingerprints(dsn: str, count: int) -> None:
    """Run a job over a store of so many documents, and print what it took as JSON."""
    from contextrouter.builtin.providers.postgres import Postgres
    from contextrouter.ingest import ingest
    from contextrouter.ingest.document_versions import recipe_digest
    from contextrouter.ingest.preparation import configuration

    store = Postgres(dsn=dsn, schema="many", embedder=None, statement_timeout=600.0)
    await store.open()
    await store.migrate()
    recipe = recipe_digest(configuration([], None, ()), {})
    async with store.pool.transaction(write=True) as connection:
        await connection.execute(
            "INSERT INTO documents SELECT '', 'x:folder/document-' || lpad(n::text, 8, '0') || '.md', '', '', '',"
            " 'document', '', '{}', NULL, NULL, encode(sha256(n::text::bytea), 'hex') || '.' || $2 || '.version'"
            " || n, '' FROM generate_series(0, $1 - 1) AS n",
            count,
            recipe,
        )
    before, clock = process_time(), perf_counter()
    report = await ingest(Listed(count), store, [], None, origin="x")
    wall, cpu = perf_counter() - clock, process_time() - before
    await store.aclose()
    figures = {"unchanged": report.unchanged, "deleted": report.deleted, "wall": wall, "client": cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**figures, "megabytes": peak, "problems": len(report.skipped)}))


def fingerprints(dsn: str, count: int) -> int:
    """Measure the memory of a process that compares so many fingerprints."""
    command = [sys.executable, str(HERE / "postgres_load.py"), "--dsn", dsn, "--fingerprints", str(count)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(output.splitlines()[-1])
    gone = -(-count // 1_000)
    print(
        f"{count:,} fingerprints: {figures['unchanged']:,} unchanged, {figures['deleted']:,} removed,"
        f" {figures['client']:.1f} CPU s, {figures['wall']:.1f} s; {figures['megabytes']:.0f} MB, at most {MEGABYTES}"
    )
    held = (figures["unchanged"], figures["deleted"]) == (count - gone, gone)
    return 0 if held and figures["megabytes"] < MEGABYTES else 1


def server_cpu(postmaster: psutil.Process) -> float:
    """Return the CPU seconds of a server: of the processes that run, and of those that ended."""
    times = postmaster.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in postmaster.children():
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


class Bench:
    """One server and one folder of documents; each run fills a schema of its own."""

    def __init__(self, folder: Path, dsn: str, postmaster: psutil.Process) -> None:
        self.folder, self.dsn, self.postmaster = folder, dsn, postmaster
        self.number = 0

    async def run(self, checkout: Checkout, **ingest: Any) -> dict[str, Any]:
        """Run the job with the package of a checkout; return its figures, and a digest of the rows."""
        self.number += 1
        schema = f"load_{self.number}"
        path = self.folder / "settings.toml"
        path.write_text(settings(self.folder / "notes", self.dsn, schema, **ingest))
        before = server_cpu(self.postmaster)
        command = [sys.executable, str(HERE / "postgres_load.py"), "--child", str(path)]
        environment = {**os.environ, "PYTHONPATH": f"{checkout.folder}:{checkout.metadata}"}
        ran = await asyncio.to_thread(
            subprocess.run, command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        figures: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        figures["server"] = server_cpu(self.postmaster) - before
        figures["cpu"] = figures["client"] + figures["server"]
        connection = await asyncpg.connect(self.dsn)
        await connection.execute(f'SET search_path = "{schema}", public')
        figures["rows"] = await connection.fetchval(DIGEST)
        await connection.execute(f'DROP SCHEMA "{schema}" CASCADE')
        await connection.close()
        return figures


async def compare(bench: Bench, asked: argparse.Namespace) -> int:
    """Run each way in turn, and print the figures."""
    from compare import Checkout

    here = Checkout("here", HERE.parent, bench.folder)
    ways: dict[str, tuple[Checkout, dict[str, Any]]] = {"here": (here, {})}
    if asked.workers:
        ways["here, workers"] = (here, {"workers": asked.workers})
    if asked.against:
        ways["other"] = (Checkout("other", Path(asked.against), bench.folder), {})
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(asked.rounds):
        for name, (checkout, ingest) in ways.items():
            figures = await bench.run(checkout, **ingest)
            runs[name].append(figures)
            values = "  ".join(f"{key} {figures[key]:.2f}" for key in ("wall", "client", "server", "cpu"))
            print(
                f"{name:<16} {figures['documents']} documents {figures['chunks']} chunks  {values}",
                flush=True,
            )
    rows = {figures["rows"] for name in ways if name != "other" for figures in runs[name]}
    problems = sum(figures["problems"] for each in runs.values() for figures in each)
    print(f"rows: {'equal' if len(rows) == 1 else 'DIFFERENT'} in all runs here; {problems} problems")
    held = len(rows) == 1 and not problems
    if asked.against:
        other = median(runs["other"], "cpu"), median(runs["other"], "wall")
        cpu = median(runs["here"], "cpu") / other[0]
        held &= cpu <= CPU
        print(f"CPU of client and server: {cpu:.2f} of the other checkout's, at most {CPU}", end="")
        if asked.workers:
            wall = median(runs["here, workers"], "wall") / other[1]
            held &= wall <= WALL
            print(f"; wall time with {asked.workers} workers: {wall:.2f}, at most {WALL}", end="")
        print()
    return 0 if held else 1


def median(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.median(figures[name] for figures in runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", default="")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fingerprints", type=int, default=0)
    parser.add_argument("--child", default="")
    parser.add_argument("--dsn", default="")
    asked = parser.parse_args()
    if asked.dsn:
        asyncio.run(compare_fingerprints(asked.dsn, asked.fingerprints))
        return 0
    if asked.child:
        asyncio.run(load(asked.child))
        return 0
    from postgres import started

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if asked.fingerprints:
            return fingerprints(started(folder), asked.fingerprints)
        (folder / "notes").mkdir()
        write_documents(folder / "notes", asked.documents)
        dsn = started(folder)
        postmaster = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
        return asyncio.run(compare(Bench(folder, dsn, postmaster), asked))


if __name__ == "__main__":
    sys.exit(main())
