"""A listed reranker whose package, model or key is not there: it is skipped, and the result and `check` say so."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.example import CommandLine

from contextrouter import ContextRouter, MissingDependency
from contextrouter.builtin.stages.reranking_example import write_model
from contextrouter.testing import Fixed

SETTINGS = """
[rag]
stages = ["best"]
interpreters = []
[providers.memory]
[stages.best]
use = "{use}"
keep = 2
{options}
"""
SMALL = 'embedder = "small"\n[embedders.small]\nuse = "{use}"'
MODEL = 'generator = "model"\n[generators.model]\nuse = "{use}"\nmodel = "m"\n{options}'

ABSENT: dict[str, tuple[str, str, str, str]] = {
    # what: stage, its options, a module that is not installed, what is said
    "the package of a cross-encoder": (
        "cross_encoder",
        'path = "model"',
        "onnxruntime",
        "Stage 'cross_encoder' needs the extra 'cross-encoder'",
    ),
    "the package of the hub": (
        "cross_encoder",
        'hub = "acme/words"',
        "huggingface_hub",
        "Stage 'cross_encoder' with `hub` needs the extra 'cross-encoder'",
    ),
    "the folder of a model": ("cross_encoder", 'path = "none"', "", "finds no 'model.onnx'"),
    "the package of a service": ("api", 'url = "https://rerank.example/v1"', "aiohttp", "extra 'http'"),
    "the package of an embedder": ("similarity", SMALL.format(use="minilm"), "onnxruntime", "extra 'minilm'"),
    "the package of a generator": (
        "llm",
        MODEL.format(use="openai", options='api_key = "k"'),
        "openai",
        "extra 'openai'",
    ),
}


def written(folder: Path, use: str, options: str) -> Path:
    (folder / "model").mkdir()
    write_model(folder / "model")
    path = folder / "settings.toml"
    path.write_text(SETTINGS.format(use=use, options=options))
    return path


def uninstall(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a module look as if it were not installed; "": none."""
    if module:
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(
            sys.modules, "contextrouter.fetch.http_session", raising=False
        )  # has aiohttp already


async def found(router: ContextRouter) -> tuple[str, bool, str]:
    """Ask it of a source that finds a, b and c: ids of the answer, degraded, note of the stage."""
    source: Any = router.instances.sources["memory"]
    source.search = Fixed("a b c").search
    context = await router.route("q")
    (step,) = [step for step in context.trace.steps if step.name == "best"]
    assert step.failed
    assert [e.dropped for e in step.lost] == ["best: not among the best 2"]
    return "".join(e.document.id for e in context.envelopes), context.degraded, step.note


@pytest.mark.parametrize("what", ABSENT)
@pytest.mark.case("C18", "K16")
async def test_a_reranker_that_is_not_there_is_skipped_and_the_result_says_why(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The fused order stands, with the same cut, for every question."""
    use, options, module, said = ABSENT[what]
    uninstall(module, monkeypatch)
    with caplog.at_level(logging.WARNING, "contextrouter"):
        async with ContextRouter.from_toml(written(tmp_path, use, options)) as router:
            for _ in range(2):
                ids, degraded, note = await found(router)
                assert (ids, degraded) == ("ab", True)
                assert note.startswith("failed: ")
                assert said in note
    assert said in caplog.text


@pytest.mark.parametrize("what", ABSENT)
@pytest.mark.case("C18")
def test_check_says_which_reranker_is_not_there(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    use, options, module, said = ABSENT[what]
    written(tmp_path, use, options)
    uninstall(module, monkeypatch)
    ran = CommandLine(monkeypatch, capsys)("check", "--json", cwd=tmp_path)
    assert ran.code == 1
    failed = {item["name"]: item["detail"] for item in json.loads(ran.out) if item["status"] == "failed"}
    assert said in failed["best"]


@pytest.mark.case("C18")
async def test_a_service_that_wants_a_key_is_skipped(tmp_path: Path):
    async def refuse(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        return web.json_response({"message": "no api key supplied"}, status=401)

    app = web.Application()
    app.router.add_post("/rerank", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/rerank"
    options = f'url = "{url}"\nallow_private = ["127.0.0.1/32"]'
    async with ContextRouter.from_toml(written(tmp_path, "api", options)) as router:
        ids, degraded, note = await found(router)
    await runner.cleanup()
    assert (ids, degraded) == ("ab", True)
    assert "401" in note


@pytest.mark.parametrize(
    ("use", "options", "module"),
    [
        ("cross_encoder", 'path = "model"\non_error = "raise"', "onnxruntime"),
        (
            "similarity",
            SMALL.format(use="minilm") + '\n[providers.other]\nuse = "memory"\nembedder = "small"',
            "onnxruntime",
        ),
        (
            "llm",
            MODEL.format(use="openai", options='api_key = "k"\n[chat]\nsynthesis_model = "model"'),
            "openai",
        ),
    ],
)
async def test_a_missing_package_that_others_need_still_stops_the_start(
    use: str, options: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A reranker with `on_error = "raise"`, a store's vectors, the answers of a chat."""
    uninstall(module, monkeypatch)
    with pytest.raises(MissingDependency):
        await ContextRouter.from_toml(written(tmp_path, use, options)).open()
