"""What every system is given, and how it is measured; runs in the environment of one system.

    python task.py PROGRAM OPTION FILE [FAULT]

FILE has sources and questions in JSON. The last line printed is the result.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contextrouter.builtin.embedders.static import Static, _embed

TOP, DEPTH = 10, 30
"""Documents that are returned, and those of each list that are fused."""
HANGS, DEADLINE = 5.0, 1.0
"""Seconds for which the source that hangs does not answer, and the router's deadline. The others have none."""
RESULT = "RESULT "


class Row(NamedTuple):
    """A document."""

    id: str
    title: str
    text: str


Sources = Mapping[str, Sequence[Row]]
Embed = Callable[[Sequence[str]], list[list[float]]]
Ask = Callable[[str], Awaitable[list[str]]]


def embedder() -> Embed:
    """Return the embedder that every system uses: the shipped table of contextrouter."""
    numbers, table = Static().load()
    return lambda texts: [vector.tolist() for vector in _embed(numbers, table, list(texts))]


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(
    program: Any, option: str, sources: Sources, questions: Mapping[str, str]
) -> dict[str, Any]:
    """Fill the system and ask it everything once."""
    embed = embedder()
    started = time.process_time()
    ask = await program.build(sources, embed, "", option)
    ingestion = time.process_time() - started
    await ask("what is this about")  # what is loaded with the first question
    found, seconds = {}, []
    started = time.process_time()
    for id, question in questions.items():
        wall = time.perf_counter()
        found[id] = await ask(question)
        seconds.append(time.perf_counter() - wall)
    cpu = (time.process_time() - started) / len(questions)
    return {
        "ingestion": ingestion,
        "cpu": cpu,
        "p50": sorted(seconds)[len(seconds) // 2],
        "peak": peak(),
        "found": found,
    }


async def survive(program: Any, option: str, sources: Sources, question: str, fault: str) -> dict[str, Any]:
    """Ask once beside a source with a fault; say what came back, and when."""
    try:
        ask = await program.build(sources, embedder(), fault, option)
    except NotImplementedError as error:
        return {"outcome": str(error)}
    started = time.perf_counter()
    try:
        documents = len(await ask(question))
    except Exception as error:  # whatever a system raises is what is measured
        return {"outcome": f"raises {type(error).__name__}", "seconds": time.perf_counter() - started}
    return {"outcome": f"{documents} documents", "seconds": time.perf_counter() - started}


def main() -> None:
    """Measure, and print the result."""
    name, option, path, *fault = sys.argv[1:]
    given = json.loads(Path(path).read_text("utf-8"))
    sources = {source: [Row(*row) for row in rows] for source, rows in given["sources"].items()}
    program = importlib.import_module(f"{name}_program")
    if fault:
        question = next(iter(given["questions"].values()))
        result = asyncio.run(survive(program, option, sources, question, fault[0]))
    else:
        result = asyncio.run(measure(program, option, sources, given["questions"]))
    print(RESULT + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
