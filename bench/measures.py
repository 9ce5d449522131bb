"""Measures of judged runs, their tables, and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
from ir_measures import R, Success, nDCG
from judged import Collection
from systems import System

NDCG, RECALL, FIRST = nDCG @ 10, R @ 100, Success @ 1
SAMPLES = 5_000


@dataclass
class Run:
    """What one system found, and the seconds that each question took."""

    name: str
    found: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Write it in TREC format."""
        folder.mkdir(parents=True, exist_ok=True)
        tag = self.name.replace(" ", "_").replace(",", "")
        lines = [
            f"{question} Q0 {document} {rank} {score:.6f} {tag}"
            for question, ranked in self.found.items()
            for rank, (document, score) in enumerate(ranked, 1)
        ]
        (folder / f"{tag}.run").write_text("\n".join(lines) + "\n", encoding="utf-8")


async def made(system: System, collection: Collection, runs: Path) -> Run:
    """Ask a system every judged question; the run is kept in the folder `runs`."""
    run = Run(system.name)
    async with system:
        for question in collection.judged:
            run.found[question.id], took = await system.answer(question)
            run.seconds.append(took)
    run.save(runs)
    return run


def by_question(run: Run, collection: Collection, metrics: Sequence[Any]) -> dict[Any, dict[str, float]]:
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
    values: dict[Any, dict[str, float]] = {metric: dict.fromkeys(wanted, 0.0) for metric in metrics}
    for metric in ir_measures.iter_calc(metrics, judged, scored):
        values[metric.measure][metric.query_id] = metric.value
    return values


def interval(one: dict[str, float], other: dict[str, float]) -> tuple[float, float, float]:
    """The mean difference over the same questions, and its 95 % interval by paired bootstrap."""
    difference = np.array([one[q] - other[q] for q in sorted(one)])
    picks = np.random.default_rng(7).integers(0, len(difference), (SAMPLES, len(difference)))
    low, high = np.quantile(difference[picks].mean(axis=1), (0.025, 0.975))
    return float(difference.mean()), float(low), float(high)


def table(
    runs: Sequence[Run], collection: Collection, metrics: Sequence[Any], against: str
) -> dict[str, dict[Any, float]]:
    """Print the figures of all runs, each with its difference to the run called `against`; return them."""
    print(
        f"\n{collection.name}: {len(collection.documents):,} documents in {len(collection.sources)} sources, "
        f"{len(collection.judged):,} judged questions\n"
    )
    heads = "".join(f"{str(metric).replace('Success@1', 'rank 1'):>9}" for metric in metrics)
    print(f"  {'':<34}{heads}{'p50 ms':>9}{'p99 ms':>9}   nDCG@10 against {against}")
    values = {run.name: by_question(run, collection, metrics) for run in runs}
    means = {
        name: {metric: float(np.mean(list(v.values()))) for metric, v in found.items()}
        for name, found in values.items()
    }
    for run in runs:
        row = "".join(f"{means[run.name][metric]:9.4f}" for metric in metrics)
        times = "".join(f"{np.quantile(run.seconds, q) * 1e3:9.1f}" for q in (0.5, 0.99))
        told = ""
        if run.name != against and against in values:
            mean, low, high = interval(values[run.name][NDCG], values[against][NDCG])
            told = f"   {mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        print(f"  {run.name:<34}{row}{times}{told}", flush=True)
    return means


def at_least(what: str, value: float, limit: float, *, above: bool = False) -> bool:
    """Print whether a value reaches its limit (`above`: is greater); return it."""
    good = value > limit if above else value >= limit
    wanted = "more than" if above else "at least"
    print(f"  {'holds' if good else 'MISSED'}: {what} {value:.4f}, {wanted} {limit:.4f}", flush=True)
    return good


def at_most(what: str, value: float, limit: float) -> bool:
    """Print whether a value stays within its limit; return it."""
    good = value <= limit
    print(f"  {'holds' if good else 'MISSED'}: {what} {value:g}, at most {limit:g}", flush=True)
    return good
