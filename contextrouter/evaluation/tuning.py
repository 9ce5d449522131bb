"""Tuning of the fusion: try other modes, weights and keys on what the sources found, and cross-validate the
choice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from contextrouter.errors import AllSourcesFailed
from contextrouter.evaluation.judgements import Judged
from contextrouter.evaluation.measures import Compared, compare, measure
from contextrouter.evaluation.retrieval import Asked, name_of
from contextrouter.model import Request
from contextrouter.pipeline.calibration.calibrated_values import Calibration, several_sources, statistics_of
from contextrouter.pipeline.candidates import Candidates
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.envelopes import Ranking
from contextrouter.pipeline.fusion import fuse
from contextrouter.pipeline.fusion.leg_weights import Profiles
from contextrouter.pipeline.fusion.source_order import Queries
from contextrouter.pipeline.run import Run
from contextrouter.router import ContextRouter
from contextrouter.settings import Rag

FOLDS, ROUNDS = 5, 3
MODES = ("scores", "rrf", "weighted")
WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5)
GRID: Mapping[str, tuple[float, ...]] = {
    "rrf_k": (10.0, 20.0, 60.0, 100.0),
    "derived_query_weight": (0.0, 0.1, 0.5, 1.0),
    "keep_order": (0.0, 0.25, 0.5, 0.75, 1.0),
}
SMALLEST_GAIN = 0.002
"""A value with a smaller gain on the training questions is not chosen."""
RECALL = 0.99
"""The share of the found relevant documents that a cut-off must keep."""


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """The result of tuning: `changes` of `[rag]` as (key, before, after), and their `gain` on test questions.

    `minimum` is a cut-off of the normalised score: at most 1 % of the found relevant documents have less.
    """

    metric: str
    questions: int
    before: float
    gain: Compared
    changes: tuple[tuple[str, Any, Any], ...] = ()
    minimum: float = 0.0


class Case:
    """A question and what the sources found, to be fused again and again."""

    def __init__(
        self,
        question: Judged,
        candidates: Candidates,
        queries: Queries,
        statistics: Mapping[str, Any],
        profiles: Profiles,
    ) -> None:
        self.question, self.candidates, self.queries = question, candidates, queries
        self.statistics, self.profiles = statistics, profiles
        self._calibrated: dict[tuple[float, ...], Mapping[int, float]] = {}

    def fuse(self, rag: Rag) -> Ranking:
        """Return the order that other settings would give, before stages."""
        calibrated = self._calibrate(rag) if rag.calibrate else {}
        return fuse(self.candidates, rag, queries=self.queries, profiles=self.profiles, calibrated=calibrated)

    def _calibrate(self, rag: Rag) -> Mapping[int, float]:
        if rag.levels == 1 or not several_sources(self.candidates):
            return {}
        key = (*[rag.leg_weights.get(leg, -1.0) for leg in self.legs], MODES.index(rag.hybrid_fusion))
        if key not in self._calibrated:
            calibration = Calibration(
                self.candidates, rag, self.profiles, self.statistics, queries=self.queries
            )
            self._calibrated[key], _ = calibration.values()
        return self._calibrated[key]

    @property
    def legs(self) -> list[str]:
        """The legs that found something."""
        return sorted({ranked.leg for ranked in self.candidates.lists if ranked.hits})


async def collect(
    router: ContextRouter, judged: Sequence[Judged], progress: Callable[[int], object] = lambda done: None
) -> list[Case]:
    """Ask the sources of `router` every judged question, and keep what they found.

    A question that no source answered, or without relevant documents, is left out.
    """
    cases = []
    for number, question in enumerate(judged, 1):
        if question.counts:
            request = Request(question=question.question, scope=question.scope)
            deadline = Deadline.after(router.settings.rag.timeout_seconds)
            run = Run(request, deadline, router.engine)
            try:
                await run.make_plan()
                await run.fan_out()
            except AllSourcesFailed:
                continue
            candidates = run.deduplicate()
            statistics = await statistics_of(candidates, router.engine, request.scope, deadline)
            cases.append(Case(question, candidates, run.queries, statistics, router.engine.profiles))
        progress(number)
    return cases


def tune(
    rag: Rag,
    cases: Sequence[Case],
    metric: str = "nDCG@10",
    progress: Callable[[int], object] = lambda done: None,
) -> Tuned:
    """Try modes, weights and keys on what was collected, one at a time, and check the choice by
    cross-validation.

    `rag` is what is set. Raises what `measure` raises.
    """
    trial = Trial(rag, cases, metric)
    order = list(range(len(cases)))
    random.Random(FOLDS).shuffle(order)  # noqa: S311 - it protects no secret
    folds = [order[start::FOLDS] for start in range(FOLDS)] if len(cases) >= 2 * FOLDS else []
    tested: dict[str, float] = {}
    for number, fold in enumerate(folds, 1):
        tested |= trial.values(trial.best([index for index in order if index not in fold]), fold)
        progress(number)
    base = trial.values(rag, order)
    best = trial.best(order)
    progress(len(folds) + 1)
    keys = ("hybrid_fusion", "leg_weights", *GRID)
    changes = [(key, getattr(rag, key), getattr(best, key)) for key in keys]
    return Tuned(
        metric=metric,
        questions=len(cases),
        before=sum(base.values()) / len(base) if base else 0.0,
        gain=compare(tested, {id: base[id] for id in tested}),
        changes=tuple([change for change in changes if change[1] != change[2]]),
        minimum=trial.minimum(best, order),
    )


class Trial:
    """The cases of one router, and their metric with other settings."""

    def __init__(self, rag: Rag, cases: Sequence[Case], metric: str) -> None:
        self.rag, self.cases, self.metric = rag, cases, metric
        self.names = frozenset(name for case in cases for name in case.question.relevant)
        legs = sorted({leg for case in cases for leg in case.legs})
        self.tuned_legs = [leg for leg in legs if leg != "text"] if "text" in legs else legs[1:]
        self.several_sources = any(several_sources(case.candidates) for case in cases)
        self.several_queries = any(self._asks_more(case) for case in cases)
        self._measured: dict[bytes, dict[str, float]] = {}

    @staticmethod
    def _asks_more(case: Case) -> bool:
        """Whether a query beside the question counts in full."""
        others = {ranked.query for ranked in case.candidates.lists} - {case.queries.question}
        return bool(others - case.queries.derived)

    def values(self, rag: Rag, indexes: Sequence[int]) -> dict[str, float]:
        """Return question id -> metric. Each combination of settings is measured once."""
        key = msgspec.json.encode(
            (rag.hybrid_fusion, sorted(rag.leg_weights.items()), [getattr(rag, name) for name in GRID])
        )
        if key not in self._measured:
            answers = [
                Asked(question=case.question, ranked=tuple(self._names(case, rag))) for case in self.cases
            ]
            self._measured[key] = measure(answers, [self.metric])[self.metric]
        values = self._measured[key]
        return {id: values[id] for id in [self.cases[index].question.id for index in indexes]}

    def _names(self, case: Case, rag: Rag) -> dict[str, None]:
        return dict.fromkeys(name_of(envelope.document, self.names) for envelope in case.fuse(rag).live)

    def best(self, indexes: Sequence[int]) -> Rag:
        """Return the best settings for these questions, one key at a time. If two are equal, the present one
        wins.
        """
        best, score = self.rag, self._mean(self.rag, indexes)
        for _ in range(ROUNDS):
            before = best
            for vary in self._variations:
                for rag in vary(best):
                    mean = self._mean(rag, indexes)
                    if mean > score + SMALLEST_GAIN:
                        best, score = rag, mean
            if best is before:
                break
        return best

    @property
    def _variations(self) -> list[Callable[[Rag], Iterator[Rag]]]:
        def vary_key(key: str, values: Sequence[Any]) -> Callable[[Rag], Iterator[Rag]]:
            return lambda rag: (msgspec.structs.replace(rag, **{key: value}) for value in values)

        def vary_leg(leg: str) -> Callable[[Rag], Iterator[Rag]]:
            return lambda rag: (
                msgspec.structs.replace(rag, leg_weights={**rag.leg_weights, leg: weight})
                for weight in WEIGHTS
            )

        def vary_k(rag: Rag) -> Iterator[Rag]:
            values = GRID["rrf_k"] if rag.hybrid_fusion == "rrf" else ()
            return (msgspec.structs.replace(rag, rrf_k=value) for value in values)

        variations = [vary_key("hybrid_fusion", MODES)] if self.rag.levels == 2 else []
        variations += [*map(vary_leg, self.tuned_legs), vary_k]
        if self.several_queries:
            variations.append(vary_key("derived_query_weight", GRID["derived_query_weight"]))
        if self.several_sources and self.rag.calibrate:
            variations.append(vary_key("keep_order", GRID["keep_order"]))
        return variations

    def _mean(self, rag: Rag, indexes: Sequence[int]) -> float:
        values = self.values(rag, indexes)
        return sum(values.values()) / len(values) if values else 0.0

    def minimum(self, rag: Rag, indexes: Sequence[int]) -> float:
        """Return the largest cut-off of the normalised score, in hundredths, that keeps the relevant
        documents.
        """
        scores: list[float] = []
        for case in [self.cases[index] for index in indexes]:
            relevant = {name for name, grade in case.question.relevant.items() if grade > 0}
            scores += [
                envelope.normalized
                for envelope in case.fuse(rag).live
                if name_of(envelope.document, self.names) in relevant
            ]
        scores.sort()
        return int(scores[int((1 - RECALL) * len(scores))] * 100) / 100 if scores else 0.0
