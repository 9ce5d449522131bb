"""Generators that hang, panic or raise anything: the answer is written in their place, in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contextrouter import ContextRouter, Document, Generator, Hit, PluginError
from contextrouter.contracts import Completion, Embedder
from contextrouter.testing import Fixed

OTTER = [Hit(document=Document(id="a", content="The otter eats fish."))]
SETTINGS = {"rag": {"interpreters": []}, "chat": {"synthesis_model": "g", "silence_seconds": 1.0}}
HASTY = {"chat": {**SETTINGS["chat"], "silence_seconds": 0.01}}
"""With less time than loading the generator that writes in the place of another takes."""


class Panic(BaseException):
    """What a compiled extension raises."""


class Failing(Generator):
    """Hangs, raises, or swallows its cancellation, before or behind its first piece."""

    def __init__(self, way: str, first: str = "") -> None:
        self.way, self.first, self.go = way, first, asyncio.Event()

    async def complete(self, messages: Any, *, schema: Any = None) -> Completion:
        raise NotImplementedError

    async def stream(self, messages: Any) -> AsyncIterator[str]:
        if self.first:
            yield self.first
        while self.way in ("hang", "stubborn") and not self.go.is_set():
            with contextlib.suppress(asyncio.CancelledError if self.way == "stubborn" else ()):
                await self.go.wait()
        if self.way == "cancel":
            raise asyncio.CancelledError
        raise Panic("gone") if self.way == "panic" else KeyError("gone")


@pytest.mark.case("OPS-05")
@pytest.mark.parametrize("way", ["hang", "stubborn", "panic", "raise", "cancel"])
async def test_a_generator_that_fails_in_any_way_is_replaced(way: str):
    generator = Failing(way)
    settings = SETTINGS | HASTY
    async with ContextRouter(
        settings, connectors={"docs": Fixed(OTTER)}, generators={"g": generator}
    ) as made:
        try:
            answer = await made.answer("What does the otter eat?")
            held = made.answering.abandoned.counts()["generator 'g'"]
        finally:
            generator.go.set()
    assert (answer.generator, answer.outcome) == ("extractive", "answered")
    assert "Generator 'g' failed, 'extractive' wrote" in answer.note
    assert held == (way == "stubborn")


@pytest.mark.parametrize("way", ["hang", "panic", "raise", "cancel"])
async def test_a_generator_that_fails_behind_its_first_piece_ends_the_stream(way: str):
    generator = Failing(way, first="The otter ")
    pieces: list[Any] = []
    async with ContextRouter(
        SETTINGS, connectors={"docs": Fixed(OTTER)}, generators={"g": generator}
    ) as made:

        async def read() -> None:
            async for piece in made.answer_stream("What does the otter eat?"):
                pieces.append(piece)

        with pytest.raises(PluginError):
            await read()
    assert "".join(pieces).strip() == "The otter"


class PanickingVersion(Fixed):
    """Panics when it is asked for its version."""

    async def version(self) -> str:
        raise Panic("gone")


async def test_a_panic_of_a_version_costs_no_answer():
    async with ContextRouter(connectors={"docs": PanickingVersion(OTTER)}) as made:
        assert (await made.route("otter")).envelopes


class HangingEmbedder(Embedder):
    """Never answers."""

    model, dimensions = "m", 2

    async def embed(self, texts: Any, *, query: bool = False) -> Any:
        await asyncio.Event().wait()


async def test_examples_by_meaning_wait_for_no_embedder_that_hangs(tmp_path: Any):
    examples = tmp_path / "examples.json"
    examples.write_text('[{"question": "What does a heron eat?", "answer": "Frogs. [1]"}]')
    settings = {
        "rag": {"interpreters": [], "timeout_seconds": 0.3},
        "chat": {"examples": str(examples), "examples_embedder": "slow"},
    }
    async with ContextRouter(
        settings, connectors={"docs": Fixed(OTTER)}, embedders={"slow": HangingEmbedder()}
    ) as made:
        assert (await made.answer("What does the otter eat?")).outcome == "answered"
