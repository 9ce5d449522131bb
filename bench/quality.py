"""How good the ranking is, on judged collections: the router beside plain BM25, one merged index and plain
rank fusion.

    python bench/quality.py SET... [--data FOLDER] [--build FOLDER] [--again] [--without-minilm]

SET is a folder of a judged collection (see `judged.py`) inside --data, by default `$BENCH_DATA`; `xquad-de`
is the German part of a collection in several languages, where the text leg is measured alone. Stores,
vectors and runs (TREC format) are kept under --build and used again; --again makes the runs anew. Metrics are
those of `ir-measures`; a difference has a 95 % interval of paired bootstrap over the questions. Exits 1 when
a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
from ir_measures import AP, RR, R, nDCG
from judged import Collection, read
from systems import Routed, System, of_collection

METRICS = [nDCG @ 10, R @ 100, AP, RR]
SAMPLES = 5_000
BUILD = Path(__file__).resolve().parent.parent / "build" / "quality"
# Set -> (system, metric, least): what has to hold.
LIMITS: dict[str, list[tuple[str, Any, float | str]]] = {
    "federated-6": [
        ("calibrated text", nDCG @ 10, "bm25s merged"),
        ("calibrated text+minilm", nDCG @ 10, 0.46),
        ("calibrated text+minilm", R @ 100, 0.60),
    ],
    "kgpacks-faq": [("calibrated text", nDCG @ 10, 0.79)],
    "lihua-world": [("fused text+minilm", nDCG @ 10, "bm25s merged")],
    **{
        f"xquad-{language}": [("text leg", nDCG @ 10, "text leg without language")]
        for language in ("de", "el", "es", "ro", "ru", "tr")
    },
}


FIVE = ("scifact", "nfcorpus", "cranfield", "vaswani", "cacm")


class Run:
    """What one system found, from the folder of runs or made now."""

    def __init__(
        self, name: str, found: dict[str, list[tuple[str, float]]], seconds: Sequence[float]
    ) -> None:
        self.name, self.found, self.seconds = name, found, seconds

    @classmethod
    def saved(cls, name: str, path: Path) -> Run:
        """Read a run in TREC format; times stand behind it."""
        found: dict[str, list[tuple[str, float]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            question, _, document, _, score, _ = line.split(" ")
            found.setdefault(question, []).append((document, float(score)))
        times = path.with_suffix(".times")
        return cls(name, found, list(map(float, times.read_text().split())) if times.exists() else ())

    def save(self, path: Path) -> None:
        """Write it in TREC format."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tag = self.name.replace(" ", "_")
        lines = [
            f"{question} Q0 {document} {rank} {score:.6f} {tag}"
            for question, ranked in self.found.items()
            for rank, (document, score) in enumerate(ranked, 1)
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.with_suffix(".times").write_text(" ".join(f"{s:.6f}" for s in self.seconds))


async def made(system: System, collection: Collection) -> Run:
    """Ask a system every judged question."""
    found, seconds = {}, []
    async with system:
        for question in collection.judged:
            found[question.id], took = await system.answer(question)
            seconds.append(took)
    return Run(system.name, found, seconds)


def by_question(run: Run, collection: Collection) -> dict[Any, dict[str, float]]:
    """Metric -> question -> value; a question without an answer has 0."""
    wanted = {q.id for q in collection.judged}
    judged = [
        ir_measures.Qrel(q, d, g)
        for q, grades in collection.grades.items()
        if q in wanted
        for d, g in grades.items()
    ]
    scored = [
        ir_measures.ScoredDoc(q, d, s) for q, ranked in run.found.items() if q in wanted for d, s in ranked
    ]
    values: dict[Any, dict[str, float]] = {metric: dict.fromkeys(wanted, 0.0) for metric in METRICS}
    for metric in ir_measures.iter_calc(METRICS, judged, scored):
        values[metric.measure][metric.query_id] = metric.value
    return values


def interval(one: dict[str, float], other: dict[str, float]) -> tuple[float, float, float]:
    """The mean difference over the same questions, and its 95 % interval by paired bootstrap."""
    difference = np.array([one[q] - other[q] for q in sorted(one)])
    picks = np.random.default_rng(7).integers(0, len(difference), (SAMPLES, len(difference)))
    low, high = np.quantile(difference[picks].mean(axis=1), (0.025, 0.975))
    return float(difference.mean()), float(low), float(high)


def table(runs: Sequence[Run], collection: Collection) -> dict[str, dict[Any, float]]:
    """Print the figures of all runs, each with its difference to the first one."""
    print(
        f"\n{collection.name}: {len(collection.documents):,} documents in {len(collection.sources)} sources, "
        f"{len(collection.judged):,} judged questions\n"
    )
    print(
        f"  {'':<34}{'nDCG@10':>9}{'R@100':>9}{'MAP':>9}{'MRR':>9}{'p50 ms':>9}{'p99 ms':>9}   nDCG@10"
        " against the first"
    )
    values = {run.name: by_question(run, collection) for run in runs}
    means = {
        name: {m: float(np.mean(list(v.values()))) for m, v in found.items()}
        for name, found in values.items()
    }
    first = runs[0].name
    for run in runs:
        row = "".join(f"{means[run.name][metric]:9.4f}" for metric in METRICS)
        times = "".join(
            f"{np.quantile(run.seconds, q) * 1e3:9.1f}" if len(run.seconds) else f"{'':9}"
            for q in (0.5, 0.99)
        )
        told = ""
        if run.name != first:
            mean, low, high = interval(values[run.name][METRICS[0]], values[first][METRICS[0]])
            told = f"   {mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        print(f"  {run.name:<34}{row}{times}{told}")
    return means


async def abstaining(system: Routed, collection: Collection) -> None:
    """Print how often answerability says that there is no answer: right where there is none, wrong where
    there is one.
    """
    levels: dict[bool, list[str]] = {True: [], False: []}
    async with system:
        for question in collection.questions:
            context = await system.router.route(question.text, legs=system.legs, scope=question.scope)
            levels[question.answerable].append(context.answerability.level)
    for said, below in (("below strong", ("weak", "none")), ("none", ("none",))):
        right, wrong = (
            float(np.mean([level in below for level in levels[known]])) for known in (False, True)
        )
        print(
            f"  abstaining {said:<14} right {right:.2f} of {len(levels[False])}, wrong {wrong:.2f} of"
            f" {len(levels[True])}"
        )


def together(found: dict[str, dict[str, dict[Any, float]]]) -> bool:
    """Print what has to hold over the five collections, where all of them were measured; whether it does."""
    if not set(FIVE) <= set(found):
        return True
    at = nDCG @ 10

    def mean(system: str) -> float:
        return float(np.mean([found[name][system][at] for name in FIVE]))

    checks = [
        ("text leg, mean loss to bm25s", mean("bm25s merged") - mean("text leg"), 0.02),
        ("fused text+static, mean loss to the text leg", mean("text leg") - mean("fused text+static"), 0.005),
    ]
    if all("fused text+minilm" in found[name] for name in FIVE):
        lost = sum(found[name]["fused text+minilm"][at] < found[name]["RRF text+minilm"][at] for name in FIVE)
        checks.append(("fused text+minilm, collections where plain rank fusion is better", lost, 1))
    print(f"\n{', '.join(FIVE)}:")
    for what, value, most in checks:
        print(f"  {'holds' if value <= most else 'MISSED'}: {what} {value:.4g}, at most {most:g}")
    return all(value <= most for _, value, most in checks)


def held(name: str, means: dict[str, dict[Any, float]]) -> bool:
    """Print what had to hold and whether it did."""
    good = True
    for system, metric, least in LIMITS.get(name, []):
        limit = means.get(least, {}).get(metric) if isinstance(least, str) else least
        if system not in means or limit is None:
            continue
        ok = means[system][metric] >= limit
        good &= ok
        print(
            f"  {'holds' if ok else 'MISSED'}: {system}, {metric} {means[system][metric]:.4f}, at least"
            f" {limit:.4f}{f' ({least})' if isinstance(least, str) else ''}"
        )
    return good


async def measure(
    folder: Path, build: Path, *, again: bool, minilm: bool, only: str
) -> tuple[bool, dict[str, dict[Any, float]]]:
    """Make or read every run of one collection, print them; whether all limits hold, and the figures."""
    collection = read(folder)
    runs = []
    for system in of_collection(collection, build, minilm=minilm):
        path = build / collection.name / "runs" / f"{system.name.replace(' ', '_')}.run"
        if path.exists() and not (again and only in system.name):
            runs.append(Run.saved(system.name, path))
            continue
        run = await made(system, collection)
        run.save(path)
        runs.append(run)
    means = table(runs, collection)
    if len(collection.sources) == 1 and not all(question.answerable for question in collection.questions):
        ten = Routed("text leg", collection, build, general_retrieval_final_count=10)
        await abstaining(ten, collection)
    return held(collection.name, means), means


async def main() -> int:
    parser = argparse.ArgumentParser(description="The quality of ranking on judged collections")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BENCH_DATA", ".")))
    parser.add_argument("--build", type=Path, default=BUILD)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", default="", help="with --again: only systems whose name has this in it")
    parser.add_argument("--without-minilm", action="store_true")
    asked = parser.parse_args()
    good = True
    found: dict[str, dict[str, dict[Any, float]]] = {}
    for name in asked.sets:
        folder = asked.data / name
        if not (folder.is_dir() or folder.with_name(name.rpartition("-")[0]).is_dir()):
            print(
                f"{folder} is no folder. Name the folder of the collections: --data FOLDER, or"
                " BENCH_DATA=FOLDER."
            )
            return 2
        fine, found[name] = await measure(
            folder, asked.build, again=asked.again, minilm=not asked.without_minilm, only=asked.only
        )
        good &= fine
    good &= together(found)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
