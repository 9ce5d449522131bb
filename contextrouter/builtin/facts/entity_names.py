"""The ranking of facts about the names in a question, and entities made of facts, for all fact sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.providers.filtering import microseconds
from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.model import Entity, Fact, Query
from contextrouter.text.analysis import analyse
from contextrouter.text.fact_words import PREDICATE_WEIGHT, QuestionWords, same_words, spaced
from contextrouter.text.query_syntax import holds_any
from contextrouter.text.stemming import ENGLISH, stemmer

MAX_NAMES = 1_000
"""The most names that one hop follows."""
MAX_FACTS = 5_000
"""The most facts that one hop reads."""


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


def group_by_subject(facts: Iterable[Fact], query: Query) -> list[Entity]:
    """Return the subjects of facts as entities, at most `query.limit`. One name under different access labels
    is several entities.

    With `query.attribute`, those that have it, and nothing else of them; it is named as in the facts.
    """
    grouped: dict[tuple[str, ...], list[Fact]] = {}
    for fact in _facts_of_attribute(facts, query) if query.attribute else facts:
        labels = (fact.tenant or "", fact.compartment or "", fact.sensitivity or "")
        grouped.setdefault((name_key(fact.subject), *labels), []).append(fact)
    return [_make_entity(key[0], group) for key, group in sorted(grouped.items())][: max(query.limit, 0)]


def _facts_of_attribute(facts: Iterable[Fact], query: Query) -> Iterator[Fact]:
    """Yield the facts whose predicate is the attribute, in one spelling: that of the first."""
    stems = _stems(query.attribute or "", query.language)
    predicate = ""
    for fact in facts:
        if stems and _stems(fact.predicate, query.language) & stems:
            predicate = predicate or fact.predicate
            yield fact.replace(predicate=predicate)


def _stems(attribute: str, language: str | None) -> set[tuple[str, ...]]:
    """The stems of the words of an attribute: English ones, and those of the question's language."""
    words = spaced(attribute)[len(attribute) :].strip() or attribute  # `birthDate` is `birth Date`
    languages = dict.fromkeys((ENGLISH, language or ENGLISH))
    stems = {tuple(analyse(words.replace("_", " "), stemmer(name))) for name in languages}
    return {terms for terms in stems if terms}


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
