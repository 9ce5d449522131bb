"""What `import contextrouter` costs beside the modules it cannot do without.

CPU seconds (user + system) of fresh interpreters, in pairs that run one after the other, so that a busy
machine slows both; the figure is the median of the pairs' ratios. Exits 1 above LIMIT, or when an optional
package was loaded.

    python bench/imports.py [pairs]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

LIMIT = 1.5
BASE = "import asyncio, hashlib, heapq, msgspec"
OURS = "import contextrouter"
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}  # as users have it
OPTIONAL = (
    "pydantic",
    "numpy",
    "aiohttp",
    "asyncpg",
    "spacy",
    "typer",
    "rich",
    "openai",
    "tokenizers",
    "model2vec",
    "feedparser",
)


def cpu_seconds(code: str) -> float:
    """CPU seconds of a fresh interpreter that runs `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loaded() -> list[str]:
    """The optional packages that `import contextrouter` loads; there should be none."""
    code = f"import sys, contextrouter; print(*(name for name in {OPTIONAL!r} if name in sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()


def measure(pairs: int) -> tuple[float, float, float]:
    """Median CPU milliseconds of BASE and of OURS, and the median of the pairs' ratios."""
    for code in (BASE, OURS):
        cpu_seconds(code)  # byte code is written
    rows = [(cpu_seconds(BASE), cpu_seconds(OURS)) for _ in range(pairs)]
    base, ours = (statistics.median(row[index] for row in rows) * 1000 for index in (0, 1))
    return base, ours, statistics.median(ours / base for base, ours in rows)


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    base, ours, ratio = measure(pairs)
    unwanted = loaded()
    print(f"{BASE}: {base:.1f} ms CPU")
    print(f"{OURS}: {ours:.1f} ms CPU")
    print(f"optional packages loaded: {', '.join(unwanted) or 'none'}")
    print(f"ratio: {ratio:.2f} (median of {pairs} pairs; at most {LIMIT})")
    return 1 if unwanted or ratio > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
