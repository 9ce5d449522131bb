"""Every judged question put to a router."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from time import perf_counter

import msgspec

from contextrouter.errors import AllSourcesFailed
from contextrouter.evaluation.judgements import Judged
from contextrouter.model import Document, Envelope, Request
from contextrouter.router import ContextRouter
from contextrouter.settings import CALIBRATED

OVERRIDES = {"general_retrieval_enabled": True, "token_budget": 0, "cache_enabled": False}
"""What is set otherwise while ranking is judged: the best of all kinds, whole, and every question answered
anew.
"""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one question: names of documents, best first, each once, and the source of each."""

    question: Judged
    ranked: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    seconds: float = 0.0
    level: str = "none"
    statuses: dict[str, dict[str, int]] = {}  # source -> how its calls ended
    found: tuple[Envelope, ...] = ()  # everything, what was not selected behind what was


async def ask(
    router: ContextRouter,
    judged: Sequence[Judged],
    progress: Callable[[int], object] = lambda done: None,
    *,
    whole: bool = False,
) -> list[Asked]:
    """Ask one question after the other. Documents are named as the judgements name them: see `name_of`.

    A question whose every source failed found nothing. `whole` keeps the envelopes as well, for `tune`.
    """
    named = frozenset(name for each in judged for name in each.relevant)
    answers = []
    for number, each in enumerate(judged, 1):
        started = perf_counter()
        try:
            context = await router.route(Request(question=each.question, scope=each.scope))
            took = perf_counter() - started
            envelopes, reports, level = context.envelopes, context.coverage, context.answerability.level
            found = (*envelopes, *context.trace.dropped)
        except AllSourcesFailed as error:
            took, envelopes, reports, level, found = (
                perf_counter() - started,
                (),
                tuple(error.reports),
                "none",
                (),
            )
        best: dict[str, str] = {}
        for envelope in envelopes:
            best.setdefault(name_of(envelope.document, named), source_of(envelope))
        statuses: dict[str, Counter[str]] = {}
        for report in reports:
            statuses.setdefault(report.source, Counter())[report.status] += 1
        made = Asked(
            question=each,
            ranked=tuple(best),
            sources=tuple(best.values()),
            seconds=took,
            level=level,
            found=tuple(found) if whole else (),
            statuses={name: dict(counts) for name, counts in statuses.items()},
        )
        answers.append(made)
        progress(number)
    return answers


def name_of(document: Document, named: Set[str]) -> str:
    """What the judgements call a document: its id, what it was cut from, with or without the job's name, its
    URL or title.
    """
    whole = document.parent or document.id
    names = (document.id, document.parent, whole.partition(":")[2], document.url, document.title)
    return next((name for name in names if name and name in named), document.id or document.url)


def source_of(envelope: Envelope) -> str:
    """The source that ranked a document best."""
    return next((seal.source for seal in envelope.provenance if seal.source != CALIBRATED), "")
