"""LlamaIndex, LangChain and Haystack doing the same work as the router, each in an environment of its own.

    BENCH_PEERS=1 python bench/peers.py [--rounds 3] [--quick]

Each environment is made under build/peers with pip, and holds one peer and this package: there the peer, the
router and the floor `safe` of router.py take turns in one process, over the same lists, and all ratios are to
that floor, within a round. Peers get documents of their own kind, built outside the timer, from retrievers
that answer at once. Without BENCH_PEERS nothing is done. Exits 1 when a limit is missed: less CPU than
LangChain in every cell of at least three sources; a quarter of that of LlamaIndex and of Haystack as
geometric means.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from router import GRID, QUICK, TOP, Ours, Row, Safe, measure, options, table

HERE = Path(__file__).resolve().parent
PEERS = {
    "langchain": "langchain-classic>=1.0",
    "llamaindex": "llama-index-core>=0.14",
    "haystack": "haystack-ai>=3.4",
}
TIMES = 4.0
"""How much more CPU LlamaIndex and Haystack should take."""
RESULT = "RESULT "


def environment(name: str, package: str, extras: str = "") -> Path:
    """Make the environment of a peer and of this package with `extras` where there is none; return its
    interpreter.
    """
    folder = HERE.parent / "build" / "peers" / name
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        print(f"making {folder.relative_to(HERE.parent)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, package, "--editable", f"{HERE.parent}{extras}"], check=True)
        (folder / "made").touch()
    return python


def measured(name: str, arguments: list[str]) -> list[Row]:
    """What the peer's own process found."""
    command = [str(environment(name, PEERS[name])), str(HERE / "peers.py"), "--json", *arguments]
    quiet = {
        **os.environ,
        "BENCH_PEER": name,
        "PYTHONWARNINGS": "ignore",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
    }
    done = subprocess.run(command, check=True, env=quiet, stdout=subprocess.PIPE, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith(RESULT))
    return [Row(**{**row, "cell": tuple(row["cell"])}) for row in json.loads(line.removeprefix(RESULT))]


def verdict(name: str, rows: list[Row]) -> bool:
    """Print how the router compares with a peer; whether the limit holds."""
    times = {row.cell: row.ratios[name] / row.ratios["router"] for row in rows}
    mean = statistics.geometric_mean(times.values())
    low, high = min(times.values()), max(times.values())
    few = {row.cell: row.same[name] for row in rows if row.same[name] < min(TOP, row.same["safe"])}
    print(
        f"{name}: {mean:.2f} x the CPU of the router as geometric mean ({low:.2f} to {high:.2f}); "
        f"other documents than by hand: {f'in {len(few)} cells' if few else 'nowhere'}"
    )
    if name != "langchain":
        return mean >= TIMES
    dearer = [" x ".join(map(str, cell)) for cell, value in times.items() if cell[1] >= 3 and value <= 1]
    print(
        "langchain: cells of at least 3 sources in which the router takes no less:"
        f" {', '.join(dearer) or 'none'}"
    )
    return not dearer


def main() -> int:
    given = options(3)
    if peer := os.environ.get("BENCH_PEER"):
        kind = importlib.import_module(f"peer_{peer}").Peer
        rows = asyncio.run(measure(QUICK if given.quick else GRID, given.rounds, [Safe, Ours, kind]))
        print(RESULT + json.dumps([vars(row) for row in rows]))
        return 0
    if not os.environ.get("BENCH_PEERS"):
        print("peers are measured with BENCH_PEERS=1")
        return 0
    arguments = ["--rounds", str(given.rounds), *(["--quick"] if given.quick else [])]
    held = []
    for name in PEERS:
        rows = measured(name, arguments)
        print(f"\n{table(rows)}", flush=True)
        held.append(verdict(name, rows))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
