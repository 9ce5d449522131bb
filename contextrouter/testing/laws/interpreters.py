"""The laws of interpreters."""

from __future__ import annotations

from typing import Any

from contextrouter.model import Intent
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

_KEPT = ("entities", "concepts", "labels", "facets")


async def _interpreted(subject: Subject, plugin: Any) -> list[tuple[Intent, Any]]:
    return [
        (given, await plugin.interpret(given)) for given in await subject.exercise.inputs(subject, plugin)
    ]


@law
async def answers_are_intents(subject: Subject) -> None:
    """interpret() returns an Intent."""
    async with subject.opened() as plugin:
        for given, intent in await _interpreted(subject, plugin):
            if not isinstance(intent, Intent):
                raise Broken(f"{shorten(given.question)} was interpreted as {shorten(intent)}")


@law
async def question_is_kept(subject: Subject) -> None:
    """The question stays as it was asked; other wordings of it are queries."""
    async with subject.opened() as plugin:
        for given, intent in await _interpreted(subject, plugin):
            if intent.question != given.question:
                raise Broken(f"{shorten(given.question)} became {shorten(intent.question)}")


@law
async def queries_are_not_blank(subject: Subject) -> None:
    """Every query is a text that says something, and there is at least one."""
    async with subject.opened() as plugin:
        for given, intent in await _interpreted(subject, plugin):
            if not intent.queries or not all(
                isinstance(query, str) and query.strip() for query in intent.queries
            ):
                raise Broken(f"queries of {shorten(given.question)} are {shorten(intent.queries)}")


@law
async def what_was_known_is_kept(subject: Subject) -> None:
    """An interpreter adds: entities, concepts, labels, facets and attributes it was given are still there."""
    async with subject.opened() as plugin:
        for given, intent in await _interpreted(subject, plugin):
            for name in _KEPT:
                lost = set(getattr(given, name)) - set(getattr(intent, name))
                if lost:
                    raise Broken(f"{name} lost {sorted(lost)}")
            if any(intent.attributes.get(key) != value for key, value in given.attributes.items()):
                raise Broken(f"attributes {shorten(given.attributes)} became {shorten(intent.attributes)}")


@law
async def confidence_is_between_0_and_1(subject: Subject) -> None:
    """`confidence` is a number from 0 to 1."""
    async with subject.opened() as plugin:
        for given, intent in await _interpreted(subject, plugin):
            if not 0 <= intent.confidence <= 1:
                raise Broken(f"{shorten(given.question)} has the confidence {intent.confidence!r}")


LAWS: tuple[Law, ...] = (
    answers_are_intents,
    question_is_kept,
    queries_are_not_blank,
    what_was_known_is_kept,
    confidence_is_between_0_and_1,
)
