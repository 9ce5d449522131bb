"""Fact sources, interpreters and generators that break one law each."""

from __future__ import annotations

import asyncio
from collections import UserList
from collections.abc import AsyncIterator, Mapping, Sequence
from time import monotonic
from types import SimpleNamespace
from typing import Any, ClassVar

from breaking import breaks

from contextrouter import InterpreterContext
from contextrouter.contracts import Completion, FactSource
from contextrouter.model import Entity, Fact, Intent, Query
from contextrouter.testing import Adding, Echo

_TOLD = (
    ("Moon", "orbits", "Earth", 1.0, None),
    ("Moon", "raises", "tides", 0.9, None),
    ("Moon", "reflects", "sunlight", 0.9, None),
    ("Moon", "hides", "base", 0.8, "restricted"),
    ("Sun", "dries", "salt", 0.7, None),
)


class Told(FactSource):
    """Keeps the laws: facts whose subject the question names, surest first."""

    example_questions: ClassVar[Sequence[str]] = ("What does the Moon do?", "Sun")

    def __init__(self) -> None:
        self.told = [
            Fact(subject=s, predicate=p, object=o, confidence=c, sensitivity=level)
            for s, p, o, c, level in _TOLD
        ]

    async def facts(self, query: Query) -> Sequence[Fact]:
        return self.found(query)[: max(0, query.limit)]

    def found(self, query: Query) -> list[Fact]:
        named = [fact for fact in self.told if fact.subject in query.text or fact.subject in query.entities]
        return [
            fact for fact in named if query.scope is None or query.scope.replace(tenant=None).allows(fact)
        ]

    async def entities(self, query: Query) -> Sequence[Entity]:
        wanted = (query.attribute or "").casefold()
        facts = [fact for fact in self.found(query) if not wanted or fact.predicate == wanted]
        attributes: dict[str, dict[str, str]] = {}
        for fact in facts:
            attributes.setdefault(fact.subject, {})[fact.predicate] = fact.object
        return [Entity(id=name, name=name, attributes=own) for name, own in attributes.items()][
            : max(0, query.limit)
        ]

    async def path(self, start: str, goal: str, query: Query, *, hops: int | None = None) -> Sequence[Fact]:
        seen = [
            fact for fact in self.told if query.scope is None or query.scope.replace(tenant=None).allows(fact)
        ]
        return [fact for fact in seen if {fact.subject, fact.object} == {start, goal}]

    async def related(self, name: str, query: Query) -> Sequence[Entity]:
        return [Entity(id=fact.object, name=fact.object) for fact in self.told if fact.subject == name][
            : max(0, query.limit)
        ]


@breaks("example_has_facts")
class KnowsNothing(Told):
    def found(self, query: Query) -> list[Fact]:
        return []


@breaks("answers_are_facts")
class NoListOfFacts(Told):
    async def facts(self, query: Query) -> Sequence[Fact]:
        return UserList(await super().facts(query))


@breaks("no_more_facts_than_the_limit")
class OneFactMore(Told):
    async def facts(self, query: Query) -> Sequence[Fact]:
        return self.found(query)[: query.limit + 1]


@breaks("no_fact_comes_twice")
class SaysItTwice(Told):
    def found(self, query: Query) -> list[Fact]:
        return [fact for each in super().found(query) for fact in (each, each)]


@breaks("confidence_is_a_share")
class Overconfident(Told):
    def found(self, query: Query) -> list[Fact]:
        return [fact.replace(confidence=fact.confidence * 100) for fact in super().found(query)]


@breaks("facts_come_in_order")
class LeastSureFirst(Told):
    def found(self, query: Query) -> list[Fact]:
        return super().found(query)[::-1]


@breaks("facts_of_another_scope_stay")
class TellsAnyone(Told):
    async def facts(self, query: Query) -> Sequence[Fact]:
        return await super().facts(query.replace(scope=None))


@breaks("blank_questions_have_no_errors")
class FactsNeedWords(Told):
    async def facts(self, query: Query) -> Sequence[Fact]:
        if not query.text.strip() and not query.entities:
            raise ValueError("empty query")
        return await super().facts(query)


@breaks("fact_deadline_is_kept")
class ThinksLong(Told):
    async def facts(self, query: Query) -> Sequence[Fact]:
        if query.deadline is not None and query.deadline < monotonic() + 1:
            await asyncio.sleep(0.4)
        return await super().facts(query)


@breaks("entities_keep_limit_and_scope")
class EntitiesWithoutLimit(Told):
    async def entities(self, query: Query) -> Sequence[Entity]:
        return await super().entities(query.replace(limit=100))


@breaks("attributes_come_alone")
class AttributesOfAnyName(Told):
    async def entities(self, query: Query) -> Sequence[Entity]:
        return await super().entities(query.replace(attribute=None))


@breaks("ways_and_neighbours_keep_limit_and_scope")
class NeighboursWithoutLimit(Told):
    async def related(self, name: str, query: Query) -> Sequence[Entity]:
        return await super().related(name, query.replace(limit=100))


@breaks("ways_and_neighbours_keep_limit_and_scope")
class WayThroughWhatIsHidden(Told):
    async def facts(self, query: Query) -> Sequence[Fact]:
        return [each for each in await super().facts(query.replace(limit=100)) if each.sensitivity][
            : max(0, query.limit)
        ]

    async def path(self, start: str, goal: str, query: Query, *, hops: int | None = None) -> Sequence[Fact]:
        return await super().path(start, goal, query.replace(scope=None))


class Knowing(Adding):
    """Changes what is interpreted."""

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return self.changed(await super().interpret(intent, context))

    def changed(self, intent: Intent) -> Any:
        return intent


@breaks("answers_are_intents")
class NoIntent(Knowing):
    def changed(self, intent: Intent) -> Any:
        return SimpleNamespace(**{name: getattr(intent, name) for name in Intent.__struct_fields__})


@breaks("question_is_kept")
class AsksAnother(Knowing):
    def changed(self, intent: Intent) -> Any:
        return intent.replace(question=intent.question.lower())


@breaks("queries_are_not_blank")
class BlankQuery(Knowing):
    def changed(self, intent: Intent) -> Any:
        return intent.replace(queries=(*intent.queries, " "))


@breaks("what_was_known_is_kept")
class ForgetsEntities(Knowing):
    def changed(self, intent: Intent) -> Any:
        return intent.replace(entities=())


@breaks("what_was_known_is_kept")
class ForgetsAttributes(Knowing):
    def changed(self, intent: Intent) -> Any:
        return intent.replace(attributes={})


@breaks("confidence_is_between_0_and_1")
class SurerThanSure(Knowing):
    def changed(self, intent: Intent) -> Any:
        return intent.replace(confidence=1.5)


@breaks("answers_are_completions")
class NoCompletion(Echo):
    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Any:
        made = await super().complete(messages, schema=schema)
        return SimpleNamespace(text=made.text, data=made.data)


@breaks("tokens_are_counts")
class LessThanNoTokens(Echo):
    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        made = await super().complete(messages, schema=schema)
        return Completion(text=made.text, data=made.data, tokens_in=-1)


@breaks("ends_are_known")
class EndsAsItLikes(Echo):
    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        made = await super().complete(messages, schema=schema)
        return Completion(text=made.text, data=made.data, finish="done")


@breaks("schema_is_answered_with_data")
class TextOnly(Echo):
    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        return await super().complete(messages)


@breaks("stream_is_a_text_in_pieces")
class StreamsNothing(Echo):
    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        for piece in ():
            yield piece


@breaks("abandoned_stream_ends_at_once")
class StreamsOn(Echo):
    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        try:
            yield (await self.complete(messages)).text
        except GeneratorExit:
            await asyncio.sleep(0.4)
            raise


OBEYING: tuple[type[Any], ...] = (Told, Knowing, Echo)
