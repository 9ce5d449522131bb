"""Which settings of the fusion would rank better? Tried on what a router found once, and checked on questions
kept apart.
"""

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
LEAST = 0.002
"""A smaller gain on the questions that chose it is not worth another value."""
KEPT = 0.99
"""Share of the relevant documents found that a cut-off keeps."""


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """What tuning came to: `changes` of `[rag]` as (key, before, after), and their gain on questions that did
    not choose them.

    `minimum` is the largest normalised score below which no more than a hundredth of the relevant documents
    found stands.
    """

    metric: str
    questions: int
    before: float
    gain: Compared
    changes: tuple[tuple[str, Any, Any], ...] = ()
    minimum: float = 0.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A question with all that was found, sealed with the lists that found it."""

    answer: Asked
    named: frozenset[str]

    def again(self, rag: Rag, profiles: Mapping[str, Mapping[str, float]], sources: Sequence[str]) -> Asked:
        """The question as other settings would have answered it, before stages."""
        ranked = dict.fromkeys(name_of(e.document, self.named) for e in self.fused(rag, profiles, sources))
        return msgspec.structs.replace(self.answer, ranked=tuple(ranked), sources=())

    def fused(
        self, rag: Rag, profiles: Mapping[str, Mapping[str, float]], sources: Sequence[str]
    ) -> list[Envelope]:
        """What it found, fused anew, without what counts for nothing."""
        found = [_weighed(envelope, rag.calibrate_weight) for envelope in self.answer.found]
        fused = fuse(
            found, rag, profiles=profiles, sources=sources, question=self.answer.question.question.strip()
        )
        return [envelope for envelope in fused if envelope.dropped is None]


def _weighed(envelope: Envelope, weight: float) -> Envelope:
    """The same with another weight of the calibrated lists."""
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

    The answers are those of `ask`, of a router whose settings keep everything that was found. Raises what
    `measure` raises.
    """
    named = frozenset(name for each in answers for name in each.question.relevant)
    cases = [Case(answer=bare(each), named=named) for each in answers if each.question.counts]
    trial = Trial(router, cases, metric)
    order = list(range(len(cases)))
    random.Random(FOLDS).shuffle(order)  # noqa: S311 - no secret hangs on it
    folds = [order[at::FOLDS] for at in range(FOLDS)] if len(cases) >= 2 * FOLDS else []
    held: dict[str, float] = {}
    for number, fold in enumerate(folds, 1):
        chosen = trial.best([at for at in order if at not in fold])
        held |= trial.values(chosen, fold)
        progress(number)
    base = trial.values(trial.base, order)
    best = trial.best(order)
    progress(len(folds) + 1)
    changes = [(key, getattr(trial.base, key), getattr(best, key)) for key in trial.keys]
    weighed = {
        leg: weight
        for leg, weight in best.leg_weights.items()
        if leg in trial.given or weight != trial.legs[leg]
    }
    if weighed != trial.given:
        changes.append(("leg_weights", trial.given, weighed))
    return Tuned(
        metric=metric,
        questions=len(cases),
        before=sum(base.values()) / len(base) if base else 0.0,
        gain=compare(held, {id: base[id] for id in held}),
        changes=tuple(change for change in changes if change[1] != change[2]),
        minimum=trial.minimum(best, order),
    )


def bare(answer: Asked) -> Asked:
    """Without what later steps did: only documents that sources found, alive again."""
    found = [envelope.replace(dropped=None, signals={}) for envelope in answer.found if envelope.provenance]
    found = [envelope for envelope in found if all(seal.leg != "stage" for seal in envelope.provenance)]
    return msgspec.structs.replace(answer, found=tuple({id(e.provenance): e for e in found}.values()))


class Trial:
    """Cases of one router, and what other settings would make of them."""

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
        answered = sorted({seal.source for seal in seals if seal.source != CALIBRATED})
        self.profiles[CALIBRATED] = next(
            (self.profiles[name] for name in answered if name in self.profiles), {}
        )
        rag = router.settings.rag
        legs = sorted({seal.leg for seal in seals})
        self.given = dict(rag.leg_weights)
        some = {seal.leg: seal.source for seal in seals}
        self.legs = {
            leg: leg_weight(some[leg], leg, rag, self.profiles.get(some[leg], {})) for leg in legs
        } | self.given
        self.base = msgspec.structs.replace(rag, leg_weights=self.legs)
        several = len({seal.query for seal in seals}) > 1
        used = {
            "rrf_k": rag.hybrid_fusion == "rrf",
            "derived_query_weight": several,
            "calibrate_weight": any(seal.source == CALIBRATED for seal in seals),
        }
        self.keys = [key for key, needed in used.items() if needed]
        self.tuned_legs = legs[1:] if "text" not in legs else [leg for leg in legs if leg != "text"]
        self.known: dict[bytes, dict[str, float]] = {}

    def values(self, rag: Rag, places: Sequence[int]) -> dict[str, float]:
        """The metric of each question; everything is measured once and kept."""
        key = msgspec.json.encode(
            (rag.rrf_k, rag.derived_query_weight, rag.calibrate_weight, sorted(rag.leg_weights.items()))
        )
        if key not in self.known:
            answers = [case.again(rag, self.profiles, self.sources) for case in self.cases]
            self.known[key] = measure(answers, [self.metric])[self.metric]
        found = self.known[key]
        return {id: found[id] for id in [self.cases[at].answer.question.id for at in places]}

    def best(self, places: Sequence[int]) -> Rag:
        """The best settings for these questions, one key at a time; of equal ones those that are set."""
        best, score = self.base, self._mean(self.base, places)
        for _ in range(ROUNDS):
            before = best
            for made in self._alternatives:
                for rag in made(best):
                    found = self._mean(rag, places)
                    if found > score + LEAST:
                        best, score = rag, found
            if best is before:
                break
        return best

    @property
    def _alternatives(self) -> list[Callable[[Rag], list[Rag]]]:
        def of_key(key: str) -> Callable[[Rag], list[Rag]]:
            return lambda rag: [msgspec.structs.replace(rag, **{key: value}) for value in GRID[key]]

        def of_leg(leg: str) -> Callable[[Rag], list[Rag]]:
            return lambda rag: [
                msgspec.structs.replace(rag, leg_weights={**rag.leg_weights, leg: weight})
                for weight in WEIGHTS
            ]

        return [*map(of_leg, self.tuned_legs), *map(of_key, self.keys)]

    def _mean(self, rag: Rag, places: Sequence[int]) -> float:
        values = self.values(rag, places)
        return sum(values.values()) / len(values) if values else 0.0

    def minimum(self, rag: Rag, places: Sequence[int]) -> float:
        """The largest cut-off of the normalised score, in hundredths, that keeps the relevant documents
        found.
        """
        scores: list[float] = []
        for case in [self.cases[at] for at in places]:
            relevant = {name for name, grade in case.answer.question.relevant.items() if grade > 0}
            fused = case.fused(rag, self.profiles, self.sources)
            scores += [
                envelope.normalized
                for envelope in fused
                if name_of(envelope.document, case.named) in relevant
            ]
        scores.sort()
        return int(scores[int((1 - KEPT) * len(scores))] * 100) / 100 if scores else 0.0
