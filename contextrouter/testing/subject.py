"""The plugin under test: its class, fresh instances of it, and the questions for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from contextrouter.contracts import Plugin
from contextrouter.testing.exercise import EXERCISES
from contextrouter.testing.kinds import kind_of
from contextrouter.testing.messages import shorten


class Subject:
    """A plugin class under test.

    `make` returns a new instance each time; by default it is the `example` of the class. The instance has
    answers to `questions`; a class may name some in `example_questions`. A store is filled with vectors of
    the length `dimensions`. `deviations` maps laws that need not hold to reasons, beside those of the class.
    With `writes` false the kit writes nothing into a store: it is a real one.
    """

    def __init__(
        self,
        cls: type[Plugin],
        make: Callable[[], Plugin] | None = None,
        *,
        questions: Sequence[str] = (),
        dimensions: int = 16,
        deviations: Mapping[str, str] | None = None,
        writes: bool = True,
    ) -> None:
        self.cls, self.kind = cls, kind_of(cls)
        self.make: Callable[[], Plugin] = make or cls.example
        self.questions = tuple(questions) or tuple(getattr(cls, "example_questions", ()))
        self.dimensions = dimensions
        self.deviations: dict[str, str] = {**getattr(cls, "deviations", {}), **(deviations or {})}
        self.writes = writes
        self.exercise = EXERCISES[self.kind]
        self.active_questions: tuple[str, ...] = ()  # questions that have answers

    @asynccontextmanager
    async def open_plugin(self) -> AsyncIterator[Any]:
        """Open a fresh instance, fill a store with the kit's library, and close the instance at the end."""
        plugin = self.make()
        try:
            await plugin.open()
            await self.exercise.prepare(self, plugin)
            yield plugin
        finally:
            await plugin.aclose()

    async def answers(self, plugin: Any) -> list[Any]:
        """Return the answers to all inputs of the exercise, in comparable form."""
        exercise = self.exercise
        return [
            self.summarize(await exercise.call(plugin, item)) for item in await exercise.inputs(self, plugin)
        ]

    def summarize(self, answer: Any) -> Any:
        """Return an answer in comparable form. One of another type is a text: the laws of types name it."""
        try:
            return self.exercise.summarize(answer)
        except (AttributeError, TypeError, ValueError):
            return shorten(answer, 200) if isinstance(answer, list | tuple) else type(answer).__name__

    async def session(self, plugin: Any) -> list[Any]:
        """Open the instance, collect its answers and close it."""
        try:
            await plugin.open()
            await self.exercise.prepare(self, plugin)
            return await self.answers(plugin)
        finally:
            await plugin.aclose()
