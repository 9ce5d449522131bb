"""Results as JSON in three levels of detail, as pydantic models, as one line and as a table of a notebook."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from support.example import QUESTION, ingest_example
from support.serving import document, router, serve_router

import contextrouter
from contextrouter import Answer, Context, ContextRouter, Document, Envelope, Hit, schemas
from contextrouter.model.plain_form import builtins
from contextrouter.testing.fakes import Fixed, Raising

TEXT = "Otters swim. " * 2_000
HIT = Hit(document=Document(id="o", content=TEXT, url="https://example.org/o", title="Otters"))
SETTINGS = {"rag": {"cache_enabled": False, "interpreters": []}}
NOUNS = [
    value
    for name in contextrouter.__all__
    if isinstance(value := getattr(contextrouter, name), type) and issubclass(value, msgspec.Struct)
    if value.__module__.startswith("contextrouter.model.") or name in ("Scope", "Answerability")
]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(ingest_example(tmp_path_factory.mktemp("example")))


@pytest.fixture
async def answer() -> Answer:
    vector = np.ones(384, dtype=np.float32)
    hit = HIT.replace(vector=vector, document=HIT.document.replace(metadata={"weight": np.float32(0.5)}))
    sources = {"docs": Fixed([hit]), "gone": Raising(contextrouter.SourceError("no line"))}
    async with ContextRouter(SETTINGS, connectors=sources) as made:
        return await made.answer("Do otters swim?")


@pytest.mark.case("USE-12")
async def test_the_question_of_the_demo_is_answered_in_fifteen_kilobytes(
    example: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(example)
    async with serve_router(ContextRouter.from_toml("settings.toml")) as ask:
        by_default = await ask("/v1/route", {"question": QUESTION})
        full = await ask("/v1/route", {"question": QUESTION, "detail": "full"})
        trace = await ask("/v1/route", {"question": QUESTION, "detail": "trace"})
    assert len(by_default.text.encode()) < 15_000 < len(full.text.encode()) < len(trace.text.encode())
    told = by_default.json
    assert {report["source"] for report in told["coverage"]} == {
        "library",
        "notes",
        "news",
        "glossary",
        "graph",
    }
    assert sum(report["calls"] for report in told["coverage"]) == told["usage"]["calls"]
    assert told["route"] == "default"
    assert all({"source", "leg", "rank"} == set(envelope["provenance"][0]) for envelope in told["envelopes"])
    assert len(told["envelopes"]) == len(told["citations"]) == len(full.json["envelopes"])


@pytest.mark.case("USE-12")
@pytest.mark.parametrize("path", ["/v1/route", "/v1/answer"])
async def test_each_door_tells_as_much_as_is_asked_for(path: str):
    async with serve_router(router(answer=[document("one")])) as ask:
        told = {
            detail: (await ask(path, {"question": "one?", "detail": detail})).json
            for detail in ("brief", "full", "trace")
        }
        wrong = await ask(path, {"question": "one?", "detail": "all"})
        old = await ask(path, {"question": "one?", "trace": True})
    contexts = {detail: each.get("context", each) for detail, each in told.items()}
    assert ["content" in each["envelopes"][0]["document"] for each in contexts.values()] == [
        False,
        True,
        True,
    ]
    assert ["trace" in each for each in contexts.values()] == [False, False, True]
    assert "vector" not in json.dumps(contexts["trace"]["envelopes"])
    assert (wrong.status, wrong.json["code"], old.status) == (422, "invalid_body", 422)
    assert wrong.json["detail"].endswith("`$.detail`. Choose from brief, full, trace.")
    assert "detail" in wrong.json["detail"]
    assert "`trace`" in old.json["detail"]


@pytest.mark.case("USE-03")
def test_a_result_is_json_in_every_level_of_detail_whatever_is_in_it(answer: Answer):
    context = answer.context
    for detail in ("brief", "full", "trace"):
        assert json.loads(context.to_json(detail)) == json.loads(
            json.dumps(builtins(context.to_dict(detail)))
        )
        assert json.loads(answer.to_json(detail))["context"] == json.loads(context.to_json(detail))
    assert context.to_dict() == context.to_dict("brief")
    full = context.to_dict("full")
    assert full["envelopes"][0]["document"]["metadata"] == {"weight": 0.5}
    assert full["envelopes"][0]["provenance"][0]["query"] == 0
    failed = [report for report in context.to_dict()["coverage"] if report["status"] == "error"]
    assert [report["error"] for report in failed] == ["no line"]


@pytest.mark.case("USE-03")
def test_calls_that_ended_alike_are_one_report_of_the_brief_form():
    report = contextrouter.SourceReport(source="a", leg="text", query="q", status="ok", elapsed=0.5, count=3)
    other = report.replace(query="r", elapsed=0.25, count=4)
    late = report.replace(status="timeout", count=0, error="late")
    intent = contextrouter.Intent(question="q")
    context = Context(
        question="q",
        intent=intent,
        outcome="empty",
        coverage=(report, other, late),
        usage=contextrouter.Usage(),
        trace=contextrouter.Trace(plan=contextrouter.Plan(intent=intent)),
    )
    assert context.to_dict()["coverage"] == [
        {"source": "a", "leg": "text", "status": "ok", "elapsed": 0.5, "count": 7, "calls": 2},
        {"source": "a", "leg": "text", "status": "timeout", "elapsed": 0.5, "error": "late", "calls": 1},
    ]


@pytest.mark.case("USE-03")
def test_every_public_noun_has_a_model_with_its_fields():
    for noun in NOUNS:
        model = getattr(schemas, noun.__name__)
        assert model.__doc__ == noun.__doc__
        assert set(noun.__struct_fields__) - {"vector"} <= set(model.model_fields), noun
        assert set(getattr(noun, "BRIEF", None) or ()) <= set(noun.__struct_fields__)
    assert {noun.__name__ for noun in NOUNS} == set(schemas.__all__)


@pytest.mark.case("USE-03")
def test_models_take_nouns_and_every_level_of_detail_and_lose_nothing(answer: Answer):
    for noun, model in ((answer, schemas.Answer), (answer.context, schemas.Context)):
        for detail in ("brief", "full", "trace"):
            made = model.model_validate(noun.to_dict(detail))
            assert json.loads(made.model_dump_json(exclude_unset=True)) == json.loads(noun.to_json(detail))
        of_noun = model.model_validate(noun).model_dump_json(exclude_unset=True)
        assert json.loads(of_noun) == json.loads(noun.to_json())
    document = schemas.Document.model_validate(answer.context.envelopes[0].document)
    assert document.model_dump()["title"] == "Otters"


@pytest.mark.case("USE-03")
def test_a_model_is_a_response_model_that_describes_itself(answer: Answer):
    app = FastAPI()

    @app.get("/whole", response_model=schemas.Context, response_model_exclude_unset=True)
    def whole() -> Context:
        return answer.context

    with TestClient(app) as client:
        assert client.get("/whole").json() == json.loads(answer.context.to_json())
        told = client.get("/openapi.json").json()["components"]["schemas"]
    assert told["Context"]["required"] == [
        "question",
        "intent",
        "outcome",
        "usage",
        "route",
        "answerability",
        "degraded",
    ]


@pytest.mark.case("USE-17")
def test_a_result_is_shown_in_one_line(answer: Answer):
    context = answer.context
    assert repr(context).startswith("Context('Do otters swim?', answered, 1 document of docs, 0 facts, ")
    assert ", degraded, " in repr(context)
    assert repr(context.trace).startswith("Trace(route 'default', 2 calls, interpret:")
    assert repr(answer).startswith(
        "Answer(answered, 'Otters swim. Otters swim. Otters swim. [1]', 1 citation, by 'extractive', Con"
    )
    for shown in (context, context.trace, answer):
        assert len(repr(shown)) < 1_000
        assert "\n" not in repr(shown)


@pytest.mark.case("USE-17")
def test_a_notebook_shows_a_table_in_which_no_text_is_markup():
    hostile = Document(
        content="<script>alert(1)</script> \u202e end", title="<b>Bold</b>", url="javascript:alert(1)", id="x"
    )
    intent = contextrouter.Intent(question="<i>?")
    context = Context(
        question="<i>?",
        intent=intent,
        outcome="answered",
        envelopes=(
            Envelope(document=hostile, normalized=0.5),
            Envelope(document=hostile.replace(url="https://example.org/?a=1&b=\"'")),
        ),
        citations=tuple(
            contextrouter.Citation(number=n, title="<b>Bold</b>", url=url, source="docs")
            for n, url in ((1, "javascript:alert(1)"), (2, "https://example.org/?a=1&b=\"'"))
        ),
        usage=contextrouter.Usage(),
        trace=contextrouter.Trace(plan=contextrouter.Plan(intent=intent)),
    )
    shown = context._repr_html_()
    assert shown.startswith("<table><caption>Context(&#x27;&lt;i&gt;?&#x27;, answered, 2 documents of docs")
    assert "<td>&lt;b&gt;Bold&lt;/b&gt;</td><td>docs</td><td>0.50</td>" in shown
    assert '<a href="https://example.org/?a=1&amp;b=&quot;&#x27;" rel=' in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; end" in shown
    assert "javascript" not in shown
    written = Answer(
        question="?", outcome="answered", text="<img src=x>", context=context, usage=context.usage
    )
    assert written._repr_html_().startswith("<p>&lt;img src=x&gt;</p><table>")


@pytest.mark.case("USE-03")
@pytest.mark.parametrize("method", ["to_dict", "to_json"])
async def test_a_detail_that_there_is_not_is_refused_with_those_that_there_are(method: str):
    async with ContextRouter(SETTINGS, connectors={"docs": Fixed("a")}) as made:
        answer = await made.answer("Do otters swim?")
    for noun in (answer, answer.context):
        with pytest.raises(ValueError, match=r"no detail .everything.\. Choose from brief"):
            getattr(noun, method)("everything")
