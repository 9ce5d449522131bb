"""What a caller demands, at every door: command line, HTTP, MCP and chat. A period, labels, a time, a limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from support.example import CommandLine
from support.serving import router, serve_router

from contextrouter import ContextRouter, Document, Fact, FactSource, Hit, Query
from contextrouter.server.auth import Caller
from contextrouter.server.mcp_server.tools import make_mcp_server
from contextrouter.testing import Fixed

SETTINGS = """
[rag]
interpreters = []
identity = "id"
[routes.short]
general_retrieval_final_count = 1
[providers.memory]
documents = [
  { id = "old", content = "rye bread", labels = ["food"], updated_at = 2026-01-10T12:00:00Z },
  { id = "new", content = "rye bread", labels = ["food"], updated_at = 2026-03-10T12:00:00Z },
  { id = "other", content = "rye fields", labels = ["farm"], updated_at = 2026-03-11T12:00:00Z },
]
"""


class Past(FactSource):
    """Says the period that it was asked for."""

    async def facts(self, query: Query) -> list[Fact]:
        start = query.period.start.date().isoformat() if query.period else "now"
        return [Fact(subject="Ada", predicate="lived", object=start)]


def demands() -> list[tuple[dict[str, Any], set[str]]]:
    return [
        ({}, {"old", "new", "other"}),
        ({"since": "2026-03-01"}, {"new", "other"}),
        ({"until": "2026-01-31"}, {"old"}),
        ({"since": "2026-03-11T00:00:00"}, {"other"}),
        ({"labels": ["food"]}, {"old", "new"}),
        ({"labels": ["food"], "since": "2026-02-01"}, {"new"}),
        ({"labels": ["farm", "food"]}, {"old", "new", "other"}),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "settings.toml").write_text(SETTINGS, "utf-8")
    return tmp_path


@pytest.mark.parametrize(("demand", "expected"), demands())
def test_on_the_command_line(
    demand: dict[str, Any],
    expected: set[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    flags = [part for label in demand.get("labels", ()) for part in ("--label", label)]
    flags += [part for name in ("since", "until") if name in demand for part in (f"--{name}", demand[name])]
    ran = CommandLine(monkeypatch, capsys)("route", "rye", "--json", *flags, cwd=folder)
    assert {envelope["document"]["id"] for envelope in json.loads(ran.out)["envelopes"]} == expected


def test_on_the_command_line_a_limit_a_route_and_a_wrong_day(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cli = CommandLine(monkeypatch, capsys)
    for flags in (("--limit", "1"), ("--mode", "short")):
        assert len(json.loads(cli("route", "rye", "--json", *flags, cwd=folder).out)["envelopes"]) == 1
    for flags, message in (
        (("--since", "yesterday"), "The start of the period 'yesterday' is no day"),
        (("--as-of", "2026-13-01"), "--as-of '2026-13-01' is no day"),
        (("--mode", "long"), "Route 'long' is not defined. Defined routes: default, short."),
    ):
        for command in ("route", "plan"):
            ran = cli(command, "rye", *flags, cwd=folder)
            assert ran.code == 2
            assert message in " ".join(ran.err.split())


async def test_over_http(folder: Path):
    async with serve_router(ContextRouter.from_toml(folder / "settings.toml")) as client:
        for demand, expected in demands():
            body: dict[str, Any] = {"question": "rye", "labels": demand.get("labels", [])}
            if "since" in demand or "until" in demand:
                body["period"] = {"start": demand.get("since"), "end": demand.get("until")}
            answer = await client("/v1/route", body)
            found = {envelope["document"]["id"] for envelope in answer.json["envelopes"]}
            assert (answer.status, found) == (200, expected)
        answer = await client("/v1/route", {"question": "rye", "limit": 2})
        assert (answer.status, len(answer.json["envelopes"])) == (200, 2)
        for wrong in (
            {"period": {"start": "soon"}},
            {"period": {"start": "2026-01-01", "zone": "Moon"}},
            {"period": {"begin": "2026-01-01"}},
            {"as_of": "soon"},
            {"labels": "food"},
            {"limit": "two"},
            {"mode": "long"},
        ):
            answer = await client("/v1/route", {"question": "rye", **wrong})
            assert answer.status == 422, wrong


async def test_by_mcp(folder: Path):
    made = ContextRouter.from_toml(folder / "settings.toml")
    async with made, Client(make_mcp_server(made, lambda _: Caller(name="x"))) as client:
        for demand, expected in demands():
            answer = await client.call_tool("route", {"question": "rye", **demand})
            assert {
                entry["id"].partition(":")[2] for entry in answer.structured_content["documents"]
            } == expected
        answer = await client.call_tool("route", {"question": "rye", "since": "soon"})
        assert answer.is_error
        assert "'soon' is no day" in answer.content[0].text


@pytest.mark.case("M27")
async def test_facts_are_those_of_a_day_that_the_caller_names():
    made = router(connectors={"docs": Fixed("")}, facts={"past": Past()})
    async with serve_router(made) as client:
        for as_of, expected in (({}, "now"), ({"as_of": "2021-05-01"}, "2021-05-01")):
            answer = await client("/v1/route", {"question": "Where did Ada live?", **as_of})
            assert [fact["object"] for fact in answer.json["facts"]] == [expected]


@pytest.mark.case("T15")
async def test_in_a_chat_the_question_to_ask_back_is_the_assistants_turn():
    made = ContextRouter(
        {"rag": {"interpreters": ["clarify"]}, "interpreters": {"clarify": {"clarification": "Which one?"}}},
        connectors={"docs": Fixed([Hit(document=Document(id="a", content="a"))])},
    )
    async with serve_router(made) as client:
        messages = [{"role": "user", "content": "help"}]
        body = {"model": "contextrouter", "messages": messages}
        answer = (await client("/v1/chat/completions", body)).json
    assert answer["choices"][0]["message"]["content"] == "Which one?"
    assert answer["contextrouter"]["outcome"] == "clarify"
