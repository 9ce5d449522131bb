"""The embedders: unit vectors, one per text, the same alone or in a batch; blank texts are zeros and go
nowhere.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from contextrouter import ContextRouter
from contextrouter.builtin.embedders.minilm import MiniLM
from contextrouter.builtin.embedders.openai import OpenAI
from contextrouter.builtin.embedders.static import Static
from contextrouter.errors import ContractError, MissingDependency, PluginError


@asynccontextmanager
async def opened(embedder: Any) -> AsyncIterator[Any]:
    """The embedder, open."""
    await embedder.open()
    try:
        yield embedder
    finally:
        await embedder.aclose()


def table(folder: Path, *, name: str = "tiny", weights: list[float] | None = None) -> Path:
    """A model2vec folder of three words: red = (1, 0), green = (0, 1), blue = (3, 4)."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1, "green": 2, "blue": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    tensors = {"embeddings": np.array([[9, 9], [1, 0], [0, 1], [3, 4]], dtype=np.int8)}
    if weights:
        tensors["weights"] = np.array(weights, dtype=np.float32)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"normalize": True, "name": name}))
    return folder


async def test_static_is_the_direction_of_the_mean_of_the_token_vectors(tmp_path: Path) -> None:
    async with opened(Static(path=str(table(tmp_path / "t")))) as embedder:
        assert embedder.dimensions == 2
        red, blue, both, unknown = await embedder.embed(["red", "blue", "red green strange", "strange"])
    assert red.tolist() == [1.0, 0.0]
    assert blue == pytest.approx([0.6, 0.8])
    assert both == pytest.approx([0.5**0.5, 0.5**0.5])  # the unknown word has no vector
    assert unknown.tolist() == [0.0, 0.0]


async def test_the_table_of_a_settings_file_is_looked_for_beside_it(tmp_path: Path) -> None:
    table(tmp_path / "t")
    (tmp_path / "settings.toml").write_text('[embedders.tiny]\nuse = "static"\npath = "t"\n')
    embedder = ContextRouter.from_toml(tmp_path / "settings.toml").instances.embedders["tiny"]
    async with opened(embedder):
        assert embedder.dimensions == 2


async def test_static_weighs_tokens_when_the_table_does(tmp_path: Path) -> None:
    async with opened(Static(path=str(table(tmp_path / "t", weights=[0, 3, 4, 0])))) as embedder:
        (vector,) = await embedder.embed(["red green"])
    assert vector == pytest.approx([0.6, 0.8])  # 3 of red, 4 of green


async def test_static_reads_tables_as_model2vec_does() -> None:
    from model2vec import StaticModel

    texts = ["A cat sat on the mat.", "Rank fusion of several lists", "naïve café [CLS]"]
    async with opened(Static()) as embedder:
        ours = np.array(await embedder.embed(texts))
        theirs = StaticModel.from_pretrained(embedder.folder).encode(texts)
    assert np.abs(ours - theirs).max() < 1e-6


async def test_static_vectors_are_float32_of_length_one() -> None:
    async with opened(Static()) as embedder:
        vectors = await embedder.embed(["one", "a much longer text about one thing or another"], query=True)
    for vector in vectors:
        assert vector.shape == (256,)
        assert vector.dtype == np.float32
        assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=1e-6)


async def test_static_gives_zeros_for_blank_text() -> None:
    async with opened(Static()) as embedder:
        vectors = await embedder.embed(["", " \n", "\u200b"])
    assert all(not np.any(vector) for vector in vectors)
    assert len(vectors) == 3


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=60), max_size=9), st.integers(1, 4))
def test_static_embeds_a_batch_as_it_embeds_each_alone(texts: list[str], batch: int) -> None:
    async def compare() -> None:
        async with opened(Static(batch_size=batch)) as embedder:
            together = await embedder.embed(texts)
            alone = [(await embedder.embed([text]))[0] for text in texts]
        assert all(np.array_equal(a, b) for a, b in zip(together, alone, strict=True))

    asyncio.run(compare())


async def test_static_puts_paraphrases_nearer_than_other_texts() -> None:
    async with opened(Static()) as embedder:
        question, near, far = await embedder.embed(
            ["How do I cook rice?", "the way to boil rice in a pot", "The stock market fell on Monday"]
        )
    assert float(question @ near) > max(0.4, float(question @ far) + 0.15)


async def test_static_reads_a_text_to_its_end() -> None:
    async with opened(Static()) as embedder:
        short, long = await embedder.embed(["cat", "the " * 2000 + "cat " * 200_000])
    assert float(short @ long) > 0.95


async def test_static_names_the_table_it_was_opened_with(tmp_path: Path) -> None:
    names = []
    for number, weights in enumerate(([1.0, 1, 1, 1], [1.0, 1, 1, 2])):
        async with opened(Static(path=str(table(tmp_path / f"t{number}", weights=weights)))) as embedder:
            names.append(embedder.model)
    assert all(name.startswith("tiny@") and len(name) == 17 for name in names)
    assert names[0] != names[1]


async def test_static_opens_again_after_closing_and_in_another_loop() -> None:
    embedder = Static()
    async with opened(embedder):
        first = await embedder.embed(["cat"])
    second = await asyncio.to_thread(lambda: asyncio.run(_embed_once(embedder)))
    assert np.array_equal(first[0], second)


async def _embed_once(embedder: Static) -> Any:
    async with opened(embedder):
        return (await embedder.embed(["cat"]))[0]


async def test_static_refuses_a_folder_without_a_table_and_asks_no_network(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "such"):
        with pytest.raises(
            ValueError, match=r"has no config\.json, model\.safetensors, tokenizer\.json\. Give the path"
        ):
            await Static(path=str(path)).open()


async def test_embedders_refuse_to_work_before_they_are_open() -> None:
    for embedder in (Static(), OpenAI.example()):
        with pytest.raises(ContractError, match=r"is not open\. Call open"):
            await embedder.embed(["cat"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batch_size": 0}, "batch_size 0 is not a positive number"),
        ({"threads": 0}, "threads 0 is out of range; give 1 to 64"),
        ({"threads": 65}, "threads 65 is out of range; give 1 to 64"),
    ],
)
def test_static_refuses_numbers_out_of_range(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Static(**wrong)


@pytest.mark.parametrize(
    ("module", "cls", "package"), [("static", "Static", "safetensors"), ("openai", "OpenAI", "openai")]
)
def test_a_missing_package_is_named_with_its_extra(module: str, cls: str, package: str) -> None:
    code = f"""
import asyncio, importlib.util, sys
from contextrouter.errors import MissingDependency
from contextrouter.builtin.embedders.{module} import {cls}
assert not {{"numpy", "safetensors", "openai", "tokenizers"}} & set(sys.modules)
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {package!r} else find(name, *rest)
try:
    asyncio.run({cls}.example().open())
except MissingDependency as error:
    assert (error.package, error.extra) == ({package!r}, {module!r}), error
else:
    raise SystemExit(2)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert issubclass(MissingDependency, Exception)


Answer = Callable[[dict[str, Any]], web.Response]


def vectors(body: dict[str, Any]) -> web.Response:
    """An embeddings answer, last text first: the vector of a text is (its length, 0, 1)."""
    data = [
        {"object": "embedding", "index": i, "embedding": [len(t), 0, 1]} for i, t in enumerate(body["input"])
    ]
    return reply(data[::-1])


def reply(data: Any, status: int = 200) -> web.Response:
    """An answer in the form of the embeddings API."""
    return web.json_response({"object": "list", "model": "m", "data": data, "usage": {}}, status=status)


@asynccontextmanager
async def served(answer: Answer, **options: Any) -> AsyncIterator[tuple[OpenAI, list[dict[str, Any]]]]:
    """An embedder of 3 dimensions before a server on this machine, and the bodies the server got."""
    bodies: list[dict[str, Any]] = []

    async def embeddings(request: web.Request) -> web.Response:
        bodies.append({**await request.json(), "_key": request.headers.get("Authorization")})
        return answer(bodies[-1])

    app = web.Application()
    app.router.add_post("/v1/embeddings", embeddings)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    options = {
        "model": "m",
        "dimensions": 3,
        "base_url": f"http://127.0.0.1:{port}/v1",
        "request_timeout": 5.0,
    } | options
    try:
        async with opened(OpenAI(**options)) as embedder:
            yield embedder, bodies
    finally:
        await runner.cleanup()


async def test_openai_orders_by_index_and_scales_to_length_one() -> None:
    async with served(vectors) as (embedder, bodies):
        first, second = await embedder.embed(["abc", "a"])
    assert first == pytest.approx([3 / 10**0.5, 0, 1 / 10**0.5])
    assert second == pytest.approx([0.5**0.5, 0, 0.5**0.5])
    assert bodies[0]["model"] == "m"
    assert "dimensions" not in bodies[0]


@pytest.mark.case("RER-02")
async def test_blank_texts_are_never_sent_and_get_zeros() -> None:
    async with served(vectors) as (embedder, bodies):
        answer = await embedder.embed(["", "abc", "  \n", "a"])
        assert await embedder.embed([" "]) == [[0.0, 0.0, 0.0]]
    assert [body["input"] for body in bodies] == [["abc", "a"]]
    assert answer[0] == answer[2] == [0.0, 0.0, 0.0]
    assert answer[1][0] > answer[3][0] > 0


async def test_openai_sends_batches_prefixes_dimensions_and_key_as_set() -> None:
    options = {
        "batch_size": 2,
        "query_prefix": "q: ",
        "document_prefix": "d: ",
        "send_dimensions": True,
        "api_key": "sk-12345",
    }
    async with served(vectors, **options) as (embedder, bodies):
        await embedder.embed(["a", "b", "c"])
        await embedder.embed(["a"], query=True)
    assert [body["input"] for body in bodies] == [["d: a", "d: b"], ["d: c"], ["q: a"]]
    assert {body["dimensions"] for body in bodies} == {3}
    assert bodies[0]["_key"] == "Bearer sk-12345"


@pytest.mark.case("PG-21")
async def test_a_vector_of_another_length_is_refused_naming_both() -> None:
    async with served(lambda body: reply([{"index": 0, "embedding": [1.0] * 1536}])) as (embedder, _):
        with pytest.raises(
            PluginError, match=r"vectors of 1536 numbers where dimensions = 3\. Set dimensions = 1536"
        ):
            await embedder.embed(["a"])


async def test_openai_counts_the_vectors_it_got() -> None:
    async with served(lambda body: reply([{"index": 0, "embedding": [1, 0, 0]}])) as (embedder, _):
        with pytest.raises(PluginError, match="returned 1 vectors for 2 texts"):
            await embedder.embed(["a", "b"])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([{"index": 1, "embedding": [1, 0, 0]}], "numbered its 1 vectors"),
        ([{"index": 0, "embedding": [0, 0, 0]}], "no direction"),
        ([{"index": 0, "embedding": None}], "TypeError"),
        ([{"index": None, "embedding": [1, 0, 0]}], "TypeError"),
        ([{"index": 0, "embedding": ["x", 0, 0]}], "ValueError"),
        ([{"index": 0}], "Error"),
        ([], "returned 0 vectors for 1 texts"),
        (None, "Error"),
    ],
)
async def test_openai_trusts_no_answer(data: Any, said: str) -> None:
    async with served(lambda body: reply(data)) as (embedder, _):
        with pytest.raises(PluginError, match=said) as caught:
            await embedder.embed(["a"])
    assert "Model 'm' at http://127.0.0.1" in str(caught.value)


@pytest.mark.parametrize("body", ["<html>no</html>", "{", "null", "[]"])
async def test_openai_refuses_an_answer_that_is_no_json_object(body: str) -> None:
    async with served(lambda _: web.Response(text=body, content_type="application/json")) as (embedder, _):
        with pytest.raises(PluginError, match="Model 'm' at"):
            await embedder.embed(["a"])


@pytest.mark.case("CFG-10")
async def test_a_refusal_never_shows_the_key() -> None:
    key = "sk-very-secret-0123456789"

    def refuse(body: dict[str, Any]) -> web.Response:
        return web.json_response(
            {"error": {"message": f"Incorrect API key provided: {body['_key']}"}}, status=401
        )

    async with served(refuse, api_key=key) as (embedder, _):
        with pytest.raises(PluginError) as caught:
            await embedder.embed(["a"])
    assert key not in str(caught.value)
    assert "401" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_openai_says_so_when_nobody_answers() -> None:
    async with opened(
        OpenAI(model="m", dimensions=8, base_url="http://127.0.0.1:9/v1", request_timeout=1.0)
    ) as embedder:
        with pytest.raises(PluginError, match=r"127\.0\.0\.1:9/v1 .*Check base_url"):
            await embedder.ping()


async def test_openai_needs_a_key_or_a_server() -> None:
    with pytest.raises(PluginError, match="api_key is empty"):
        await OpenAI(model="text-embedding-3-small", dimensions=1536).open()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": " "}, "model is empty"),
        ({"dimensions": 0}, "dimensions 0 is not a positive number"),
        ({"batch_size": -1}, "batch_size -1 is not"),
        ({"request_timeout": float("nan")}, "request_timeout nan is not"),
        ({"base_url": "localhost:80"}, "base_url 'localhost:80' is no HTTP address"),
    ],
)
def test_openai_refuses_wrong_settings(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OpenAI(**({"model": "m", "dimensions": 3} | wrong))


async def test_minilm_knows_paraphrases_and_gives_a_text_one_vector_whatever_it_is_beside() -> None:
    texts = ["How do I change my password?", "resetting login credentials", "The moon raises the tides.", " "]
    async with opened(MiniLM(threads=2)) as embedder:
        together = np.array(await embedder.embed(texts))
        (alone,) = await embedder.embed(texts[:1])
        (long, cut) = await embedder.embed(["tide " * 254, "tide " * 254 + "moon"])
    assert embedder.model.startswith("all-MiniLM-L6-v2-int8@")
    assert together.shape == (4, 384)
    assert np.linalg.norm(together[:3], axis=1) == pytest.approx(1.0, abs=1e-5)
    assert not together[3].any()
    assert together[0] @ together[1] > together[0] @ together[2] + 0.3
    assert alone.tolist() == together[0].tolist()
    assert long.tolist() == cut.tolist()  # 254 tokens and the two that begin and end


@pytest.mark.parametrize("keys", [{"max_tokens": 2}, {"max_tokens": 513}, {"threads": 0}, {"threads": 65}])
def test_minilm_refuses_numbers_out_of_range(keys: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(keys.values())))):
        MiniLM(**keys)
