"""What the log says in library use."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from contextrouter import AllSourcesFailed, Connector, ContextRouter, Hit, Query, SourceError
from contextrouter.pipeline.call_limits import failure_log
from contextrouter.testing.fakes import Fixed


class Failing(Connector):
    async def search(self, query: Query) -> Sequence[Hit]:
        raise SourceError("the shelf is empty; token=abcdefgh")


@pytest.mark.case("USE-16")
async def test_a_failing_source_is_one_warning_a_minute_and_details_at_debug(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.DEBUG, "contextrouter")
    now = 1000.0
    monkeypatch.setattr(failure_log, "monotonic", lambda: now)
    settings = {"rag": {"cache_enabled": False}, "limits": {"breaker_failures": 0}}
    sources = {"shelf": Failing(), "desk": Failing(), "docs": Fixed("a")}
    async with ContextRouter(settings, connectors=sources) as router:
        for _ in range(3):
            await router.route("what?")
        assert warnings(caplog) == ["desk", "shelf"]
        now = 1060.0
        await router.route("what?")
    assert warnings(caplog) == ["desk", "desk", "shelf", "shelf"]
    assert "the shelf is empty; token=***" in caplog.text
    assert "(2 more since the last warning)" in caplog.text
    assert "abcdefgh" not in caplog.text
    details = [record for record in caplog.records if record.levelno == logging.DEBUG]
    assert sum("the shelf is empty" in record.getMessage() for record in details) == 8


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The sources that were warned of."""
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    return sorted(str(record.args[0]) for record in records if isinstance(record.args, tuple))


@pytest.mark.case("USE-16")
async def test_a_source_that_answers_is_not_in_the_log(caplog: pytest.LogCaptureFixture):
    async with ContextRouter({}, connectors={"docs": Fixed("a")}) as router:
        await router.route("what?")
    assert caplog.records == []


@pytest.mark.case("USE-16")
async def test_when_every_source_fails_each_is_in_the_log(caplog: pytest.LogCaptureFixture):
    async with ContextRouter({}, connectors={"shelf": Failing()}) as router:
        with pytest.raises(AllSourcesFailed):
            await router.route("what?")
    assert warnings(caplog) == ["shelf"]
