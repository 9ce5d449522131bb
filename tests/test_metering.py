"""Metering: what the language models of one request cost, whoever calls them and however."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from support.model_server import ModelServer
from support.serving import document, serve_router

from contextrouter import ContextRouter, Intent, Interpreter, InterpreterContext, SettingsError
from contextrouter.contracts import Completion, Generator, SupportsWriting, Writing
from contextrouter.model import ModelUsage
from contextrouter.runtime.metering import metered, model_usage, start_metering
from contextrouter.testing import Fixed
from contextrouter.testing.fakes import Echo


class Writer(Generator):
    """Writes two pieces, and says what they cost."""

    model = "writer-1"

    async def complete(self, messages: Any, *, schema: Any = None) -> Completion:
        return Completion(text="ab", model="writer-1", tokens_in=7, tokens_out=2)

    async def write(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncIterator[str | Completion]:
        yield "a"
        yield "b"
        yield await self.complete(messages)


class Breaks(Generator):
    async def complete(self, messages: Any, *, schema: Any = None) -> Completion:
        raise OSError("gone")


def test_a_meter_before_a_generator_takes_no_ability_away_and_adds_none():
    assert isinstance(metered(Writer(), "w", (None, None)), SupportsWriting)
    assert not isinstance(metered(Echo(), "e", (None, None)), SupportsWriting)
    assert getattr(metered(Writer(), "w", (None, None)), "model", "") == "writer-1"


@pytest.mark.case("B15")
async def test_every_way_of_calling_counts_and_tokens_add_up():
    generator = metered(Writer(), "w", (1.0, None))
    start_metering()
    assert (await generator.complete([])).text == "ab"
    assert isinstance(generator, SupportsWriting)
    assert [piece async for piece in generator.write([], Writing())][:2] == ["a", "b"]
    assert [piece async for piece in generator.stream([])] == ["ab"]
    (usage,) = model_usage()
    assert (usage.calls, usage.model, usage.tokens_in, usage.tokens_out) == (3, "writer-1", 14, 4)
    assert usage.cost == pytest.approx(14 / 1_000_000)


async def test_a_call_that_fails_counts_and_one_outside_a_request_does_not():
    generator = metered(Breaks(), "b", (1.0, 1.0))
    with pytest.raises(OSError, match="gone"):
        await generator.complete([])
    start_metering()
    with pytest.raises(OSError, match="gone"):
        await generator.complete([])
    assert model_usage() == (ModelUsage(generator="b", calls=1),)


async def test_requests_at_the_same_time_have_meters_of_their_own():
    async def request(calls: int) -> tuple[ModelUsage, ...]:
        start_metering()
        for _ in range(calls):
            await metered(Echo(), "e", (None, None)).complete([])
            await asyncio.sleep(0)
        return model_usage()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(request(calls)) for calls in (1, 3)]
    assert [task.result()[0].calls for task in tasks] == [1, 3]


class Calls(Interpreter):
    """Calls its generator at once, twice."""

    def __init__(self, *, generator: Generator) -> None:
        self.generator = generator

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self.generator.complete([]))
        return intent


@pytest.mark.case("B15")
async def test_a_plugin_of_a_folder_is_counted_by_the_name_of_its_generator(tmp_path: Any):
    (tmp_path / "caller.py").write_text(
        "from test_metering import Calls\nclass Caller(Calls):\n    'Calls.'\n", encoding="utf-8"
    )
    settings = {
        "plugins": {"paths": [str(tmp_path)]},
        "rag": {"interpreters": ["caller"]},
        "interpreters": {"caller": {"generator": "w"}},
        "generators": {"w": {"price_out": 5.0}},
    }
    connectors = {"docs": Fixed("a")}
    async with ContextRouter(settings, connectors=connectors, generators={"w": Writer()}) as router:
        (usage,) = (await router.route("q")).usage.models
        assert (usage.generator, usage.calls, usage.tokens_in, usage.tokens_out) == ("w", 2, 14, 4)
        assert usage.cost == pytest.approx(4 * 5.0 / 1_000_000)
        again = await router.route("q")
    assert (again.cached, again.usage.models) == (True, ())


def test_a_price_below_nothing_is_refused():
    with pytest.raises(SettingsError, match=r"generators\.g\.price_in"):
        ContextRouter({"generators": {"g": {"use": "extractive", "price_in": -1.0}}})


@pytest.mark.case("B15")
async def test_the_receipt_of_a_chat_counts_interpreters_and_the_answer():
    async with ModelServer({"queries": ["felines"], "confidence": 0.9}) as server:
        model = {"use": "openai", "model": "m", "base_url": server.url, "price_in": 1.0, "price_out": 1.0}
        settings = {
            "rag": {"interpreters": ["understand"], "cache_enabled": False, "timeout_seconds": 60.0},
            "interpreters": {"understand": {"generator": "model", "answer_seconds": 15.0}},
            "generators": {"model": model},
        }
        made = ContextRouter(settings, connectors={"docs": Fixed([document("one", "Cats eat fish.")])})
        async with serve_router(made) as ask:
            body = {"model": "contextrouter", "messages": [{"role": "user", "content": "What do cats eat?"}]}
            receipt = (await ask("/v1/chat/completions", body)).json["contextrouter"]
    calls = {usage["generator"]: (usage["calls"], usage["tokens_in"]) for usage in receipt["models"]}
    assert calls["model"] == (1, 50)
    assert calls["extractive"][0] == 1
