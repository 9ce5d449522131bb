"""What every preset has beside the rows of its own: partial results, receipts, strict settings, safe fetching."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support.example import CommandLine
from support.model_server import ModelServer
from support.presets import fill, ids, ingest, note, piece, system
from support.serving import ScriptedGenerator, serve_router

from contextrouter import Hit, Query, Scope, SettingsError
from contextrouter.runtime.registry import Registry
from contextrouter.settings.presets import preset_names
from contextrouter.testing import Fixed, Raising, hit

ONE = "[rag]\nmax_retrieval_queries = 1\n[connectors.news]\nenabled = false\n"


@pytest.mark.case("B01")
@pytest.mark.without(connectors__slow__timeout=None)
async def test_every_source_has_its_own_deadline_and_a_line_in_the_coverage(tmp_path: Path):
    connectors = {"slow": Fixed("s", delay=30.0), "broken": Raising()}
    toml = ONE.replace("[rag]\n", "[rag]\ntimeout_seconds = 2.0\n") + "[connectors.slow]\ntimeout = 0.05\n"
    router = system(tmp_path, "multisource", toml, connectors=connectors)
    await fill(router, "library", piece("a", "tides"))
    async with router:
        context = await router.route("What about tides?")
    statuses = {report.source: report.status for report in context.coverage}
    assert statuses["slow"] == "timeout"
    assert context.coverage[0].elapsed < 2
    assert next(r for r in context.coverage if r.source == "slow").elapsed < 1
    assert (statuses["broken"], statuses["library"], ids(context)) == ("error", "ok", ["a"])
    assert all(report.elapsed >= 0 and report.count >= 0 for report in context.coverage)


@pytest.mark.case("B02")
@pytest.mark.without(connectors__second__weight=1.0)
async def test_weights_act_on_ranks_and_a_list_of_weight_zero_has_no_influence(tmp_path: Path):
    """2/61 for a, 1/61 for b; with a weight of 0 the order is that of the first source alone."""
    connectors = {"first": Fixed("b a"), "second": Fixed("a b"), "third": Fixed("c a")}
    toml = ONE + "[connectors.second]\nweight = 3.0\n[connectors.third]\nweight = 0.0\n"
    router = system(tmp_path, "multisource", toml, connectors=connectors)
    await fill(router, "library")
    async with router:
        context = await router.route("q?")
    assert [(e.document.id, round(e.score, 6)) for e in context.envelopes] == [
        ("a", round(3 / 61 + 1 / 62, 6)),
        ("b", round(3 / 62 + 1 / 61, 6)),
    ]


@pytest.mark.case("B03")
@pytest.mark.without("contextrouter/pipeline/candidates.py", "leg=ranked.leg,", 'leg="",')
async def test_every_document_has_a_score_in_0_to_1_beside_raw_scores(tmp_path: Path):
    router = system(tmp_path, "evidence")
    await fill(router, "wiki", piece("a", "tides", cosine=0.8), piece("b", "waves", cosine=0.4))
    async with router:
        context = await router.route("What about tides?")
    best = context.envelopes[0]
    assert all(0 <= envelope.normalized <= 1 for envelope in context.envelopes)
    raw = {seal.leg: (seal.rank, round(seal.score or 0, 6)) for seal in best.provenance}
    assert raw["vector"] == (1, 0.8)
    assert set(best.signals) >= {"freshness", "vector", "text", "blend"}


@pytest.mark.case("B04")
@pytest.mark.without(rag__stages=["gate", "neighbours"])
async def test_the_trace_says_where_a_document_was_lost_in_api_command_line_and_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    await ingest(tmp_path, "packs", "[stages.quality]\nthreshold = 0.9\n")
    question = "What is a Fresnel lens made of?"
    toml = "[stages.quality]\nthreshold = 0.62\n"
    async with serve_router(system(tmp_path, "packs", toml, embedders={})) as ask:
        told = (await ask("/v1/route", {"question": question, "detail": "trace"})).json
    async with system(tmp_path, "packs", toml, embedders={}) as router:
        context = await router.route(question)
    shown = await asyncio.to_thread(
        CommandLine(monkeypatch, capsys), "route", question, "--explain", cwd=tmp_path
    )
    lost = [step["name"] for step in told["trace"]["steps"] if step["lost"]]
    assert "quality" in lost
    assert lost == [step.name for step in context.trace.steps if step.lost]
    assert "\n  quality – 0." in shown.out


@pytest.mark.case("B05")
@pytest.mark.without("contextrouter/settings/sections.py", "if name not in fields:", "if False:")
def test_every_mistake_is_said_at_once_with_its_line_and_the_nearest_name(tmp_path: Path):
    text = '[rag]\ncandiates = 3\n[stages.gate]\nthreshhold = 0.5\nreads = "similarity"\n'
    with pytest.raises(SettingsError) as caught:
        system(tmp_path, "packs", text)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("settings.toml:3: rag.candiates: unknown key. Did you mean `candidates`?")
    assert lines[1].startswith(
        "settings.toml:5: stages.gate.threshhold: unknown key. Did you mean `threshold`?"
    )


@pytest.mark.case("B06")
@pytest.mark.without("contextrouter/builtin/stages/gate.py", "envelope.drop(f", "str(f")
def test_a_plugin_that_a_preset_names_passes_the_conformance_kit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "settings.toml").write_text('extends = "packs"\n', "utf-8")
    cli = CommandLine(monkeypatch, capsys)
    checked = cli("plugins", "check", "gate", cwd=tmp_path)
    assert checked.code == 0, checked.out + checked.err


@pytest.mark.case("B07")
@pytest.mark.without(connectors__news__paths=[], connectors__news__urls=["http://192.0.2.1/feed.xml"])
async def test_a_preset_starts_and_answers_without_a_service_a_key_or_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import socket

    def refuse(*arguments: Any, **more: Any) -> None:
        raise AssertionError(f"the network was asked: {arguments}")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", refuse)
    await ingest(tmp_path, "multisource")
    async with system(tmp_path, "multisource", embedders={}) as router:
        context = await router.route("Which book explains backpropagation?")
    assert (context.outcome, context.degraded) == ("answered", False)


class Counting(Fixed):
    """Counts its searches, and answers when it is let."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def search(self, query: Query) -> Sequence[Hit]:
        found = await super().search(query)
        self.asked.set()
        await self.go.wait()
        return found


@pytest.mark.case("B08")
@pytest.mark.without(rag__cache_enabled=False)
async def test_equal_questions_at_once_search_once_survive_a_caller_and_scopes_stay_apart(tmp_path: Path):
    source = Counting("a")
    router = system(tmp_path, "multisource", ONE, connectors={"web": source})
    await fill(router, "library")
    async with router:
        asked = [asyncio.create_task(router.route("q?")) for _ in range(3)]
        await source.asked.wait()
        asked[0].cancel()
        source.go.set()
        assert [ids(await task) for task in asked[1:]] == [["a"], ["a"]]
        assert len(source.queries) == 1
        await router.route("q?", scope=Scope(ceiling="internal"))
    assert len(source.queries) == 2


@pytest.mark.case("B09")
@pytest.mark.without(connectors__feed__allow_private=["127.0.0.0/8"])
async def test_a_feed_inside_the_network_and_an_answer_that_is_too_long_are_refused(tmp_path: Path):
    toml = ONE + '[connectors.feed]\nuse = "rss"\nurls = ["http://127.0.0.1:9/feed.xml"]\nretries = 0\n'
    router = system(tmp_path, "multisource", toml)
    await fill(router, "library", piece("a", "tides"))
    async with router:
        context = await router.route("What about tides?")
    (report,) = [report for report in context.coverage if report.source == "feed"]
    assert report.status in ("error", "partial")
    assert "127.0.0.1 is not a public address" in report.error
    assert ids(context) == ["a"]


@pytest.mark.case("B10")
@pytest.mark.without("contextrouter/answering/answers.py", "Markers(len(context.envelopes))", "Markers(99)")
async def test_no_citation_of_an_answer_is_wrong(tmp_path: Path):
    toml = '[chat]\nsynthesis_model = "said"\n'
    writer = ScriptedGenerator("Tides [1]. Waves [2]. And [12].")
    router = system(tmp_path, "evidence", toml, generators={"said": writer})
    await fill(router, "wiki", piece("a", "tides"), piece("b", "waves", cosine=0.9))
    async with router:
        answer = await router.answer("What about tides?")
    assert answer.text == "Tides [1]. Waves [2]. And."
    assert [(c.number, c.title) for c in answer.citations] == [(1, "a"), (2, "b")]


@pytest.mark.case("B11")
@pytest.mark.without(stages__diversity__relevance=1.0)
async def test_a_text_that_repeats_one_above_it_moves_down_behind_the_reranker(tmp_path: Path):
    toml = '[rag]\nstages = ["diversity"]\nmax_retrieval_queries = 1\n[stages.diversity]\nrelevance = 0.3\n'
    router = system(tmp_path, "multisource", toml)
    twin = "tides rise and fall twice a day on most coasts " * 3
    entries = [
        piece("a", twin, cosine=0.9, url="u1"),
        piece("b", twin + "indeed", cosine=0.899, url="u2"),
        piece("c", "waves are made by the wind over the open sea", cosine=-0.3, url="u3"),
    ]
    await fill(router, "library", *entries)
    async with router:
        assert ids(await router.route("What about tides?")) == ["a", "c", "b"]


@pytest.mark.case("B12")
@pytest.mark.without("contextrouter/evaluation/retrieval.py", "ranked=tuple(sources),", "ranked=(),")
def test_judged_questions_measure_a_preset_and_tune_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asyncio.run(ingest(tmp_path, "multisource"))
    (tmp_path / "settings.toml").write_text('extends = "multisource"\n', "utf-8")
    judged = [
        {"question": "Which book explains backpropagation?", "relevant": ["layers-and-weights.md"]},
        {"question": "What is overfitting?", "relevant": ["overfitting-video.md"]},
    ]
    (tmp_path / "judged.jsonl").write_text("\n".join(map(json.dumps, judged)), "utf-8")
    cli = CommandLine(monkeypatch, capsys)
    measured = json.loads(cli("eval", "judged.jsonl", "--json", "--metric", "Success@1", cwd=tmp_path).out)
    assert measured["settings.toml"]["means"] == {"Success@1": 1.0}
    before = (tmp_path / "settings.toml").read_text("utf-8")
    assert json.loads(cli("tune", "judged.jsonl", "--json").out)["questions"] == 2
    assert (tmp_path / "settings.toml").read_text("utf-8") == before


@pytest.mark.case("B13")
@pytest.mark.without("contextrouter/server/chat.py", 'path="/v1/chat/completions"', 'path="/v1/chat"')
async def test_one_settings_file_serves_rest_openai_and_mcp(tmp_path: Path):
    router = system(tmp_path, "evidence")
    await fill(router, "wiki", piece("a", "The tides rise."))
    async with serve_router(router) as ask:
        rest = (await ask("/v1/route", {"question": "What about tides?"})).json
        body = {"model": "contextrouter", "messages": [{"role": "user", "content": "What about tides?"}]}
        chat = (await ask("/v1/chat/completions", body)).json
        async with Client(streamable_http_client(f"{ask.url}/mcp")) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            reply = await client.call_tool("route", {"question": "What about tides?"})
    assert rest["outcome"] == chat["contextrouter"]["outcome"] == "answered"
    assert tools == {"route", "facts", "search", "fetch"}
    assert "### [1] a" in str(reply)


@pytest.mark.case("B14")
@pytest.mark.without(connectors__new__shadow=False)
async def test_a_shadow_source_is_asked_and_compared_and_never_shown(tmp_path: Path):
    new = Fixed([hit("a", content="tides"), hit("fresh", content="news of tides")])
    toml = ONE + "[connectors.new]\nshadow = true\n"
    router = system(tmp_path, "multisource", toml, connectors={"new": new})
    await fill(router, "library", piece("a", "tides"), piece("b", "waves", cosine=0.5))
    async with router:
        context = await router.route("What about tides?")
    assert (ids(context), len(new.queries)) == (["a", "b"], 1)
    assert note(context, "shadow") == "'new' found 1 of the 2 documents shown, and 1 others"
    assert {report.source for report in context.coverage} == {"library", "graph"}
    broken = system(tmp_path, "multisource", toml, connectors={"new": Raising()})
    async with broken:
        assert not (await broken.route("What about tides?")).degraded


def test_eval_compares_presets_and_a_shadow_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asyncio.run(ingest(tmp_path, "multisource"))
    (tmp_path / "settings.toml").write_text(
        'extends = "multisource"\n[connectors.news]\nshadow = true\n', "utf-8"
    )
    judged = {
        "question": "When does the reading group meet?",
        "relevant": ["https://example.org/news/reading-group"],
    }
    (tmp_path / "judged.jsonl").write_text(json.dumps(judged), "utf-8")
    cli, metric = CommandLine(monkeypatch, capsys), ("--json", "--metric", "Success@5")
    apart = json.loads(cli("eval", "judged.jsonl", "--shadow", "news", *metric, cwd=tmp_path).out)
    means = {name: summary["means"]["Success@5"] for name, summary in apart.items()}
    assert means == {"settings.toml": 0.0, "settings.toml: news": 1.0}
    for both in (("--compare", "multisource"), ("--compare", "settings.toml", "--compare", "multisource")):
        compared = json.loads(cli("eval", "judged.jsonl", *both, *metric).out)
        means = {name: summary["means"]["Success@5"] for name, summary in compared.items()}
        assert means == {"settings.toml": 0.0, "multisource": 1.0}
    misspelt = cli("eval", "judged.jsonl", "--compare", "multisorce")
    assert (misspelt.code, "Did you mean 'multisource'?" in misspelt.err) == (2, True)
    of_preset = cli("eval", "judged.jsonl", "--settings", "multisource", "--shadow", "news", *metric)
    means = {name: summary["means"]["Success@5"] for name, summary in json.loads(of_preset.out).items()}
    assert means == {"multisource": 0.0, "multisource: news": 1.0}
    wrong = cli("eval", "judged.jsonl", "--shadow", "nws")
    assert (wrong.code, "'nws' is not defined" in " ".join(wrong.err.split())) == (2, True)


@pytest.mark.case("B15")
@pytest.mark.without(generators__writer__price_in=0.0)
async def test_calls_tokens_cost_and_time_of_a_request_are_counted(tmp_path: Path):
    """50 tokens in at 2 and 10 out at 30 for a million: 0.0004."""
    async with ModelServer({"queries": ["range of a fog signal", "audible distance of horns"]}) as server:
        toml = (
            '[rag]\nenable_multi_query = true\n[generators.writer]\nuse = "openai"\nmodel = "m"\n'
            f'base_url = "{server.url}"\nprice_in = 2.0\nprice_out = 30.0\n'
        )
        router = system(tmp_path, "packs", toml)
        await fill(router, "pack", piece("a"))
        async with router:
            usage = (await router.route("How far is a foghorn heard?")).usage
    (model,) = usage.models
    assert (model.calls, model.tokens_in, model.tokens_out, round(model.cost or 0, 7)) == (1, 50, 10, 0.0004)
    assert usage.calls == 4  # three wordings on one leg, and the facts
    assert usage.seconds > 0


def test_presets_are_listed_and_each_plugin_they_name_is_registered(tmp_path: Path):
    registry = Registry()
    for name in preset_names():
        settings = system(tmp_path, name).settings
        for kind in ("stage", "interpreter", "generator", "transform", "provider"):
            for instance in settings.instances(kind).values():
                assert registry.has(kind, instance.use)
