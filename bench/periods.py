"""Periods of questions: how many have one, and whether it is better as a filter or as a boost.

    python bench/periods.py [SET...] --data FOLDER [--legs text | static] [--candidates 30]

FOLDER holds judged collections (see `judged.py`) whose documents have a time, `published`. Questions are asked
on the day after the latest document. For the questions in which the interpreter `periods` reads a period, it
prints nDCG@10 and the recall of all candidates:

- without the interpreter,
- with it: documents outside the period are left out,
- with a boost: documents inside the period get a bonus on their normalized score,
- with both: as many candidates of the period beside those of all times, and the boost,
- as the router does it by default (`[rag] period_boost`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from judged import Collection, filled, read
from measures import NDCG, RECALL, Run, by_question, interval
from systems import LEGS

from contextrouter import (
    ContextRouter,
    Envelope,
    Intent,
    Interpreter,
    InterpreterContext,
    Period,
    Request,
    Stage,
    StageContext,
)
from contextrouter.builtin.embedders.static import Static
from contextrouter.builtin.interpreters.periods import Periods
from contextrouter.testing.builders import interpreter_context

SETS = ("lihua-world", "locomo", "multihop-rag-500")
BONUSES = (0.3, 0.6, 1.0)
WITHOUT, FILTER, ROUTER = "without", "filter", "router"
DEEP = 1_000


class Remembered(Interpreter):
    """Keeps the period from the search, for the stage that boosts."""

    def __init__(self, periods: Mapping[str, Period]) -> None:
        self.periods = periods

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return intent.replace(attributes={**intent.attributes, "period": self.periods[intent.question]})


class Boost(Stage):
    """Adds a bonus to the normalized score of documents inside the period.

    Of the candidates it takes the best of all times; with `both` as many of the period, too.
    """

    def __init__(self, bonus: float, candidates: int, *, both: bool) -> None:
        self.bonus, self.candidates, self.both = bonus, candidates, both

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        period = context.intent.attributes["period"]

        def inside(envelope: Envelope) -> bool:
            moment = envelope.document.updated_at
            return moment is not None and period.contains(moment)

        kept = list(envelopes[: self.candidates])
        if self.both:
            within = [envelope for envelope in envelopes if inside(envelope)][: self.candidates]
            kept += [envelope for envelope in within if envelope not in kept]
        return sorted(kept, key=lambda e: (e.normalized or 0.0) + self.bonus * inside(e), reverse=True)


async def periods_of(collection: Collection, now: datetime) -> dict[str, Period]:
    """Question -> the period that the interpreter reads in it; judged questions that have one."""
    periods = {}
    for question in collection.judged:
        context = interpreter_context(Request(question=question.text), now=now)
        intent = await Periods().interpret(Intent(question=question.text, queries=(question.text,)), context)
        if intent.period is not None:
            periods[question.text] = intent.period
    return periods


def share_inside(collection: Collection, periods: Mapping[str, Period]) -> float:
    """Of the relevant documents, how many lie in the period of their question."""
    times = {document.id: document.updated_at for document in collection.documents}
    inside = []
    for question in collection.questions:
        for document, grade in collection.grades[question.id].items():
            moment = times.get(document)
            if grade > 0:
                inside.append(moment is not None and periods[question.text].contains(moment))
    return float(np.mean(inside)) if inside else 0.0


async def ranked(
    name: str, plugins: Mapping[str, Any], collection: Collection, now: datetime, asked: argparse.Namespace
) -> Run:
    """Ask every question of one store, with these interpreters and stages."""
    run = Run(name)
    embedder = Static() if asked.legs == "static" else None
    legs = LEGS["static"][1:] if embedder else ()
    depth = DEEP if plugins.get("stages") else asked.candidates
    rag = {
        "cache_enabled": False,
        "token_budget": 0,
        "timeout_seconds": 60.0,
        "interpreters": list(plugins.get("interpreters", ())),
        "stages": list(plugins.get("stages", ())),
        "candidates": depth,
        "general_retrieval_final_count": DEEP,
        **plugins.get("rag", {}),
    }
    plugins = {kind: value for kind, value in plugins.items() if kind != "rag"}
    if embedder is not None:
        await embedder.open()
    path = asked.folder / collection.name / f"{asked.legs}.db"
    store = await filled(path, collection.documents, embedder, legs)
    async with ContextRouter(
        {"rag": rag},
        providers={"docs": store},
        embedders={"default": embedder} if embedder else {},
        clock=lambda: now,
        **plugins,
    ) as router:
        for question in collection.questions:
            context = await router.route(question.text, scope=question.scope)
            ids = [envelope.document.id or "" for envelope in context.envelopes]
            run.found[question.id] = [(id, 1.0 / rank) for rank, id in enumerate(ids, 1)]
    return run


async def measure(folder: Path, asked: argparse.Namespace) -> None:
    """Print the table of one collection."""
    whole = read(folder)
    now = max(d.updated_at for d in whole.documents if d.updated_at) + timedelta(days=1)
    periods = await periods_of(whole, now)
    collection = whole.asked([question for question in whole.judged if question.text in periods])
    print(
        f"\n{folder.name}, {asked.legs}, {asked.candidates} candidates: {len(collection.questions)} of"
        f" {len(whole.judged)} judged questions have a period; {share_inside(collection, periods):.2f} of"
        " their relevant documents lie in it"
    )
    reads: dict[str, Any] = {"interpreters": {"periods": Periods()}}
    variants: dict[str, dict[str, Any]] = {
        WITHOUT: {},
        FILTER: {**reads, "rag": {"period_boost": 0}},
        ROUTER: reads,
    }
    for kind in ("boost", "both"):
        for bonus in BONUSES:
            stage = Boost(bonus, asked.candidates, both=kind == "both")
            variants[f"{kind} {bonus}"] = {
                "interpreters": {"remembered": Remembered(periods)},
                "stages": {"boost": stage},
            }
    runs = [await ranked(name, plugins, collection, now, asked) for name, plugins in variants.items()]
    values = {run.name: by_question(run, collection, (NDCG, RECALL)) for run in runs}
    for name, figures in values.items():
        ndcg, recall = (float(np.mean(list(figures[metric].values()))) for metric in (NDCG, RECALL))
        mean, low, high = interval(figures[NDCG], values[WITHOUT][NDCG])
        print(f"  {name:<10}nDCG@10 {ndcg:.3f}  recall {recall:.3f}   {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


async def main() -> None:
    parser = argparse.ArgumentParser(description="Periods of questions")
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BENCH_DATA", ".")))
    parser.add_argument("--legs", choices=("text", "static"), default="text")
    parser.add_argument("--candidates", type=int, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asked.folder = Path(folder)
        for name in asked.sets:
            await measure(asked.data / name, asked)


if __name__ == "__main__":
    asyncio.run(main())
