"""The size of an answer: a long question is not repeated, and the trace is for those who ask for it."""

from __future__ import annotations

import pytest
from support.serving import serve_router

from contextrouter import ContextRouter, Document, Hit
from contextrouter.model.plain_form import encode_json
from contextrouter.serialization import plain
from contextrouter.testing import Fixed

LONG = "獺在河裡" * 4_700  # 18,800 characters, 56,400 bytes
HITS = [Hit(document=Document(id=f"d{n}", content="獺")) for n in range(200)]
SOURCES = {f"s{n}": Fixed(HITS) for n in range(3)}
SETTINGS = {"rag": {"cache_enabled": False, "interpreters": []}}


@pytest.mark.case("SEC-09")
async def test_a_long_question_is_not_repeated_for_every_document():
    async with ContextRouter(SETTINGS, connectors=SOURCES) as router:
        context = await router.route(LONG)
    told = plain(context)
    lost = [envelope for step in told["trace"]["steps"] for envelope in step["lost"]]
    assert (len(told["envelopes"]), len(lost)) == (10, 20)
    assert told["queries"] == [LONG]
    assert {seal["query"] for envelope in (*told["envelopes"], *lost) for seal in envelope["provenance"]} == {
        0
    }
    assert {report["query"] for report in told["coverage"]} == {LONG[:200] + " […]"}
    without = plain(context, "full")
    assert "trace" not in without
    once = len(LONG.encode())  # it is the question, three times in the intent, and once in `queries`
    assert 5 * once < len(encode_json(without)) < 5.5 * once


@pytest.mark.case("SEC-09")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_the_server_has_a_trace_if_the_body_wants_one(stream: bool):
    async with serve_router(ContextRouter(SETTINGS, connectors=SOURCES)) as ask:
        plain_answer = await ask("/v1/route", {"question": "獺", "stream": stream, "detail": "full"})
        traced = await ask("/v1/route", {"question": "獺", "stream": stream, "detail": "trace"})
    first, second = (answer.events[-1][1] if stream else answer.json for answer in (plain_answer, traced))
    assert "trace" not in first
    assert [step["name"] for step in second["trace"]["steps"]][:2] == ["interpret", "plan"]
    assert [envelope["provenance"][0]["query"] for envelope in first["envelopes"]] == [0] * 10
