"""contextrouter beside LlamaIndex, Haystack, LangChain and txtai: the same documents, embedder and questions.

    python bench/side_by_side.py DATA [--environments FOLDER] [--only NAME ...] [--quick]

DATA has the judged collections scifact (one source) and federated-6 (six). Each system is used as in its
documentation, by a program in side_by_side/, whose lines are counted. It runs in an environment of its own,
which is made with pip; one process for each collection. CPU times are those of the process, since wall times
say little on a busy machine. Prints the tables of docs/side-by-side.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
from ir_measures import R, nDCG
from judged import Collection, read

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "side_by_side"
COUNTED = "# What a user writes: counted from here."
RESULT = "RESULT "
NDCG, RECALL = nDCG @ 10, R @ 10


class System(NamedTuple):
    """A system: its name in the tables, its program, the option of that, and what pip installs."""

    name: str
    program: str
    option: str
    packages: tuple[str, ...]


LLAMA = ("llama-index-core>=0.14", "llama-index-retrievers-bm25>=0.8")
SYSTEMS = (
    System("contextrouter", "router", "", ()),
    System("LlamaIndex, reciprocal_rerank", "llamaindex", "reciprocal_rerank", LLAMA),
    System("LlamaIndex, relative_score", "llamaindex", "relative_score", LLAMA),
    System("Haystack", "haystack", "", ("haystack-ai>=3.4",)),
    System(
        "LangChain",
        "langchain",
        "",
        ("langchain-classic>=1.0", "langchain-community>=0.4", "rank-bm25>=0.2.2"),
    ),
    System("txtai", "txtai", "", ("txtai>=9",)),
)
COLLECTIONS = {"scifact": 1, "federated-6": 3}
"""Collection -> of how many questions one is asked."""
FAULTS = {"raise": "a source that raises", "hang": "a source that hangs for 5 s"}
QUIET = {
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}


def interpreter(system: System, environments: Path) -> Path:
    """Return the interpreter of a system's environment, which is made the first time."""
    folder = environments / system.program
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        print(f"making {folder} …", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        extras = (
            "static" if system.packages else "sqlite,static"
        )  # the embedder, and for the router its store
        project = f"{HERE.parent}[{extras}]"
        subprocess.run([*pip, *system.packages, "--editable", project], check=True)
        (folder / "made").touch()
    return python


def run(system: System, environments: Path, file: Path, *fault: str) -> dict[str, Any]:
    """Run a system's program in its environment; return what it measured."""
    command = [
        str(interpreter(system, environments)),
        str(PROGRAMS / "task.py"),
        system.program,
        system.option,
        str(file),
        *fault,
    ]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, env={**variables, **QUIET}, stdout=subprocess.PIPE, text=True, check=True)
    line = next(line for line in ran.stdout.splitlines() if line.startswith(RESULT))
    result: dict[str, Any] = json.loads(line.removeprefix(RESULT))
    return result


def write_task(collection: Collection, folder: Path, step: int, most: int) -> Path:
    """Write the documents and every step-th question for the programs."""
    sources = {
        name: [[d.id, d.title, d.content] for d in documents[:most]]
        for name, documents in collection.sources.items()
    }
    questions = {question.id: question.text for question in collection.judged[::step]}
    file = folder / f"{collection.name}.json"
    file.write_text(json.dumps({"sources": sources, "questions": questions}), "utf-8")
    return file


def quality(found: dict[str, list[str]], collection: Collection) -> dict[Any, float]:
    """Return the measures of what was found."""
    judged = [
        ir_measures.Qrel(question, document, grade)
        for question in found
        for document, grade in collection.grades[question].items()
    ]
    ranked = [
        ir_measures.ScoredDoc(question, document, 1 / rank)
        for question, documents in found.items()
        for rank, document in enumerate(documents, 1)
    ]
    values: dict[Any, float] = ir_measures.calc_aggregate([NDCG, RECALL], judged, ranked)
    return values


def lines_of(system: System) -> int:
    """Return how many lines of code a user writes: without blank lines, comments and docstrings."""
    text = (PROGRAMS / f"{system.program}_program.py").read_text("utf-8")
    _, _, program = text.partition(COUNTED)
    assert program, f"{system.program} has no line {COUNTED!r}"
    documented = set[int]()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(
            node
        ):
            documented |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    lines = enumerate(program.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in documented
        for number, line in lines
    )


def row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def compare(
    collection: Collection, systems: Sequence[System], environments: Path, file: Path, documents: int
) -> None:
    """Print the table of one collection."""
    questions = len(json.loads(file.read_text("utf-8"))["questions"])
    print(
        f"\n{collection.name}: {documents:,} documents in {len(collection.sources)} sources,"
        f" {questions} questions\n"
    )
    heads = ("system", "nDCG@10", "recall@10", "ingestion, CPU s", "question, CPU ms", "median, ms")
    print(row((*heads, "memory, MB")))
    print(row(["---"] + ["---:"] * 6), flush=True)
    for system in systems:
        told = run(system, environments, file)
        values = quality(told["found"], collection)
        print(
            row(
                (
                    system.name,
                    f"{values[NDCG]:.3f}",
                    f"{values[RECALL]:.3f}",
                    f"{told['ingestion']:.1f}",
                    f"{told['cpu'] * 1e3:.1f}",
                    f"{told['p50'] * 1e3:.1f}",
                    f"{told['peak']:.0f}",
                )
            ),
            flush=True,
        )


def faults(systems: Sequence[System], environments: Path, file: Path) -> None:
    """Print what each system does beside a source with a fault, and the lines that its user writes."""
    print("\nOne more source, which has a fault; and lines of code\n")
    print(row(("system", *FAULTS.values(), "lines")))
    print(row(("---", "---", "---", "---:")), flush=True)
    for system in systems:
        cells = []
        for fault in FAULTS:
            told = run(system, environments, file, fault)
            seconds = f" after {told['seconds']:.1f} s" if "seconds" in told else ""
            cells.append(told["outcome"] + seconds)
        print(row((system.name, *cells, lines_of(system))), flush=True)


def main() -> int:
    """Measure all systems, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("data", type=Path)
    parser.add_argument("--environments", type=Path, default=HERE.parent / "build" / "side-by-side")
    parser.add_argument("--only", nargs="*", default=[], help="programs, such as router llamaindex")
    parser.add_argument("--quick", action="store_true", help="few documents and questions: whether it runs")
    options = parser.parse_args()
    systems = [system for system in SYSTEMS if not options.only or system.program in options.only]
    with tempfile.TemporaryDirectory() as folder:
        for name, step in COLLECTIONS.items():
            collection = read(options.data / name)
            most = 50 if options.quick else 1_000_000
            file = write_task(collection, Path(folder), step * (20 if options.quick else 1), most)
            documents = sum(min(len(d), most) for d in collection.sources.values())
            compare(collection, systems, options.environments, file, documents)
        small = write_task(read(options.data / "scifact"), Path(folder), 50, 500)
        faults(systems, options.environments, small)
    return 0


if __name__ == "__main__":
    sys.exit(main())
