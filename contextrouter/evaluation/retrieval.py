"""Retrieval for evaluation: ask a router every judged question and note the ranked documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from time import perf_counter

import msgspec

from contextrouter.errors import AllSourcesFailed
from contextrouter.evaluation.judgements import Judged
from contextrouter.model import Document, Envelope, Request, SourceReport
from contextrouter.router import ContextRouter

OVERRIDES = {
    "general_retrieval_enabled": True,
    "token_budget": 0,
    "merge_neighbours": False,
    "cache_enabled": False,
}
"""Settings for evaluation: rank documents of all kinds, cut none for tokens, leave chunks apart as they are
judged, and answer nothing from the cache.
"""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question: the names of the documents, best first, each once, and their sources."""

    question: Judged
    ranked: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    seconds: float = 0.0
    level: str = "none"
    statuses: dict[str, dict[str, int]] = {}  # source -> status of its calls -> how many


async def ask(
    router: ContextRouter,
    judged: Sequence[Judged],
    progress: Callable[[int], object] = lambda done: None,
    *,
    sources: Sequence[str] | None = None,
) -> list[Asked]:
    """Ask one question after the other, of all sources or of some. Documents have the names of the
    judgements: see `name_of`.

    If all sources of a question fail, its answer is empty.
    """
    names = frozenset(name for question in judged for name in question.relevant)
    answers = []
    for number, question in enumerate(judged, 1):
        asked = tuple(sources) if sources is not None else None
        request = Request(question=question.question, scope=question.scope, sources=asked)
        answers.append(await _ask_one(router, question, request, names))
        progress(number)
    return answers


async def _ask_one(router: ContextRouter, question: Judged, request: Request, names: Set[str]) -> Asked:
    start = perf_counter()
    try:
        context = await router.route(request)
    except AllSourcesFailed as error:
        return Asked(
            question=question, seconds=perf_counter() - start, statuses=_count_statuses(error.reports)
        )
    seconds = perf_counter() - start
    sources: dict[str, str] = {}
    for envelope in context.envelopes:
        sources.setdefault(name_of(envelope.document, names), source_of(envelope))
    return Asked(
        question=question,
        ranked=tuple(sources),
        sources=tuple(sources.values()),
        seconds=seconds,
        level=context.answerability.level,
        statuses=_count_statuses(context.coverage),
    )


def _count_statuses(reports: Iterable[SourceReport]) -> dict[str, dict[str, int]]:
    statuses: dict[str, Counter[str]] = {}
    for report in reports:
        statuses.setdefault(report.source, Counter())[report.status] += 1
    return {name: dict(counts) for name, counts in statuses.items()}


def name_of(document: Document, names: Set[str]) -> str:
    """Return which of the `names` in the judgements stands for a document: its id, URL or title, or its
    parent's id with or without the job's name. Without any of them, return its id.
    """
    parent = document.parent or document.id
    candidates = (document.id, document.parent, parent.partition(":")[2], document.url, document.title)
    return next((name for name in candidates if name and name in names), document.id or document.url)


def source_of(envelope: Envelope) -> str:
    """Return the source that ranked a document best."""
    return next((seal.source for seal in envelope.provenance), "")
