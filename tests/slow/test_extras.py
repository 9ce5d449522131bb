"""Each extra alone, in a fresh environment, can do what its page says: its plugins obey the laws of their
kinds, and its commands run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).parents[2]
EXTRAS = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
DEVELOPMENT = {"test", "quality", "docs", "check"}

PLUGINS = """
import sys
from importlib.metadata import entry_points
from contextrouter.testing import subject_of, verdict

for argument in sys.argv[1:]:
    kind, _, name = argument.partition("/")
    (entry_point,) = entry_points(group=f"contextrouter.{kind}", name=name)
    broken = verdict(subject_of(entry_point.load())).broken
    assert not broken, (argument, broken)
"""
DOCUMENTS = """
from pathlib import Path
from docx import Document
document = Document()
document.add_paragraph("An otter swims.")
Path("notes").mkdir()
document.save("notes/otter.docx")
import asyncio
from contextrouter import ContextRouter

async def main():
    settings = {"connectors": {"files": {"path": "notes"}}}
    async with ContextRouter(settings) as router:
        fetched = [item async for item in router.instances.sources["files"].crawl()]
    assert "An otter swims." in str(fetched), fetched

asyncio.run(main())
"""
CACHE = """
import asyncio, sys
from contextrouter import ContextRouter

async def main():
    settings = {
        "providers": {"memory": {"documents": [{"id": "a", "content": "An otter swims."}]}},
        "cache": {"tier": sys.argv[1], "path": "cache", "url": "redis://127.0.0.1:1"},
    }
    for _ in range(2):
        async with ContextRouter(settings) as router:
            context = await router.route("otter")
            assert "An otter swims." in context.text
            await asyncio.sleep(0.5)  # the outer tier is written behind the answer
    assert context.cached == (sys.argv[1] == "disk"), context.cached

asyncio.run(main())
"""
POSTGRES = """
import asyncio, sys
from contextrouter import ContextRouter, AllSourcesFailed

async def main():
    settings = {"providers": {"lib": {"use": "postgres", "dsn": "postgresql://127.0.0.1:1/x", "embedder": ""}}}
    async with ContextRouter(settings) as router:
        try:
            await router.route("otter")
        except AllSourcesFailed as error:
            assert "connection refused" in str(error), error
        else:
            raise AssertionError("there is no server")

asyncio.run(main())
"""
SERVE = """
import subprocess, sys, urllib.request
process = subprocess.Popen(["contextrouter", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
url = process.stdout.readline().split()[0]
with urllib.request.urlopen(url + "/healthz") as response:
    assert response.status == 200
process.terminate()
assert process.wait(60) == 0
"""
MCP = """
import json, subprocess
process = subprocess.Popen(
    ["contextrouter", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\\n")
process.stdin.flush()
answer = json.loads(process.stdout.readline())
assert "result" in answer, answer
process.stdin.close()
assert process.wait(60) == 0
"""
ANSWER = """
import asyncio
from contextrouter import ContextRouter

async def main():
    settings = {"providers": {"memory": {"documents": [{"id": "a", "content": "An [old] otter swims."}]}}}
    async with ContextRouter(settings) as router:
        answer = await router.answer("Does an otter swim?")
    assert answer.text.endswith("[1]"), answer

asyncio.run(main())
"""
SCHEMAS = """
from contextrouter import Document, schemas
assert schemas.Document.model_validate(Document(id="a", content="An otter swims.")).id == "a"
"""
TOKEN = """
import time, jwt
from pathlib import Path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from contextrouter.server.signed_tokens import SignedTokens
from contextrouter.settings import Jwt

key = Ed25519PrivateKey.generate()
Path("key.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
tokens = SignedTokens(Jwt(keys_file="key.pem", issuer="i", audience="a"))
claims = {"iss": "i", "aud": "a", "sub": "anna", "exp": time.time() + 60, "ceiling": "internal"}
assert tokens.verify(jwt.encode(claims, key, "EdDSA")).scope.ceiling == "internal"
"""
TRACER = """
from opentelemetry import trace
from contextrouter.runtime.spans import tracer
assert tracer() is None  # the interface alone sets no provider
"""
RAY = """
import asyncio
from contextlib import AsyncExitStack
from contextrouter.ingest.runners.worker_messages import Setup, decode_reply, encode_setup
from contextrouter.ingest.runners.ray_cluster import RayWorker, connect

async def main():
    async with AsyncExitStack() as stack:
        await connect("local", stack)
        worker = RayWorker(encode_setup(Setup(tables={})))
        assert decode_reply(await worker.start()).error == ""
        await worker.stop()

asyncio.run(main())
"""
EVALUATE = """
import subprocess, sys
from pathlib import Path
Path("judged.jsonl").write_text('{"question": "otter", "relevant": ["a"]}\\n')
command = ["contextrouter", "eval", "judged.jsonl", *sys.argv[1:]]
subprocess.run(command, check=True)
"""
FASTEMBED = """
import asyncio
from pathlib import Path

from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

from contextrouter.builtin.embedders import onnx_example
from contextrouter.builtin.embedders.fastembed import FastEmbed
from contextrouter.builtin.embedders.onnx import Onnx
from contextrouter.testing import subject_of, verdict

folder = Path("tiny")
folder.mkdir()
onnx_example.write_model(folder)
(folder / "config.json").write_text('{"pad_token_id": 0}')
(folder / "tokenizer_config.json").write_text('{"model_max_length": 64, "pad_token": "[PAD]"}')
(folder / "special_tokens_map.json").write_text('{"pad_token": "[PAD]"}')
source = ModelSource(hf="tiny/sines")
TextEmbedding.add_custom_model(
    model="tiny/sines", pooling=PoolingType.MEAN, normalization=True, sources=source, dim=8, model_file="model.onnx"
)

def make():
    return FastEmbed(name="tiny/sines", path="tiny")

broken = verdict(subject_of(FastEmbed, make)).broken
assert not broken, broken

async def vectors(embedder):
    await embedder.open()
    try:
        return await embedder.embed(["the moon", "a longer text about the moon"])
    finally:
        await embedder.aclose()

ours = asyncio.run(vectors(Onnx(path="tiny")))
for embedder in (make(), FastEmbed(name="tiny/sines", path="tiny", batch_tokens=100)):
    for mine, theirs in zip(ours, asyncio.run(vectors(embedder)), strict=True):
        assert abs(mine - theirs).max() < 1e-6
for embedder, said in (
    (FastEmbed(name="no/such"), "not supported"),
    (FastEmbed(name="tiny/sines", path="none"), "finds no folder 'none'"),
    (FastEmbed(name="tiny/sines", path="tiny", dimensions=9), "at most 8"),
    (FastEmbed(download=False), "download = true"),
):
    try:
        asyncio.run(vectors(embedder))
    except Exception as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
"""
SENTENCE_TRANSFORMERS = """
import asyncio
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

from contextrouter.builtin.embedders import onnx_example
from contextrouter.builtin.embedders.sentence_transformers import SentenceTransformers
from contextrouter.testing import subject_of, verdict

sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
BertModel(BertConfig(max_position_embeddings=64, **sizes)).save_pretrained("bert")
tokenizer = Path(onnx_example.__file__).parents[2] / "data" / "static" / "tokenizer.json"
BertTokenizerFast(tokenizer_file=str(tokenizer)).save_pretrained("bert")
prompts = {"query": "ask: ", "document": "text: "}
layers = [Transformer("bert", max_seq_length=64), Pooling(16, "mean")]
SentenceTransformer(modules=layers, prompts=prompts, device="cpu").save("model")

broken = verdict(subject_of(SentenceTransformers, lambda: SentenceTransformers(path="model"))).broken
assert not broken, broken

async def vectors(query, **keys):
    embedder = SentenceTransformers(**keys)
    await embedder.open()
    try:
        return embedder, (await embedder.embed(["the moon"], query=query))[0]
    finally:
        await embedder.aclose()

reference = SentenceTransformer("model", device="cpu")
for query, prompt, keys in (
    (False, "text: ", {}),
    (True, "ask: ", {}),
    (True, "", {"query_prefix": ""}),
    (False, "text: ", {"dimensions": 8}),
):
    row = reference.encode(["the moon"], prompt=prompt)[0][: keys.get("dimensions")]
    embedder, vector = asyncio.run(vectors(query, path="model", **keys))
    assert np.abs(row / np.linalg.norm(row) - vector).max() < 1e-6, keys
    assert embedder.dimensions == len(row)
Path("model/model.safetensors").unlink()
import torch
torch.save(reference[0].auto_model.state_dict(), "model/pytorch_model.bin")
for keys, said in (
    ({"path": "model"}, "safetensors"),
    ({"path": "none"}, "finds no folder 'none'"),
    ({"hub": "a/b", "download": False}, "download = true"),
):
    try:
        asyncio.run(vectors(False, **keys))
    except Exception as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
"""
SETTINGS = '[providers.memory]\ndocuments = [{ id = "a", content = "An otter swims." }]\n'

Command = tuple[str, ...]
RUN: Mapping[str, Command] = {  # extra -> the arguments of its Python, or of `contextrouter`
    "cli": ("contextrouter", "route", "otter", "--text"),
    "sqlite": ("-c", PLUGINS, "providers/sqlite", "facts/sqlite"),
    "minilm": ("-c", PLUGINS, "embedders/minilm"),
    "onnx": ("-c", PLUGINS, "embedders/onnx"),
    "fastembed": ("-c", FASTEMBED),
    "sentence-transformers": ("-c", SENTENCE_TRANSFORMERS),
    "cross-encoder": ("-c", PLUGINS, "stages/cross_encoder"),
    "static": ("-c", PLUGINS, "embedders/static"),
    "markdown": ("-c", PLUGINS, "transforms/headings", "transforms/chunk"),
    "rss": ("-c", PLUGINS, "connectors/rss"),
    "web": ("-c", PLUGINS, "connectors/web"),
    "http": ("-c", PLUGINS, "connectors/http_api", "stages/api", "embedders/http"),
    "documents": ("-c", DOCUMENTS),
    "code": ("-c", PLUGINS, "transforms/code"),
    "language": ("-c", PLUGINS, "transforms/language", "interpreters/language"),
    "spacy": ("-c", "import spacy; from contextrouter.builtin.transforms.entities import Entities"),
    "eval": ("-c", EVALUATE),
    "plot": ("-c", EVALUATE, "--picture", "figure.svg"),
    "openai": ("-c", PLUGINS, "embedders/openai", "generators/openai"),
    "anthropic": ("-c", PLUGINS, "generators/anthropic"),
    "answer": ("-c", ANSWER),
    "mcp": ("-c", MCP),
    "jwt": ("-c", TOKEN),
    "otel": ("-c", TRACER),
    "schemas": ("-c", SCHEMAS),
    "serve": ("-c", SERVE),
    "vertex": (
        "-c",
        PLUGINS,
        "embedders/vertex",
        "generators/vertex",
        "providers/vertex_search",
        "stages/vertex",
    ),
    "disk": ("-c", CACHE, "disk"),
    "redis": ("-c", CACHE, "redis"),
    "postgres": ("-c", POSTGRES),
    "ray": ("-c", RAY),
    "embedded-postgres": ("-c", PLUGINS, "providers/postgres", "facts/postgres"),
    "local": ("contextrouter", "demo"),
    "all": ("contextrouter", "demo"),
}


def test_every_extra_is_used():
    assert set(RUN) == set(EXTRAS) - DEVELOPMENT


@pytest.mark.case("OPS-08")
@pytest.mark.parametrize("extra", RUN)
def test_an_extra_alone_can_do_what_its_page_says(extra: str, tmp_path: Path):
    started = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bin_ = tmp_path / "venv" / "bin"
    environment |= {"PATH": f"{bin_}{os.pathsep}{environment['PATH']}", "COLUMNS": "200"}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [bin_ / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*install, f"{ROOT}[{extra}]"], check=True, env=environment)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    command = RUN[extra]
    program = [] if command[0] == "contextrouter" else [bin_ / "python"]
    ran = subprocess.run(
        [*program, *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    sys.stderr.write(f"\n{extra}: {time.monotonic() - started:.0f} s\n")
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-4_000:]
