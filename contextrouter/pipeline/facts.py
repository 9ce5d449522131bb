"""Facts of several sources: each once, the sources taking turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from contextrouter.model import Fact


def distinct_facts(facts: Sequence[Fact], limit: int) -> tuple[list[Fact], list[Fact]]:
    """Return one of each fact, at most `limit`, and those beyond; a fact's validity is part of what it says.

    Facts keep the order of their source, which knows best how well they fit. The sources take turns, in the
    order of the settings: the first of each, the second of each, and so on.
    """
    by_source: dict[str, list[Fact]] = {}
    for fact in facts:
        by_source.setdefault(fact.source, []).append(fact)
    distinct: dict[Any, Fact] = {}
    for turn in zip_longest(*by_source.values()):
        for fact in turn:
            if fact is not None:
                says = (fact.subject, fact.predicate, fact.object, fact.valid_from, fact.valid_to)
                distinct.setdefault(says, fact)
    ordered = list(distinct.values())
    return ordered[:limit], ordered[limit:]
