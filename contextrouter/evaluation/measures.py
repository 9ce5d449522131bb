"""Retrieval measures (nDCG, recall, average precision), and whether two sets of figures differ by more
than chance.
"""

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
    """The mean difference over the same questions, its 95 % interval by paired bootstrap, and the chance to
    see as large a one if the two were alike (paired randomisation test).
    """

    mean: float
    low: float
    high: float
    p: float


def measure(answers: Sequence[Asked], metrics: Sequence[str] = METRICS) -> dict[str, dict[str, float]]:
    """Metric -> id of the question -> value, over questions that rank something; one without an answer has 0.

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
            known = ", ".join(METRICS)
            raise SettingsError(
                f"Metric {name!r} is none that ir-measures knows ({error}); such as {known}."
            ) from None
    counting = [each for each in answers if each.question.counts]
    values = {name: {each.question.id: 0.0 for each in counting} for name in metrics}
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
    for found in ir_measures.iter_calc(parsed, qrels, run):
        for name, wanted in zip(metrics, parsed, strict=True):
            if wanted == found.measure:
                values[name][found.query_id] = float(found.value)
    return values


def compare(one: Mapping[str, float], other: Mapping[str, float]) -> Compared:
    """`one` against `other`, over the questions both have."""
    both = sorted(set(one) & set(other))
    differences = [one[id] - other[id] for id in both]
    if not differences:
        return Compared(mean=0.0, low=0.0, high=0.0, p=1.0)
    chance, mean, count = random.Random(_SEED), fmean(differences), len(differences)  # noqa: S311 - no secret hangs on it
    means = sorted(fmean(chance.choices(differences, k=count)) for _ in range(SAMPLES))
    extreme = sum(
        abs(sum([d if chance.random() < 0.5 else -d for d in differences])) >= abs(sum(differences)) - 1e-12
        for _ in range(SAMPLES)
    )
    low, high = means[int(0.025 * SAMPLES)], means[int(0.975 * SAMPLES) - 1]
    return Compared(mean=mean, low=low, high=high, p=(extreme + 1) / (SAMPLES + 1))


def abstention(answers: Sequence[Asked], *levels: str) -> tuple[float | None, float | None]:
    """Of the questions without an answer, and of those with one, the share whose answerability is one of
    `levels`.
    """
    shares: list[float | None] = []
    for answerable in (False, True):
        found = [each.level in levels for each in answers if each.question.answerable is answerable]
        shares.append(fmean(found) if found else None)
    return shares[0], shares[1]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
