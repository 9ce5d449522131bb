"""Retrieval metrics (nDCG, recall, MRR), and the significance of the difference between two runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from contextrouter.errors import MissingDependency, SettingsError
from contextrouter.evaluation.retrieval import Asked

METRICS = ("nDCG@10", "R@100", "RR", "AP")
SAMPLES = 2_000
_SEED = 7


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of two runs over the same questions.

    `mean` is the mean difference, `low` and `high` its 95 % interval by paired bootstrap. `p` is the
    probability of such a difference if the runs were equally good (paired randomisation test).
    """

    mean: float
    low: float
    high: float
    p: float


def measure(answers: Sequence[Asked], metrics: Sequence[str] = METRICS) -> dict[str, dict[str, float]]:
    """Return metric -> id of the question -> value, for the questions with a relevant document. A question
    that finds nothing has 0.

    Raises MissingDependency without the extra `eval`, SettingsError for a metric that `ir-measures` does not
    know.
    """
    try:
        import ir_measures
    except ImportError:
        raise MissingDependency("ir-measures", "eval", what="Measuring") from None
    parsed = []
    for name in metrics:
        try:
            parsed.append(ir_measures.parse_measure(name))
        except (ValueError, NameError, AssertionError, KeyError) as error:
            examples = ", ".join(METRICS)
            raise SettingsError(
                f"Metric {name!r} is none that ir-measures knows ({error}); such as {examples}."
            ) from None
    counting = [answer for answer in answers if answer.question.counts]
    values = {name: {answer.question.id: 0.0 for answer in counting} for name in metrics}
    if not counting:
        return values
    qrels = [
        ir_measures.Qrel(a.question.id, name, grade)
        for a in counting
        for name, grade in a.question.relevant.items()
    ]
    run = [
        ir_measures.ScoredDoc(a.question.id, name, 1.0 / rank)
        for a in counting
        for rank, name in enumerate(a.ranked, 1)
    ]
    for result in ir_measures.iter_calc(parsed, qrels, run):
        for name, metric in zip(metrics, parsed, strict=True):
            if metric == result.measure:
                values[name][result.query_id] = float(result.value)
    return values


def compare(values: Mapping[str, float], baseline: Mapping[str, float]) -> Compared:
    """Compare a metric's values with a baseline, over the questions that both have."""
    differences = [values[id] - baseline[id] for id in sorted(set(values) & set(baseline))]
    if not differences:
        return Compared(mean=0.0, low=0.0, high=0.0, p=1.0)
    chance, mean, count = random.Random(_SEED), fmean(differences), len(differences)  # noqa: S311 - it protects no secret
    means = sorted(fmean(chance.choices(differences, k=count)) for _ in range(SAMPLES))
    extreme = sum(
        abs(sum([d if chance.random() < 0.5 else -d for d in differences])) >= abs(sum(differences)) - 1e-12
        for _ in range(SAMPLES)
    )
    low, high = means[int(0.025 * SAMPLES)], means[int(0.975 * SAMPLES) - 1]
    return Compared(mean=mean, low=low, high=high, p=(extreme + 1) / (SAMPLES + 1))


def abstention(answers: Sequence[Asked], *levels: str) -> tuple[float | None, float | None]:
    """Return the share of answers whose answerability is one of `levels`: of the questions without an answer,
    and of those with one. None if there is no such question.
    """
    shares: list[float | None] = []
    for answerable in (False, True):
        abstained = [answer.level in levels for answer in answers if answer.question.answerable is answerable]
        shares.append(fmean(abstained) if abstained else None)
    return shares[0], shares[1]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
