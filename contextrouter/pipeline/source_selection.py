"""Source selection (step 3): skips sources that are unlikely to help. `[selection] sources` turns it on.

A source is judged by how often the words of the question occur in it. Sources unlikely to help are not asked
by meaning. A leg that finds exact words is left out only where no word of the question occurs, so that
nothing is lost. A source that reports no statistics is always asked. The plan and the coverage say what is
not asked, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contextrouter.contracts import MENTIONS, STRUCTURED_LEGS, FactSource, Source, TermStatistics
from contextrouter.model import Call, Plan
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine
from contextrouter.settings import Selection
from contextrouter.text import analysis, bm25, query_syntax

HALF = 2.0
"""A term that so many documents of a source have gives half of what it can give: the first ones tell the
most.
"""


async def select_sources(plan: Plan, engine: Engine, deadline: Deadline) -> Plan:
    """Return the plan without calls that cannot help; a source that reports nothing in time is asked."""
    by_name = STRUCTURED_LEGS | {MENTIONS}  # they ask for entities, whatever words the question has
    calls_for_hits = [call for call in plan.calls if call.query.leg not in by_name]
    names = list(dict.fromkeys(call.source for call in calls_for_hits))
    if len(names) < 2:
        return plan
    texts = dict.fromkeys(call.query.text for call in calls_for_hits)
    words, scope = query_syntax.scored_words(texts), calls_for_hits[0].query.scope
    statistics = await engine.statistics.statistics(names, words, scope, deadline)
    reasons = unpromising(statistics, engine.settings.selection, texts)
    excluded = dict(plan.excluded)
    calls = []
    for call in plan.calls:
        reason = reasons.get(call.source, "") if call in calls_for_hits else ""
        if reason and (reason == NOTHING or _searches_by_meaning(call, engine.sources)):
            excluded[f"{call.source}/{call.query.leg}"] = f"{reason} ([selection] sources)"
        else:
            calls.append(call)
    return plan.replace(calls=tuple(calls), excluded=excluded)


NOTHING = "no word of the question occurs in it"


def unpromising(
    statistics_by_source: Mapping[str, TermStatistics], selection: Selection, texts: Iterable[str]
) -> dict[str, str]:
    """Source -> why it is unlikely to help, of those that reported statistics; none when nobody promises
    anything.
    """
    promised = promises(statistics_by_source)
    total_promise = sum(promised.values())
    if not total_promise:
        return {}
    # A character of a script without spaces also stands for terms that it begins, and those were not counted.
    certain = not any(
        term.endswith(query_syntax.FURTHEST)
        for text in texts
        for term in query_syntax.query_terms(text).terms
    )
    reasons: dict[str, str] = {}
    covered = 0.0
    for position, name in enumerate(sorted(promised, key=lambda name: -promised[name])):
        if not promised[name] and certain:
            reasons[name] = NOTHING
        elif position >= selection.fewest and covered >= selection.recall * total_promise:
            reasons[name] = (
                f"unlikely to help: {promised[name] / total_promise:.1%} of what the question's words promise"
            )
        covered += promised[name]
    return reasons


def promises(statistics_by_source: Mapping[str, TermStatistics]) -> dict[str, float]:
    """What each source promises: (Σ idf² · n ÷ (n + 2))² over the terms, n the documents that have one."""
    frequencies: dict[str, dict[str, int]] = {}
    for name, statistics in statistics_by_source.items():
        for word, frequency in statistics.frequencies.items():
            for term in analysis.analyse(word):
                by_source = frequencies.setdefault(term, {})
                by_source[name] = max(frequency, by_source.get(name, 0))
    total = sum([statistics.documents for statistics in statistics_by_source.values()])
    promised = dict.fromkeys(statistics_by_source, 0.0)
    for by_source in frequencies.values():
        rarity = bm25.weight(total, sum(by_source.values())) ** 2
        for name, frequency in by_source.items():
            promised[name] += rarity * frequency / (frequency + HALF)
    return {name: promise**2 for name, promise in promised.items()}


def _searches_by_meaning(call: Call, sources: Mapping[str, Source | FactSource]) -> bool:
    source = sources[call.source]
    return isinstance(source, Source) and call.query.leg in source.vector_legs
