"""What a question names and how facts are put in order, shared by the fact sources that are asked by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.providers.filtering import microseconds
from contextrouter.builtin.providers.sqlite.write import name_key
from contextrouter.model import Entity, Fact, Query
from contextrouter.text.analysis import LONGEST, atoms
from contextrouter.text.stop_words import STOP_WORDS

WIDEST = 1_000
"""Names followed from one hop to the next."""
MOST = 5_000
"""Facts looked at in one hop."""
_LONGEST_NAME = 16  # words, or characters of a script without spaces
_MOST_WORDS = 2_000  # of a question that are looked up


class Found(NamedTuple):
    """A fact, how many of the question's names it holds, and how many hops away it is."""

    fact: Fact
    matched: int
    hop: int

    @property
    def order(self) -> tuple[Any, ...]:
        """Most names first, then nearest, surest, and by subject, predicate, object and period."""
        fact = self.fact
        since = microseconds(fact.valid_from)
        return (
            -self.matched,
            self.hop,
            -fact.confidence,
            fact.subject,
            fact.predicate,
            fact.object,
            since is not None,
            since,
        )


def best(found: Iterable[Found], limit: int) -> list[Fact]:
    """In order, one of each fact that several documents say; said of two periods it is two facts."""
    told: dict[tuple[Any, ...], Fact] = {}
    for fact, _, _ in sorted(found, key=lambda each: each.order):
        told.setdefault((fact.subject, fact.predicate, fact.object, fact.valid_from, fact.valid_to), fact)
    return list(told.values())[:limit]


def subjects(facts: Iterable[Fact], limit: int) -> list[Entity]:
    """The entities that facts are about; what is said of one name under different labels are different
    entities.
    """
    grouped: dict[tuple[str, ...], list[Fact]] = {}
    for fact in facts:
        labels = (fact.tenant or "", fact.compartment or "", fact.sensitivity or "")
        grouped.setdefault((name_key(fact.subject), *labels), []).append(fact)
    return [_entity(key[0], told) for key, told in sorted(grouped.items())][: max(limit, 0)]


def _entity(key: str, facts: Sequence[Fact]) -> Entity:
    attributes: defaultdict[str, list[str]] = defaultdict(list)
    for fact in facts:
        if fact.object not in attributes[fact.predicate]:
            attributes[fact.predicate].append(fact.object)
    first = facts[0]
    return Entity(
        id=key,
        name=first.subject,
        attributes={name: v[0] if len(v) == 1 else v for name, v in attributes.items()},
        source=first.source,
        tenant=first.tenant,
        compartment=first.compartment,
        sensitivity=first.sensitivity,
    )


class NameCandidates(NamedTuple):
    """The names a query may hold: runs of words of its text as (first, end, key), and those given as entities
    or concepts.
    """

    spans: Sequence[tuple[int, int, str]]
    given: Collection[str]

    @property
    def keys(self) -> set[str]:
        """All of them, folded."""
        return {key for _, _, key in self.spans} | set(self.given)

    def matching(self, names: Collection[str]) -> set[str]:
        """Those that are in `names`: given ones, and those in the text that lie within no longer one.

        Stop words alone ("it", "who") name nothing unless given as an entity.
        """
        spans = [
            span
            for span in self.spans
            if span[2] in names and not all(word in STOP_WORDS for word in span[2].split())
        ]
        spans.sort(key=lambda span: (span[0] - span[1], span[0]))
        chosen: list[tuple[int, int, str]] = []
        for first, end, key in spans:
            if not any(start <= first and end <= stop for start, stop, _ in chosen):
                chosen.append((first, end, key))
        return {key for _, _, key in chosen} | {key for key in self.given if key in names}


def name_candidates(query: Query) -> NameCandidates:
    """What a query may name: each run of its words that is short enough, and what is given."""
    words = atoms(query.text[:LONGEST])[:_MOST_WORDS]
    spans = [
        (start, end, " ".join(words[start:end]))
        for start in range(len(words))
        for end in range(start + 1, min(start + _LONGEST_NAME, len(words)) + 1)
    ]
    return NameCandidates(
        spans, {key for name in (*query.entities, *query.concepts) if (key := name_key(name))}
    )
