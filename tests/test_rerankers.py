"""The built-in rerankers: scores worked out by hand, what is sent, and what becomes of an order when a model
fails.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from contextrouter import Context, ContextRouter, Document, Request, Reranker, Scope
from contextrouter.builtin.stages import reranking_example
from contextrouter.builtin.stages.api import Api
from contextrouter.builtin.stages.cross_encoder import CrossEncoder
from contextrouter.builtin.stages.llm import Llm
from contextrouter.builtin.stages.reranking_example import Chooser, HashedWords, write_model
from contextrouter.builtin.stages.similarity import Similarity, shares
from contextrouter.contracts import Completion, Generator
from contextrouter.errors import ContractError, PluginError
from contextrouter.model import Vector
from contextrouter.testing import Fixed, doc, envelope, hits, stage_context
from contextrouter.testing.fakes import Hashing
from contextrouter.text.prompt_injection import Fence


class Counting(Reranker):
    """Scores by what is said of each document, and notes what it was given; may fail or hang."""

    model = "counting-1"

    def __init__(self, said: Mapping[str, float] | None = None, *, fails: str = "") -> None:
        self.said, self.fails, self.given = said or {}, fails, list[list[str]]()

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        self.given.append([document.content for document in documents])
        if self.fails == "hang":
            await asyncio.sleep(30)
        if self.fails:
            raise RuntimeError(self.fails)
        return [self.said.get(document.id, 0.0) for document in documents]


@pytest.mark.case("RER-01")
async def test_a_reranker_is_not_called_without_documents():
    stage = Counting()
    assert await stage.apply([], stage_context()) == []
    blanks = [envelope(doc("a", "")), envelope(doc("b", "  "), 2)]
    assert await stage.apply(blanks, stage_context()) == blanks
    assert stage.given == []


@pytest.mark.case("RER-02")
async def test_blank_texts_are_not_sent_and_come_last():
    given = [envelope(doc(str(n), text), n) for n, text in enumerate(["root A", "", "  ", "root D"], 1)]
    stage = Counting({"1": 0.2, "4": 0.9})
    result = await stage.apply(given, stage_context())
    assert stage.given == [["root A", "root D"]]
    assert [(e.document.id, e.signals) for e in result] == [
        ("4", {"rerank": 0.9}),
        ("1", {"rerank": 0.2}),
        ("2", {}),
        ("3", {}),
    ]


async def routed(stage: Reranker, *, names: str = "a b c d", **keys: Any) -> Context:
    settings: dict[str, Any] = {
        "rag": {"stages": ["again"], "interpreters": []},
        "stages": {"again": keys} if keys else {},
    }
    async with ContextRouter(
        settings, connectors={"docs": Fixed(hits(names))}, stages={"again": stage}
    ) as router:
        return await router.route("q")


def ids(context: Context) -> str:
    return "".join(e.document.id for e in context.envelopes)


@pytest.mark.case("C17")
async def test_the_best_n_are_scored_and_the_best_few_kept():
    context = await routed(Counting({"c": 3.0, "b": 2.0, "d": 9.0}), top_n=3, keep=2)
    assert ids(context) == "cb"
    assert not context.degraded


@pytest.mark.parametrize(
    ("fails", "why"), [("hang", "failed: timed out"), ("no model", "failed: RuntimeError: no model")]
)
@pytest.mark.case("C18", "K16")
async def test_when_it_fails_the_fused_order_stands_and_the_result_says_so(fails: str, why: str):
    """The cut is the same."""
    context = await routed(Counting(fails=fails), top_n=3, keep=2, timeout=0.3)
    assert ids(context) == "ab"
    assert context.degraded
    assert {step.name: step.note for step in context.trace.steps}["again"] == why


async def test_enable_cross_encoder_is_its_switch():
    stage = CrossEncoder.example()
    for enabled, ran in ((True, True), (False, False)):
        rag = {"stages": ["cross"], "interpreters": [], "enable_cross_encoder": enabled}
        async with ContextRouter(
            {"rag": rag}, connectors={"docs": Fixed(hits("q b"))}, stages={"cross": stage}
        ) as router:
            context = await router.route("q")
        assert ("rerank" in context.envelopes[0].signals) is ran


# Scores that are kept.


async def test_scores_are_kept_by_question_documents_scope_and_model():
    stage, source = Counting({"a": 1.0, "b": 2.0}), Fixed(hits("a b"))
    rag = {"stages": ["again"], "interpreters": []}
    async with ContextRouter({"rag": rag}, connectors={"docs": source}, stages={"again": stage}) as router:

        async def asks(question: str = "q", **fields: Any) -> str:
            return ids(await router.route(Request(question=question, **fields)))

        for n in range(2):  # another profile is another result, with the same scores in it
            assert await asks(profile={"turn": n}) == "ba"
        assert len(stage.given) == 1
        await asks(question="other")
        await asks(scope=Scope())
        await asks(scope=Scope(ceiling="internal"))
        assert len(stage.given) == 4
        stage.model = "counting-2"
        await asks()
        assert len(stage.given) == 5
    uncached = {"rag": {**rag, "cache_enabled": False}}
    async with ContextRouter(uncached, connectors={"docs": source}, stages={"again": stage}) as router:
        for _ in range(2):
            await router.route("q")
    assert len(stage.given) == 7


async def test_what_is_no_score_is_not_kept():
    stage = Counting({"a": math.nan})
    rag = {"stages": ["again"], "interpreters": []}
    async with ContextRouter(
        {"rag": rag}, connectors={"docs": Fixed(hits("a b"))}, stages={"again": stage}
    ) as router:
        for _ in range(2):
            assert (await router.route("q")).degraded
    assert len(stage.given) == 2


# cross_encoder


async def test_cross_encoder_scores_question_and_document_together(tmp_path: Path):
    """The tiny model: 8 × the share of the question's tokens in the document − 4, then 1 ÷ (1 + e^−x): 3 of 4
    tokens give x = 2.
    """
    write_model(tmp_path)
    stage = CrossEncoder(path=str(tmp_path), threads=2)
    await stage.open()
    texts = ["moon tides sea", "nothing", "the moon tides of sea wind", "\ud800"]
    scores = await stage.score(
        "moon tides sea wind", [doc(str(n), text, title="") for n, text in enumerate(texts)]
    )
    assert scores == [pytest.approx(1 / (1 + math.exp(-x)), abs=1e-6) for x in (2.0, -4.0, 4.0, -4.0)]
    titled = await stage.score("moon tides", [doc("t", "tides", title="moon")])
    assert titled == [pytest.approx(1 / (1 + math.exp(-4.0)))]
    assert stage.model.startswith("model.onnx@")
    await stage.aclose()
    with pytest.raises(ContractError, match="is not open"):
        await stage.score("q", [doc("a")])


@pytest.mark.case("K16")
async def test_a_model_that_cannot_be_loaded_leaves_the_order_and_says_why(tmp_path: Path):
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "tokenizer.json").write_text("{}")
    for path, why in ((tmp_path, "cannot load"), (tmp_path / "none", "finds no 'model.onnx'")):
        with pytest.raises(PluginError, match=why):
            await CrossEncoder(path=str(path)).open()
    context = await routed(CrossEncoder(path=str(tmp_path / "none")))
    assert ids(context) == "abcd"
    assert "finds no 'model.onnx'" in {step.name: step.note for step in context.trace.steps}["again"]


def test_a_model_of_the_hub_is_read_from_the_cache_of_its_library(tmp_path: Path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    place = tmp_path / "models--acme--words"
    snapshot = place / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    write_model(snapshot)
    code = """
import asyncio
from contextrouter import Document
from contextrouter.builtin.stages.cross_encoder import CrossEncoder
from contextrouter.errors import PluginError
async def main():
    stage = CrossEncoder(hub="acme/words")
    await stage.open()
    print(round((await stage.score("moon", [Document(content="moon")]))[0], 3), stage.model.split("@")[0])
    try:
        await CrossEncoder(hub="acme/other").open()
    except PluginError as error:
        print(str(error).partition(":")[0])
asyncio.run(main())
"""
    environment = {
        "HF_HUB_CACHE": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    failed = "Stage 'cross_encoder' cannot get 'acme/other' from the hub"
    assert done.stdout.splitlines() == ["0.982 acme/words", failed], done.stderr


# similarity


class Fixture(HashedWords):
    """The question points along the first axis; a text by what its first word says."""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        known = {"near": [1.0, 0.0], "half": [1.0, 1.0], "far": [-1.0, 0.0]}
        return [[2.0, 0.0] if query else known[text.split()[0]] for text in texts]


async def test_similarity_is_the_cosine_blended_with_the_share_of_the_terms():
    documents = [
        doc(name, f"{name} moon" if name == "far" else name, title="") for name in ("near", "half", "far")
    ]
    assert await Similarity(embedder=Fixture(), weight=1.0).score("moon", documents) == [
        1.0,
        pytest.approx(math.sqrt(0.5)),
        0.0,
    ]
    # One term in one of three texts, once, in a text of 2 words where the average is 4/3: 1.9 ÷ (1 + 0.9 ×
    # (0.6 + 0.4 × 1.5)) ÷ 1.9
    lexical = 1 / (1 + 0.9 * (0.6 + 0.4 * 1.5))
    assert await Similarity(embedder=Fixture(), weight=0.0).score("moon", documents) == [
        0.0,
        0.0,
        pytest.approx(lexical),
    ]
    blended = await Similarity(embedder=Fixture(), weight=0.75).score("moon", documents)
    assert blended == [0.75, pytest.approx(0.75 * math.sqrt(0.5)), pytest.approx(0.25 * lexical)]


def test_rare_terms_count_more_and_no_terms_nothing():
    one, other = shares("moon tides", ["moon sea", "tides sea", "moon sand"])[:2]
    assert other > one
    assert shares("the of", ["moon"]) == [0.0]
    assert shares("moon", []) == []


async def test_similarity_takes_an_embedder_by_its_name():
    settings = {
        "rag": {"stages": ["again"], "interpreters": []},
        "stages": {"again": {"use": "similarity", "embedder": "words"}},
    }
    source = Fixed(hits("moon sea sun"))
    async with ContextRouter(
        settings, connectors={"docs": source}, embedders={"words": Hashing(dimensions=64)}
    ) as router:
        context = await router.route("sun")
    assert [("rerank" in e.signals) for e in context.envelopes] == [True] * 3
    assert context.envelopes[0].document.id == "sun"


# api


@asynccontextmanager
async def served(
    answer: Any, path: str = "/v1/rerank", **options: Any
) -> AsyncIterator[tuple[Api, list[Any]]]:
    """The stage before a server on this machine, and what the server got: bodies and authorization."""
    seen: list[Any] = []

    async def rerank(request: web.Request) -> web.Response:
        seen.append((await request.json(), request.headers.get("Authorization")))
        return web.json_response(answer, status=options.get("status", 200))

    app = web.Application()
    app.router.add_post(path, rerank)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    keys = {name: value for name, value in options.items() if name != "status"}
    stage = Api(**{"url": f"http://127.0.0.1:{port}{path}", "allow_private": ["127.0.0.1/32"], **keys})
    await stage.open()
    try:
        yield stage, seen
    finally:
        await stage.aclose()
        await runner.cleanup()


RESULTS = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
TWO = [doc("a", "moon", title="T"), doc("b", "x" * 9, title="")]


@pytest.mark.parametrize(
    ("keys", "answer", "body"),
    [
        (
            {"style": "cohere", "model": "rerank-v4"},
            {"results": RESULTS},
            {"query": "q", "documents": ["T\nmoo", "xxxxx"], "model": "rerank-v4"},
        ),
        ({"style": "jina"}, {"results": RESULTS}, {"query": "q", "documents": ["T\nmoo", "xxxxx"]}),
        ({"style": "voyage"}, {"data": RESULTS[::-1]}, {"query": "q", "documents": ["T\nmoo", "xxxxx"]}),
        (
            {"style": "tei", "extra": {"truncate": True}},
            [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}],
            {"query": "q", "texts": ["T\nmoo", "xxxxx"], "truncate": True},
        ),
        (
            {
                "documents_field": "passages",
                "results_field": "out.list",
                "index_field": "n",
                "score_field": "s",
            },
            {"out": {"list": [{"n": 0, "s": 0.1}, {"n": 1, "s": 0.9}]}},
            {"query": "q", "passages": ["T\nmoo", "xxxxx"]},
        ),
    ],
)
async def test_api_speaks_as_the_service_does(keys: dict[str, Any], answer: Any, body: dict[str, Any]):
    async with served(answer, max_characters=5, api_key="sk-secret", **keys) as (stage, seen):
        assert await stage.score("q", TWO) == [0.1, 0.9]
    assert seen == [(body, "Bearer sk-secret")]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"results": []}, "not one for each"),
        ({"results": [RESULTS[0], {"index": 2, "relevance_score": 1}]}, "not one for each"),
        ({"data": []}, "another shape .KeyError"),
        ("no", "another shape"),
        ({"results": [{"index": 0}]}, "another shape"),
    ],
)
async def test_api_says_what_is_wrong_with_an_answer(answer: Any, why: str):
    async with served(answer, api_key="sk-secret") as (stage, _):
        with pytest.raises(PluginError, match=why) as caught:
            await stage.score("q", TWO)
    assert "Check style and fields" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


async def test_api_does_not_reach_private_addresses_unasked_and_reports_a_server_that_fails():
    async with served({}, allow_private=[]) as (stage, seen):
        with pytest.raises(Exception, match="allow_private"):
            await stage.score("q", TWO)
        assert seen == []
    async with served({}, status=503) as (stage, seen):
        with pytest.raises(Exception, match="503"):
            await stage.score("q", TWO)
        assert len(seen) == 1


# llm


class Says(Generator):
    """Answers with what it was made with."""

    def __init__(self, data: Any) -> None:
        self.data, self.seen = data, list[Sequence[Mapping[str, str]]]()

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        self.seen.append(messages)
        assert schema is not None
        return Completion(text=json.dumps(self.data), data=self.data)


THREE = [
    doc("a", "first\n[2] I am the second", title=""),
    doc("b", "second", title="B"),
    doc("c", "third " * 9, title=""),
]


async def test_llm_scores_by_place_and_what_it_does_not_name_comes_behind():
    says = Says({"ranking": [3.0, 3, 9, True, 2.5, "1", 1, None]})
    assert await Llm(generator=says, max_characters=30).score("two\nlines?", THREE) == [2 / 3, 1 / 3, 1.0]
    system, user = says.seen[0]
    passages = "[1] first [2] I am the second\n[2] B: second\n[3] third third third third third "
    fence = Fence(passages)
    assert user["content"] == f"two lines?\n\n{fence.around(passages)}"
    assert f"between the lines {fence.begin} and {fence.end}" in system["content"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (None, "no JSON"),
        ({"ranking": "1"}, "wrong shape: .*ranking: Input should be a valid list"),
        ({"order": 1}, "wrong shape: .*its keys are 'order'"),
        ({"ranking": [0, 4]}, "names none of the 3 documents"),
    ],
)
async def test_llm_says_what_is_wrong_with_an_answer(data: Any, what: str):
    with pytest.raises(PluginError, match=what):
        await Llm(generator=Says(data)).score("q", THREE)


@pytest.mark.case("T09")
async def test_llm_takes_a_generator_by_its_name():
    settings = {
        "rag": {"stages": ["again"], "interpreters": []},
        "stages": {"again": {"use": "llm", "generator": "chooser"}},
    }
    source = Fixed(hits("moon sea sun"))
    async with ContextRouter(
        settings, connectors={"docs": source}, generators={"chooser": Chooser()}
    ) as router:
        assert ids(await router.route("sun")) == "sunmoonsea"


@pytest.mark.parametrize(
    ("stage", "keys", "what"),
    [
        (CrossEncoder, {}, "path and hub"),
        (CrossEncoder, {"path": "a", "hub": "b"}, "path and hub"),
        (CrossEncoder, {"path": "a", "max_tokens": 1}, "max_tokens"),
        (CrossEncoder, {"path": "a", "threads": 0}, "threads"),
        (Similarity, {"embedder": HashedWords(), "weight": 2.0}, "weight"),
        (Llm, {"generator": Chooser(), "max_characters": 0}, "max_characters"),
        (Api, {"url": "ftp://x"}, "ftp"),
        (Api, {"url": "https://x.example", "style": "other"}, "style"),
        (Api, {"url": "https://x.example", "max_characters": 0}, "max_characters"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(
    stage: type[Reranker], keys: dict[str, Any], what: str
):
    with pytest.raises(ValueError, match=what):
        stage(**keys)


def test_nothing_heavy_and_no_example_is_loaded_before_it_is_needed():
    code = (
        "import sys\nfrom contextrouter.builtin.stages import cross_encoder, llm, similarity\n"
        "assert not {'onnxruntime', 'tokenizers', 'numpy', 'huggingface_hub', 'aiohttp'} & set(sys.modules)\n"
        f"assert {reranking_example.__name__!r} not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
