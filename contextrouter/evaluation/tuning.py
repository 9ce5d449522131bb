"""Tuning of the fusion: try other weights and k on saved answers, and cross-validate the choice."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from contextrouter.evaluation.measures import Compared, compare, measure
from contextrouter.evaluation.retrieval import Asked, name_of
from contextrouter.model import Envelope
from contextrouter.pipeline.fusion import fuse, leg_weight
from contextrouter.router import ContextRouter
from contextrouter.runtime.lifecycle import query_embedders
from contextrouter.settings import CALIBRATED, Rag

FOLDS, ROUNDS = 5, 3
WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5)
GRID: Mapping[str, tuple[float, ...]] = {
    "rrf_k": (10.0, 20.0, 60.0, 100.0),
    "derived_query_weight": (0.0, 0.01, 0.1, 1.0),
    "calibrate_weight": (0.0, 3.0, 10.0, 30.0),
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


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A question with all envelopes that the sources found."""

    answer: Asked
    names: frozenset[str]  # of documents in the judgements

    def rank(self, rag: Rag, profiles: Mapping[str, Mapping[str, float]], sources: Sequence[str]) -> Asked:
        """Return the answer that other settings would give, before stages."""
        ranked = dict.fromkeys(name_of(e.document, self.names) for e in self.fuse(rag, profiles, sources))
        return msgspec.structs.replace(self.answer, ranked=tuple(ranked), sources=())

    def fuse(
        self, rag: Rag, profiles: Mapping[str, Mapping[str, float]], sources: Sequence[str]
    ) -> list[Envelope]:
        """Return the envelopes, fused with other settings, without those that the fusion drops."""
        envelopes = [_set_calibrated_weight(envelope, rag.calibrate_weight) for envelope in self.answer.found]
        question = self.answer.question.question.strip()
        ranking = fuse(envelopes, rag, profiles=profiles, sources=sources, question=question)
        return [envelope for envelope in ranking if envelope.dropped is None]


def _set_calibrated_weight(envelope: Envelope, weight: float) -> Envelope:
    seals = envelope.provenance
    if all(seal.source != CALIBRATED or seal.weight == weight for seal in seals):
        return envelope
    return envelope.replace(
        provenance=tuple(s.replace(weight=weight) if s.source == CALIBRATED else s for s in seals)
    )


def tune(
    router: ContextRouter,
    answers: Sequence[Asked],
    metric: str = "nDCG@10",
    progress: Callable[[int], object] = lambda done: None,
) -> Tuned:
    """Try weights and k on the answers of `router`, one key at a time, and check the choice by
    cross-validation.

    `answers` come from `ask` with `whole`, and from settings that drop nothing. Raises what `measure` raises.
    """
    names = frozenset(name for answer in answers for name in answer.question.relevant)
    cases = [
        Case(answer=undo_later_steps(answer), names=names) for answer in answers if answer.question.counts
    ]
    trial = Trial(router, cases, metric)
    order = list(range(len(cases)))
    random.Random(FOLDS).shuffle(order)  # noqa: S311 - no secret hangs on it
    folds = [order[start::FOLDS] for start in range(FOLDS)] if len(cases) >= 2 * FOLDS else []
    tested: dict[str, float] = {}
    for number, fold in enumerate(folds, 1):
        candidate = trial.best([index for index in order if index not in fold])
        tested |= trial.values(candidate, fold)
        progress(number)
    base = trial.values(trial.base, order)
    best = trial.best(order)
    progress(len(folds) + 1)
    changes = [(key, getattr(trial.base, key), getattr(best, key)) for key in trial.keys]
    weights = {
        leg: weight
        for leg, weight in best.leg_weights.items()
        if leg in trial.set_weights or weight != trial.legs[leg]
    }
    if weights != trial.set_weights:
        changes.append(("leg_weights", trial.set_weights, weights))
    return Tuned(
        metric=metric,
        questions=len(cases),
        before=sum(base.values()) / len(base) if base else 0.0,
        gain=compare(tested, {id: base[id] for id in tested}),
        changes=tuple(change for change in changes if change[1] != change[2]),
        minimum=trial.minimum(best, order),
    )


def undo_later_steps(answer: Asked) -> Asked:
    """Return the answer as it was before the fusion: all documents of the sources, none of the stages."""
    envelopes = [
        envelope.replace(dropped=None, signals={})
        for envelope in answer.found
        if envelope.provenance and all(seal.leg != "stage" for seal in envelope.provenance)
    ]
    return msgspec.structs.replace(answer, found=tuple({id(e.provenance): e for e in envelopes}.values()))


class Trial:
    """The cases of one router, and their metric with other settings."""

    def __init__(self, router: ContextRouter, cases: Sequence[Case], metric: str) -> None:
        self.cases, self.metric = cases, metric
        self.sources = list(router.instances.sources)
        self.profiles: dict[str, Mapping[str, float]] = {
            name: embedder.leg_weights
            for name, embedder in query_embedders(
                router.instances.sources, router.instances.embedders
            ).items()
        }
        seals = [seal for case in cases for envelope in case.answer.found for seal in envelope.provenance]
        sources = sorted({seal.source for seal in seals if seal.source != CALIBRATED})
        self.profiles[CALIBRATED] = next(
            (self.profiles[name] for name in sources if name in self.profiles), {}
        )
        rag = router.settings.rag
        legs = sorted({seal.leg for seal in seals})
        self.set_weights = dict(rag.leg_weights)
        source = {seal.leg: seal.source for seal in seals}  # one source of each leg
        self.legs = {
            leg: leg_weight(source[leg], leg, rag, self.profiles.get(source[leg], {})) for leg in legs
        } | self.set_weights
        self.base = msgspec.structs.replace(rag, leg_weights=self.legs)
        several = len({seal.query for seal in seals}) > 1
        used = {
            "rrf_k": rag.hybrid_fusion == "rrf",
            "derived_query_weight": several,
            "calibrate_weight": any(seal.source == CALIBRATED for seal in seals),
        }
        self.keys = [key for key, needed in used.items() if needed]
        self.tuned_legs = legs[1:] if "text" not in legs else [leg for leg in legs if leg != "text"]
        self._measured: dict[bytes, dict[str, float]] = {}

    def values(self, rag: Rag, indexes: Sequence[int]) -> dict[str, float]:
        """Return question id -> metric. Each combination of settings is measured once."""
        key = msgspec.json.encode(
            (rag.rrf_k, rag.derived_query_weight, rag.calibrate_weight, sorted(rag.leg_weights.items()))
        )
        if key not in self._measured:
            answers = [case.rank(rag, self.profiles, self.sources) for case in self.cases]
            self._measured[key] = measure(answers, [self.metric])[self.metric]
        values = self._measured[key]
        return {id: values[id] for id in [self.cases[index].answer.question.id for index in indexes]}

    def best(self, indexes: Sequence[int]) -> Rag:
        """Return the best settings for these questions, one key at a time. If two are equal, the present one
        wins.
        """
        best, score = self.base, self._mean(self.base, indexes)
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
    def _variations(self) -> list[Callable[[Rag], list[Rag]]]:
        def vary_key(key: str) -> Callable[[Rag], list[Rag]]:
            return lambda rag: [msgspec.structs.replace(rag, **{key: value}) for value in GRID[key]]

        def vary_leg(leg: str) -> Callable[[Rag], list[Rag]]:
            return lambda rag: [
                msgspec.structs.replace(rag, leg_weights={**rag.leg_weights, leg: weight})
                for weight in WEIGHTS
            ]

        return [*map(vary_leg, self.tuned_legs), *map(vary_key, self.keys)]

    def _mean(self, rag: Rag, indexes: Sequence[int]) -> float:
        values = self.values(rag, indexes)
        return sum(values.values()) / len(values) if values else 0.0

    def minimum(self, rag: Rag, indexes: Sequence[int]) -> float:
        """Return the largest cut-off of the normalised score, in hundredths, that keeps the relevant
        documents.
        """
        scores: list[float] = []
        for case in [self.cases[index] for index in indexes]:
            relevant = {name for name, grade in case.answer.question.relevant.items() if grade > 0}
            scores += [
                envelope.normalized
                for envelope in case.fuse(rag, self.profiles, self.sources)
                if name_of(envelope.document, case.names) in relevant
            ]
        scores.sort()
        return int(scores[int((1 - RECALL) * len(scores))] * 100) / 100 if scores else 0.0
