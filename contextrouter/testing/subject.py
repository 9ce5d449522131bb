"""What is under test: a plugin class, fresh instances of it, and what they are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from contextrouter.contracts import Plugin
from contextrouter.testing.exercise import EXERCISES
from contextrouter.testing.kinds import kind_of


class Subject:
    """A plugin class under test: how to make a fresh instance, and what to ask it.

    `make` returns a new instance each time, `example` of the class unless given. `questions` are texts the
    instance has answers to; a class may name some in `example_questions`. `dimensions` is the length of the
    vectors a store is filled with. `deviations` maps laws that are not to hold to reasons, beside those the
    class names.
    """

    def __init__(
        self,
        cls: type[Plugin],
        make: Callable[[], Plugin] | None = None,
        *,
        questions: Sequence[str] = (),
        dimensions: int = 16,
        deviations: Mapping[str, str] | None = None,
    ) -> None:
        self.cls, self.kind = cls, kind_of(cls)
        self.make: Callable[[], Plugin] = make or cls.example
        self.questions = tuple(questions) or tuple(getattr(cls, "example_questions", ()))
        self.dimensions = dimensions
        self.deviations: dict[str, str] = {**getattr(cls, "deviations", {}), **(deviations or {})}
        self.exercise = EXERCISES[self.kind]
        self.asked: tuple[str, ...] = ()  # questions found to have answers

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """A fresh instance, open and, where it is a store, filled with the kit's library; closed behind."""
        plugin = self.make()
        try:
            await plugin.open()
            await self.exercise.prepare(self, plugin)
            yield plugin
        finally:
            await plugin.aclose()

    async def answers(self, plugin: Any) -> list[Any]:
        """What the instance answers to each input of its exercise, in comparable form."""
        exercise = self.exercise
        return [
            exercise.seen(await exercise.call(plugin, given)) for given in await exercise.inputs(self, plugin)
        ]

    async def session(self, plugin: Any) -> list[Any]:
        """Open the instance, ask it, close it."""
        try:
            await plugin.open()
            await self.exercise.prepare(self, plugin)
            return await self.answers(plugin)
        finally:
            await plugin.aclose()
