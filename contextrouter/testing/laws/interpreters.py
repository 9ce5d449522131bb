"""Laws of interpreters: the question, its queries, and everything already known stay in the intent."""

from __future__ import annotations

from typing import Any

from contextrouter.model import Intent
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

_KEPT = ("queries", "entities", "concepts", "facets")


async def _interpret_inputs(subject: Subject, plugin: Any) -> list[tuple[Intent, Any]]:
    """Return the inputs with the intents made of them. Other answers break the first law."""
    pairs = [
        (item, await subject.exercise.call(plugin, item))
        for item in await subject.exercise.inputs(subject, plugin)
    ]
    return [(original, intent) for original, intent in pairs if isinstance(intent, Intent)]


@law
async def answers_are_intents(subject: Subject) -> None:
    """interpret() returns an Intent."""
    async with subject.open_plugin() as plugin:
        for original in await subject.exercise.inputs(subject, plugin):
            intent = await subject.exercise.call(plugin, original)
            if not isinstance(intent, Intent):
                raise Broken(f"{shorten(original.question)} was interpreted as {shorten(intent)}")


@law
async def question_is_kept(subject: Subject) -> None:
    """The question stays unchanged; other wordings of it are queries."""
    async with subject.open_plugin() as plugin:
        for original, intent in await _interpret_inputs(subject, plugin):
            if intent.question != original.question:
                raise Broken(f"{shorten(original.question)} became {shorten(intent.question)}")


@law
async def queries_are_not_blank(subject: Subject) -> None:
    """There is at least one query, and none is blank."""
    async with subject.open_plugin() as plugin:
        for original, intent in await _interpret_inputs(subject, plugin):
            if not intent.queries or not all(
                isinstance(query, str) and query.strip() for query in intent.queries
            ):
                raise Broken(f"queries of {shorten(original.question)} are {shorten(intent.queries)}")


@law
async def what_was_known_is_kept(subject: Subject) -> None:
    """An interpreter only adds: the queries, entities, concepts, facets and attributes of its input stay. Of
    its labels it may choose some.
    """
    async with subject.open_plugin() as plugin:
        for original, intent in await _interpret_inputs(subject, plugin):
            for name in _KEPT:
                lost = set(getattr(original, name)) - set(getattr(intent, name))
                if lost:
                    raise Broken(f"{name} lost {sorted(lost)}")
            labels, before = set(intent.labels), set(original.labels)
            if not (before <= labels or labels <= before):
                raise Broken(f"labels {sorted(before)} became {sorted(labels)}")
            if any(intent.attributes.get(key) != value for key, value in original.attributes.items()):
                raise Broken(f"attributes {shorten(original.attributes)} became {shorten(intent.attributes)}")


@law
async def confidence_is_between_0_and_1(subject: Subject) -> None:
    """`confidence` is a number from 0 to 1."""
    async with subject.open_plugin() as plugin:
        for original, intent in await _interpret_inputs(subject, plugin):
            if not 0 <= intent.confidence <= 1:
                raise Broken(f"{shorten(original.question)} has the confidence {intent.confidence!r}")


LAWS: tuple[Law, ...] = (
    answers_are_intents,
    question_is_kept,
    queries_are_not_blank,
    what_was_known_is_kept,
    confidence_is_between_0_and_1,
)
