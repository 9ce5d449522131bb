"""An answer that a plugin's blocking made late says so, and names the plugin."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from contextrouter import Context, ContextRouter, Hit, Query
from contextrouter.contracts import Interpreter, Stage
from contextrouter.testing import Fixed

SECONDS = 0.4


class BlockingSource(Fixed):
    """Holds the event loop."""

    async def search(self, query: Query) -> Sequence[Hit]:
        time.sleep(SECONDS)  # noqa: ASYNC251 - what a careless plugin does
        return await super().search(query)


class BlockingStage(Stage):
    """Holds the event loop."""

    async def apply(self, envelopes: Any, context: Any) -> Any:
        time.sleep(SECONDS)  # noqa: ASYNC251 - what a careless plugin does
        return envelopes


class BlockingInterpreter(Interpreter):
    """Holds the event loop."""

    async def interpret(self, intent: Any, context: Any) -> Any:
        time.sleep(SECONDS)  # noqa: ASYNC251 - what a careless plugin does
        return intent


async def ask(deadline: float, **instances: Any) -> Context:
    names = {kind: list(plugins) for kind, plugins in instances.items() if kind in ("interpreters", "stages")}
    settings = {"rag": {"interpreters": [], "stages": [], "cache_enabled": False, **names}}
    instances.setdefault("connectors", {"docs": Fixed("a")})
    async with ContextRouter(settings, **instances) as router:
        return await router.route("what?", deadline=deadline)


@pytest.mark.case("ASY-13")
async def test_a_source_that_blocks_past_the_deadline_is_named():
    context = await ask(0.2, connectors={"docs": Fixed("a"), "careless": BlockingSource("b")})
    reports = {report.source: report for report in context.coverage}
    assert context.degraded
    assert reports["careless"].status == "partial"
    assert "blocked the event loop for 0." in reports["careless"].error


@pytest.mark.case("ASY-13")
async def test_a_stage_that_blocks_past_the_deadline_is_named():
    context = await ask(0.2, stages={"careless": BlockingStage()})
    (step,) = [step for step in context.trace.steps if step.name == "careless"]
    assert (context.degraded, step.failed) == (True, True)
    assert "blocked the event loop" in step.note


@pytest.mark.case("ASY-13")
async def test_an_interpreter_that_blocks_past_its_time_is_named():
    context = await ask(0.6, interpreters={"careless": BlockingInterpreter()})
    step = context.trace.steps[0]
    assert (context.degraded, step.failed) == (True, True)
    assert "careless: blocked the event loop" in step.note


async def test_a_plugin_that_blocks_in_time_is_no_failure():
    context = await ask(
        60, connectors={"careless": BlockingSource("b")}, stages={"careless": BlockingStage()}
    )
    assert not context.degraded
