"""Laws of fact sources: triples, limits, confidence, order, scopes, deadlines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from contextrouter.errors import SourceTimeout
from contextrouter.model import Fact, Query
from contextrouter.scope import SHARED, Scope
from contextrouter.testing import measure
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject
from contextrouter.testing.texts import BLANK

LATE = 0.25
"""Seconds by which an answer may miss its deadline."""


async def _ask(subject: Subject, plugin: Any, **fields: Any) -> list[tuple[Query, Sequence[Fact]]]:
    inputs = [query.replace(**fields) for query in await subject.exercise.inputs(subject, plugin)]
    return [(query, facts_of(await plugin.facts(query))) for query in inputs]


def facts_of(answer: Any) -> list[Fact]:
    """Return the facts of an answer. Other answers break the law `answers_are_facts`."""
    return [fact for fact in answer if isinstance(fact, Fact)] if isinstance(answer, list | tuple) else []


@law
async def example_has_facts(subject: Subject) -> None:
    """Some question has facts; `example_questions` names some where the kit cannot guess."""
    async with subject.open_plugin() as plugin:
        if not any([await plugin.facts(query) for query in await subject.exercise.inputs(subject, plugin)]):
            raise Broken(
                f"nothing was known about {shorten(subject.active_questions, 120)};"
                " name questions in `example_questions`"
            )


@law
async def answers_are_facts(subject: Subject) -> None:
    """facts() returns a list or tuple of Facts with a subject, a predicate and an object."""
    async with subject.open_plugin() as plugin:
        for query in await subject.exercise.inputs(subject, plugin):
            facts = await plugin.facts(query)
            if not isinstance(facts, list | tuple) or not all(isinstance(fact, Fact) for fact in facts):
                raise Broken(f"{shorten(query.text)} was answered with {shorten(facts)}")
            if any(not (fact.subject and fact.predicate and fact.object) for fact in facts):
                raise Broken(f"a fact about {shorten(query.text)} lacks a part")


@law
async def no_more_facts_than_the_limit(subject: Subject) -> None:
    """At most `query.limit` facts come back, for any limit from 0; a smaller limit keeps the beginning."""
    async with subject.open_plugin() as plugin:
        every = [list(facts) for _, facts in await _ask(subject, plugin, limit=1000)]
        for limit in (0, 1, 2):
            for (query, facts), unlimited in zip(
                await _ask(subject, plugin, limit=limit), every, strict=True
            ):
                if list(facts) != unlimited[:limit]:
                    raise Broken(
                        f"limit {limit} gave {len(facts)} facts about {shorten(query.text)}, not the first"
                        f" {limit}"
                    )


@law
async def no_fact_comes_twice(subject: Subject) -> None:
    """No fact comes twice with the same validity."""
    async with subject.open_plugin() as plugin:
        for query, facts in await _ask(subject, plugin, limit=1000):
            keys = [(f.subject, f.predicate, f.object, f.valid_from, f.valid_to) for f in facts]
            if len(set(keys)) < len(keys):
                twice = next(key for key in keys if keys.count(key) > 1)
                raise Broken(f"{' '.join(twice[:3])} comes twice about {shorten(query.text)}")


@law
async def confidence_is_a_share(subject: Subject) -> None:
    """A fact's confidence is a number from 0 to 1."""
    async with subject.open_plugin() as plugin:
        for _, facts in await _ask(subject, plugin, limit=1000):
            for fact in facts:
                if not (math.isfinite(fact.confidence) and 0 <= fact.confidence <= 1):
                    raise Broken(
                        f"{fact.subject} {fact.predicate} {fact.object} has the confidence"
                        f" {fact.confidence!r}"
                    )


@law
async def facts_come_in_order(subject: Subject) -> None:
    """Facts about a named entity come first, by confidence, then by subject, predicate and object."""
    async with subject.open_plugin() as plugin:
        names = {fact.subject for _, facts in await _ask(subject, plugin, limit=1000) for fact in facts}
        for name in sorted(names):
            facts = facts_of(await plugin.facts(Query(text="", entities=(name,), limit=1000)))
            keys = [
                (name not in (f.subject, f.object), -f.confidence, f.subject, f.predicate, f.object)
                for f in facts
            ]
            direct = [key for key in keys if not key[0]]
            if [key[0] for key in keys] != sorted(key[0] for key in keys) or direct != sorted(direct):
                raise Broken(f"facts about {name!r} come as {shorten([key[1:] for key in keys], 200)}")


@law
async def facts_of_another_scope_stay(subject: Subject) -> None:
    """No fact comes back that the scope forbids; a fact without a tenant belongs to its source."""
    async with subject.open_plugin() as plugin:
        tenants = {fact.tenant for _, facts in await _ask(subject, plugin, limit=1000) for fact in facts} - {
            SHARED
        }
        for scope in (Scope(tenant=tenant) for tenant in {None, "kit-stranger", *tenants}):
            for query, facts in await _ask(subject, plugin, scope=scope):
                for fact in facts:
                    if not scope.allows(fact if fact.tenant else fact.replace(tenant=scope.tenant)):
                        raise Broken(
                            f"a fact about {shorten(query.text)} came back in the scope {shorten(scope, 120)}"
                        )


@law
async def blank_questions_have_no_errors(subject: Subject) -> None:
    """A blank question raises no error."""
    async with subject.open_plugin() as plugin:
        for text in BLANK:
            await plugin.facts(Query(text=text, limit=10))


@law
async def fact_deadline_is_kept(subject: Subject) -> None:
    """A fact source answers by `query.deadline`, or raises SourceTimeout."""

    async def attempt(seconds: float) -> float:
        started = monotonic()
        with suppress(SourceTimeout):
            await plugin.facts(query.replace(deadline=started + seconds))
        return monotonic() - started - max(seconds, 0.0)

    async with subject.open_plugin() as plugin:
        query = (await subject.exercise.inputs(subject, plugin))[0]
        for seconds in (0.05, -1.0):
            took = await measure.shortest(lambda seconds=seconds: attempt(seconds), LATE)  # type: ignore[misc]  # mypy cannot infer a lambda that has a default
            if took > LATE:
                raise Broken(f"the answer came {took:.2f} s after a deadline that was {seconds:g} s away")


LAWS: tuple[Law, ...] = (
    example_has_facts,
    answers_are_facts,
    no_more_facts_than_the_limit,
    no_fact_comes_twice,
    confidence_is_a_share,
    facts_come_in_order,
    facts_of_another_scope_stay,
    blank_questions_have_no_errors,
    fact_deadline_is_kept,
)
