"""Run every benchmark, one after the other, and say at the end what held.

    python bench [--quick] [name ...]

Each is a script of its own that exits 1 when a limit is missed; its last line says what was found. What needs
something more than this package says so in `bench/README.md`. Exits 1 when any limit was missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from time import monotonic

HERE = Path(__file__).resolve().parent
ORDER = (
    "imports",
    "router",
    "faults",
    "loop",
    "concurrency",
    "stagger",
    "calibration",
    "fusion",
    "cache",
    "store",
    "postgres",
    "postgres_text",
    "chunking",
    "ingestion",
    "peers",
)
FULL = {"store": ["--generated", "100000"]}
QUICK = {
    "imports": ["5"],
    "router": ["--quick"],
    "faults": ["5"],
    "concurrency": ["1"],
    "stagger": ["3"],
    "calibration": ["10"],
    "cache": ["3"],
    "store": ["--generated", "3000", "--questions", "20"],
    "postgres": ["--chunks", "3000", "--questions", "20"],
    "postgres_text": ["--chunks", "3000", "--questions", "20"],
    "chunking": ["--quick", "--rounds", "1"],
    "ingestion": ["--quick"],
    "peers": ["--quick", "--rounds", "1"],
}
WIDTH = 132


def run(name: str, *, quick: bool) -> tuple[int, float, str]:
    """Run one, its output shown as it comes; return its exit code, how many seconds it took, and its last
    line.
    """
    arguments = (QUICK if quick else FULL).get(name, [])
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started, last = monotonic(), ""
    print(f"\n--- {name} " + "-" * (WIDTH - len(name) - 5), flush=True)
    command = [sys.executable, "-u", str(HERE / f"{name}.py"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, monotonic() - started, last


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    named = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    wanted = named or [name for name in ORDER if (HERE / f"{name}.py").exists()]
    results = {name: run(name, quick=quick) for name in wanted}
    print(f"\n{'':<15}{'limits':<8}{'s':>6}  what was found")
    for name, (code, seconds, last) in results.items():
        found = textwrap.wrap(last, WIDTH - 32) or [""]
        print(f"{name:<15}{'held' if code == 0 else 'MISSED':<8}{seconds:6.0f}  {found[0]}")
        for line in found[1:]:
            print(f"{'':<31}{line}")
    return 1 if any(code for code, _, _ in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
