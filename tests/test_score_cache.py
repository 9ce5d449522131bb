"""Kept scores of rerankers: which routers share them, and what never does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.resp import resp_server

from contextrouter import Context, ContextRouter, Document, Hit, Request, Reranker, Scope
from contextrouter.builtin.stages.api import Api
from contextrouter.builtin.stages.cross_encoder import CrossEncoder
from contextrouter.builtin.stages.llm import Llm
from contextrouter.builtin.stages.reranking_example import Chooser, HashedWords, write_model
from contextrouter.builtin.stages.similarity import Similarity
from contextrouter.scope import SHARED
from contextrouter.testing import Fixed, doc


class Lengths(Reranker):
    """Scores by the length of the text, and notes what it was given."""

    def __init__(self, model: str = "lengths-1") -> None:
        self.model, self.given = model, list[list[str]]()

    async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
        self.given.append([document.content for document in documents])
        return [float(len(document.content)) for document in documents]


class Each(Lengths):
    """The same, each document for itself."""

    pointwise = True


def found(names: str) -> Fixed:
    """A source with documents that every tenant sees; name and text are one."""
    return Fixed([Hit(document=doc(name, name, title="", tenant=SHARED)) for name in names.split()])


async def ask(cache: dict[str, Any], stage: Reranker, names: str = "a bb ccc", **fields: Any) -> Context:
    """Ask a router that lives for this question alone. Its stage and source are called what `names` says."""
    name = fields.pop("name", "again")
    settings = {
        "rag": {"stages": [name], "interpreters": [], "cache_ttl_seconds": 600 + len(names)},
        "cache": cache,
    }
    async with ContextRouter(settings, connectors={"docs": found(names)}, stages={name: stage}) as router:
        return await router.route(Request(question="q", **fields))


def disk(folder: Path) -> dict[str, Any]:
    return {"tier": "disk", "path": str(folder / "kept")}


def ids(context: Context) -> str:
    return " ".join(e.document.id for e in context.envelopes)


@pytest.mark.parametrize("tier", ["disk", "redis"])
@pytest.mark.parametrize("kind", [Lengths, Each])
@pytest.mark.case("T20")
async def test_two_routers_share_the_scores_of_one_model(tier: str, kind: type[Lengths], tmp_path: Path):
    """Whatever the stage is called in each."""
    async with resp_server() as server:
        redis = {"tier": "redis", "url": server.url, "timeout_seconds": 5.0}
        cache = disk(tmp_path) if tier == "disk" else redis
        first, second = kind(), kind()
        contexts = [await ask(cache, first), await ask(cache, second, name="other")]
    assert [ids(context) for context in contexts] == ["ccc bb a"] * 2
    assert [e.signals["rerank"] for e in contexts[1].envelopes] == [3.0, 2.0, 1.0]
    assert (first.given, second.given) == ([["a", "bb", "ccc"]], [])


SCOPE = Scope(tenant="t")


@pytest.mark.parametrize(
    ("scope", "stage", "namespace"),
    [
        (None, Lengths(), "one"),
        (Scope(), Lengths(), "one"),
        (Scope(tenant="u"), Lengths(), "one"),
        (Scope(tenant="t", compartments=frozenset({"hr"})), Lengths(), "one"),
        (Scope(tenant="t", ceiling="internal"), Lengths(), "one"),
        (SCOPE, Lengths("lengths-2"), "one"),
        (SCOPE, Each(), "one"),
        (SCOPE, Lengths(), "other"),
    ],
)
@pytest.mark.case("T20")
async def test_another_scope_model_or_namespace_never_shares(
    scope: Scope | None, stage: Lengths, namespace: str, tmp_path: Path
):
    cache, same = disk(tmp_path) | {"namespace": "one"}, Lengths()
    await ask(cache, Lengths(), scope=SCOPE)
    assert ids(await ask(cache | {"namespace": namespace}, stage, scope=scope)) == "ccc bb a"
    await ask(cache, same, scope=SCOPE)
    assert (len(stage.given), len(same.given)) == (1, 0)


async def test_a_reranker_of_no_named_model_shares_with_no_other_router(tmp_path: Path):
    first, second = Lengths(""), Lengths("")
    await ask(disk(tmp_path), first)
    await ask(disk(tmp_path), second)
    assert (len(first.given), len(second.given)) == (1, 1)


@pytest.mark.parametrize(("kind", "asked"), [(Each, [["dddd"]]), (Lengths, [["a", "bb", "ccc", "dddd"]])])
async def test_one_new_candidate_costs_one_score_where_each_is_scored_for_itself(
    kind: type[Lengths], asked: list[list[str]], tmp_path: Path
):
    await ask(disk(tmp_path), kind())
    stage = kind()
    assert ids(await ask(disk(tmp_path), stage, "a bb ccc dddd")) == "dddd ccc bb a"
    assert stage.given == asked


async def test_only_what_is_a_score_is_kept(tmp_path: Path):
    class Odd(Each):
        async def score(self, query: str, documents: Sequence[Document]) -> Sequence[float]:
            scores = await super().score(query, documents)
            return [float("nan") if score == 2.0 else score for score in scores]

    for given in ([["a", "bb", "ccc"]], [["bb"]]):
        stage = Odd()
        context = await ask(disk(tmp_path), stage)
        assert (stage.given, context.degraded, ids(context)) == (given, True, "a bb ccc")


SETTINGS = """
[rag]
stages = ["best"]
interpreters = []
[cache]
tier = "disk"
path = "kept"
[providers.memory]
[stages.best]
use = "{use}"
{options}
[embedders.words]
use = "{embedder}"
"""
SCRIPT = """
import asyncio, sys
from contextrouter import ContextRouter
from contextrouter.builtin.stages.{module} import {cls}
from contextrouter.testing import Fixed
asked = []
score = {cls}.score
async def counting(self, query, documents):
    asked.extend(document.content for document in documents)
    return await score(self, query, documents)
{cls}.score = counting
async def main():
    async with ContextRouter.from_toml(sys.argv[1], **{{"rag__candidates": int(sys.argv[2])}}) as router:
        router.instances.sources["memory"].search = Fixed("moon sea sun").search
        context = await router.route("moon")
    print(len(asked), context.degraded, *[round(e.signals["rerank"], 6) for e in context.envelopes])
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("use", "cls", "options", "scored"),
    [
        ("cross_encoder", "CrossEncoder", 'path = "model"', (3, 0)),
        ("similarity", "Similarity", 'embedder = "words"', (3, 0)),
    ],
)
@pytest.mark.case("T20")
async def test_processes_share_scores_and_a_setting_that_decides_none_changes_nothing(
    use: str, cls: str, options: str, scored: tuple[int, int], tmp_path: Path
):
    (tmp_path / "model").mkdir()
    write_model(tmp_path / "model")
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS.format(use=use, options=options, embedder="minilm"))
    said = []
    for candidates in ("20", "30"):
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SCRIPT.format(module=use, cls=cls),
            str(path),
            candidates,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await running.communicate()
        said.append(output.decode().split())
    assert tuple(int(words[0]) for words in said) == scored
    assert said[0][1:] == said[1][1:]
    assert said[0][1] == "False"


async def test_the_model_of_a_reranker_names_all_that_decides_its_scores(tmp_path: Path):
    """So that two made by hand share only what is the same."""
    write_model(tmp_path)

    async def model(stage: Reranker) -> str:
        await stage.open()
        await stage.aclose()
        return stage.model

    url = "https://rerank.example/v1"
    made = [
        CrossEncoder(path=str(tmp_path)),
        CrossEncoder(path=str(tmp_path), max_tokens=64),
        Similarity(embedder=HashedWords()),
        Similarity(embedder=HashedWords(), weight=0.25),
        Api(url=url, model="m"),
        Api(url=url + "/other", model="m"),
        Api(url=url, model="m", max_characters=10),
        Api(url=url, model="m", extra={"truncate": True}),
        Api(url=url, model="m", style="voyage"),
    ]
    models = [await model(stage) for stage in made]
    assert len({*models}) == len(made)
    assert "" not in models
    assert await model(Api(url=url)) == await model(Llm(generator=Chooser())) == ""
    assert await model(Api(url=url, model="m")) == models[4]


@pytest.mark.case("C17")
async def test_a_reranker_sees_the_candidates_of_all_sources_after_the_merge():
    """The best four of the fused order, whatever source they are of; what both have, once."""
    sources = {"a": found("a1 both a2 a3"), "b": found("both b1 b2 b3")}
    stage = Lengths()
    settings = {
        "rag": {"stages": ["again"], "interpreters": [], "calibrate": False},
        "stages": {"again": {"top_n": 4, "keep": 3}},
    }
    async with ContextRouter(settings, connectors=sources, stages={"again": stage}) as router:
        context = await router.route("q")
    (given,) = stage.given
    assert given[0] == "both"
    assert sorted(given) == ["a1", "a2", "b1", "both"]
    assert [e.document.id for e in context.envelopes][:1] == ["both"]
    assert len(context.envelopes) == 3
    (best, *_) = context.envelopes
    assert {p.source for p in best.provenance} == {"a", "b"}
