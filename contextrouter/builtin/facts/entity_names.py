"""Entity names in a question, and the ranking of facts; shared by the fact sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.providers.filtering import microseconds
from contextrouter.builtin.providers.sqlite.write import name_key
from contextrouter.model import Entity, Fact, Query
from contextrouter.text.analysis import LONGEST, atoms
from contextrouter.text.fact_words import PREDICATE_WEIGHT, QuestionWords, same_words, spaced
from contextrouter.text.query_syntax import drop_exclusions, holds_any
from contextrouter.text.stop_words import STOP_WORDS

MAX_NAMES = 1_000
"""The most names that one hop follows."""
MAX_FACTS = 5_000
"""The most facts that one hop reads."""
_LONGEST_NAME = 16  # words, or characters of a script without spaces
_MOST_WORDS = 2_000  # of a question that are looked up


class FactMatch(NamedTuple):
    """A fact, how many names of the question it contains, and its distance in hops."""

    fact: Fact
    matched: int
    hop: int

    def order(self, words: QuestionWords) -> tuple[Any, ...]:
        """Return the sort key: most names and words of the question, fewest hops, highest confidence, then
        subject, predicate, object, period. A word of the question in the predicate counts as two names.
        """
        fact = self.fact
        since = microseconds(fact.valid_from)
        return (
            -self.matched - PREDICATE_WEIGHT * words.in_predicate(fact.predicate),
            self.hop,
            -fact.confidence,
            fact.subject,
            fact.predicate,
            fact.object,
            since is not None,
            since,
        )


def rank_facts(matches: Iterable[FactMatch], query: Query) -> list[Fact]:
    """Return the distinct facts in order, without those that have an excluded word.

    The same statement with two periods is two facts; with another case or other spaces it is one.
    """
    words = QuestionWords(query.text, query.language)
    distinct: dict[tuple[Any, ...], Fact] = {}
    for fact, _, _ in sorted(matches, key=lambda match: match.order(words)):
        if len(distinct) >= query.limit:
            break
        texts = (fact.subject, fact.predicate, fact.object)
        says = *map(same_words, texts), fact.valid_from, fact.valid_to
        if says not in distinct and not _is_excluded(fact, query):
            distinct[says] = fact
    return list(distinct.values())


def _is_excluded(fact: Fact, query: Query) -> bool:
    texts = (fact.subject, spaced(fact.predicate), fact.object)
    return bool(query.excluded) and holds_any(query.excluded, texts, query.language)


def group_by_subject(facts: Iterable[Fact], limit: int) -> list[Entity]:
    """Return the subjects of facts as entities. One name under different access labels is several
    entities.
    """
    grouped: dict[tuple[str, ...], list[Fact]] = {}
    for fact in facts:
        labels = (fact.tenant or "", fact.compartment or "", fact.sensitivity or "")
        grouped.setdefault((name_key(fact.subject), *labels), []).append(fact)
    return [_make_entity(key[0], group) for key, group in sorted(grouped.items())][: max(limit, 0)]


def _make_entity(key: str, facts: Sequence[Fact]) -> Entity:
    attributes: defaultdict[str, list[str]] = defaultdict(list)
    for fact in facts:
        if fact.object not in attributes[fact.predicate]:
            attributes[fact.predicate].append(fact.object)
    example = facts[0]
    return Entity(
        id=key,
        name=example.subject,
        attributes={name: v[0] if len(v) == 1 else v for name, v in attributes.items()},
        source=example.source,
        tenant=example.tenant,
        compartment=example.compartment,
        sensitivity=example.sensitivity,
        untrusted=any(fact.untrusted for fact in facts),
    )


class NameCandidates(NamedTuple):
    """The names that a query may contain: runs of words of its text as (start, end, key), and its explicit
    entities and concepts.
    """

    spans: Sequence[tuple[int, int, str]]
    explicit: Collection[str]

    @property
    def keys(self) -> set[str]:
        """All candidates, folded."""
        return {key for _, _, key in self.spans} | set(self.explicit)

    def matching(self, names: Collection[str]) -> set[str]:
        """Return the candidates that are in `names`; of overlapping runs of words the longest.

        A run of stop words ("it", "who") is no name, unless it is an explicit entity.
        """
        spans = [
            span
            for span in self.spans
            if span[2] in names and not all(word in STOP_WORDS for word in span[2].split())
        ]
        spans.sort(key=lambda span: (span[0] - span[1], span[0]))
        matches: list[tuple[int, int, str]] = []
        for begin, end, key in spans:
            if not any(start <= begin and end <= stop for start, stop, _ in matches):
                matches.append((begin, end, key))
        return {key for _, _, key in matches} | {key for key in self.explicit if key in names}


def name_candidates(query: Query) -> NameCandidates:
    """Return the candidates of a query: each run of words that is short enough, and the explicit names.

    What the text excludes is no name.
    """
    words = atoms(drop_exclusions(query.text[:LONGEST]))[:_MOST_WORDS]
    spans = [
        (start, end, " ".join(words[start:end]))
        for start in range(len(words))
        for end in range(start + 1, min(start + _LONGEST_NAME, len(words)) + 1)
    ]
    return NameCandidates(
        spans, {key for name in (*query.entities, *query.concepts) if (key := name_key(name))}
    )
