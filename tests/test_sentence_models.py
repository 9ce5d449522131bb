"""The embedder `onnx`: pooling, prefixes, batches and limits as the files of a model's folder say."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from contextrouter.builtin.embedders.onnx import Onnx
from contextrouter.builtin.embedders.onnx_example import FREQUENCIES, model_bytes
from contextrouter.builtin.embedders.sentence_transformers import SentenceTransformers
from contextrouter.errors import MissingDependency, PluginError

WORDS = {"[UNK]": 0, "red": 1, "green": 2, "blue": 3, "[CLS]": 4, "[SEP]": 5, "ask:": 6, "text:": 7}


def write(
    folder: Path, *, special: bool = False, files: dict[str, Any] | None = None, model: bytes | None = None
) -> str:
    """A folder with a model whose token `n` has the state sin(n x FREQUENCIES), and a tokenizer of WORDS."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model or model_bytes())
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 4), ("[SEP]", 5)]
        )
    tokenizer.enable_padding(pad_id=1)  # a state that is not zero, as those of real models
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return str(folder)


async def embedded(texts: Sequence[str], query: bool = False, **keys: Any) -> tuple[Onnx, np.ndarray]:
    """The vectors of texts, and the embedder that made them."""
    embedder = Onnx(**keys)
    await embedder.open()
    try:
        return embedder, np.array(await embedder.embed(texts, query=query))
    finally:
        await embedder.aclose()


def expected(*tokens: int, dimensions: int = 8) -> list[float]:
    """The direction of the mean of the states of these tokens."""
    sums = [math.fsum(math.sin(token * f) for token in tokens) for f in FREQUENCIES][:dimensions]
    length = math.hypot(*sums)
    return [value / length for value in sums]


@pytest.mark.case("NEW-49")
@pytest.mark.parametrize(
    ("pooling", "tokens"), [("auto", (4, 1, 2, 5)), ("mean", (4, 1, 2, 5)), ("cls", (4,)), ("last", (5,))]
)
async def test_pooling_makes_one_vector_of_the_token_states(
    pooling: Any, tokens: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(tmp_path, special=True)
    _, vectors = await embedded(["red green", " "], path=path, pooling=pooling)
    assert vectors[0] == pytest.approx(expected(*tokens), abs=1e-6)
    assert vectors[1].tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, (4,)),
        ({"pooling_mode_lasttoken": True}, (5,)),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, (4, 1, 5)),
        ({"pooling_mode": "cls"}, (4,)),
    ],
)
async def test_a_folder_says_how_its_model_pools(
    config: dict[str, Any], tokens: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(tmp_path, special=True, files={"1_Pooling/config.json": config})
    _, vectors = await embedded(["red"], path=path)
    assert vectors[0] == pytest.approx(expected(*tokens), abs=1e-6)


async def test_prefixes_and_length_are_those_of_the_folder_unless_given(tmp_path: Path) -> None:
    files = {
        "config_sentence_transformers.json": {"prompts": {"query": "ask: ", "document": "text: "}},
        "sentence_bert_config.json": {"max_seq_length": 3},
    }
    path = write(tmp_path, files=files)
    _, question = await embedded(["red green blue"], query=True, path=path)
    _, document = await embedded(["red green blue"], path=path)
    _, bare = await embedded(["red green blue"], query=True, path=path, query_prefix="", max_tokens=8)
    assert question[0] == pytest.approx(expected(6, 1, 2), abs=1e-6)  # blue is the fourth token
    assert document[0] == pytest.approx(expected(7, 1, 2), abs=1e-6)
    assert bare[0] == pytest.approx(expected(1, 2, 3), abs=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "last"])
async def test_a_batch_is_filled_up_and_the_filling_counts_for_nothing(pooling: Any, tmp_path: Path) -> None:
    path = write(tmp_path)
    texts = ["red", "red green blue blue", "", "green blue", "blue"]
    _, alone = await embedded(texts, path=path, pooling=pooling)
    _, together = await embedded(texts, path=path, pooling=pooling, batch_tokens=100, threads=2)
    assert np.abs(alone - together).max() < 1e-6
    last = expected(1, 2, 3, 3) if pooling == "mean" else expected(3)
    assert together[1] == pytest.approx(last, abs=1e-6)


async def test_fewer_dimensions_are_the_first_ones_scaled_again(tmp_path: Path) -> None:
    embedder, vectors = await embedded(["red green"], path=write(tmp_path), dimensions=3)
    assert embedder.dimensions == 3
    assert vectors[0] == pytest.approx(expected(1, 2, dimensions=3), abs=1e-6)


async def test_an_output_of_whole_texts_needs_no_pooling_and_has_dense_layers(tmp_path: Path) -> None:
    inputs = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
    dense = {"modules.json": [{"type": "sentence_transformers.models.Dense"}]}
    path = write(tmp_path, model=model_bytes(inputs, "sentence_embedding"), files=dense)
    _, vectors = await embedded(["red blue"], path=path, pooling="cls")
    assert vectors[0] == pytest.approx(expected(1, 3), abs=1e-6)  # the sum has the direction of the mean


async def test_the_models_name_is_another_one_wherever_its_vectors_are(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny")
    names = [
        (await embedded([], path=path, **keys))[0].model
        for keys in (
            {},
            {"threads": 2, "batch_tokens": 9},
            {"pooling": "cls"},
            {"max_tokens": 9},
            {"dimensions": 4},
            {"document_prefix": "text: "},
        )
    ]
    assert names[0].startswith("tiny@")
    assert names[1] == names[0]
    assert len(set(names[1:])) == 5


def test_every_file_that_changes_the_vectors_counts_for_the_name(tmp_path: Path) -> None:
    """Pooling and tokenizer do, as much as the weights do."""

    class Loaded(list[object]):
        max_seq_length = 8

    def named() -> str:
        embedder = SentenceTransformers(path=str(tmp_path))
        return embedder._name(Loaded([object()]), tmp_path)

    for name in ("1_Pooling", ".cache"):
        (tmp_path / name).mkdir()
    names = [named()]
    for file in ("model.safetensors", "1_Pooling/config.json", "tokenizer.json", "vocab.txt", "spiece.model"):
        (tmp_path / file).write_text(file)
        names.append(named())
    assert len({*names}) == 6
    for file in ("README.md", ".cache/fetched.json", "model.onnx"):
        (tmp_path / file).write_text(file)
    assert named() == names[-1]


@pytest.mark.parametrize(
    ("files", "model", "said"),
    [
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, None, "pooling 'max_tokens'; known"),
        ({"modules.json": [{"type": "sentence_transformers.models.Dense"}]}, None, "a Dense layer behind"),
        ({}, model_bytes(("input_ids", "past_keys")), "asks for the input 'past_keys'"),
        ({}, b"no model", "cannot load"),
        ({"tokenizer.json": {}}, None, "tokenizer.json cannot be read: Model missing"),
        ({"config_sentence_transformers.json": {"prompts": ["a"]}}, None, "`prompts` that are no table"),
        (
            {"config_sentence_transformers.json": {"prompts": {"query": 1}}},
            None,
            "`prompts` that are no table",
        ),
    ],
)
async def test_a_folder_whose_model_would_give_wrong_vectors_is_refused(
    files: dict[str, Any], model: bytes | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(PluginError, match=said):
        await embedded([], path=write(tmp_path, files=files, model=model))


async def test_a_folder_names_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="finds no folder"):
        await embedded([], path=str(tmp_path / "none"))
    (tmp_path / "onnx").mkdir()
    with pytest.raises(PluginError, match=r"finds no model\.onnx or onnx/model\.onnx in"):
        await embedded([], path=str(tmp_path))
    (tmp_path / "onnx" / "model.onnx").write_bytes(model_bytes())
    with pytest.raises(PluginError, match=r"finds no tokenizer\.json in"):
        await embedded([], path=str(tmp_path))
    with pytest.raises(PluginError, match=r"finds no other\.onnx in"):
        await embedded([], path=str(tmp_path), file="other.onnx")
    with pytest.raises(PluginError, match="8 dimensions, and dimensions = 9; give at most 8"):
        await embedded([], path=write(tmp_path), dimensions=9)
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(PluginError, match="is no JSON"):
        await embedded([], path=str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"path": " "}, "path is empty"),
        ({"pooling": "max"}, "Give auto, mean, cls or last"),
        ({"max_tokens": 2}, "max_tokens 2 is out of range"),
        ({"threads": 0}, "threads 0 is out of range"),
        ({"dimensions": -1}, "dimensions -1 is out of range"),
        ({"score_weights": {"vector": -1.0}}, "score_weights.vector -1.0 is no weight"),
        ({"unrelated": 1.0}, "unrelated 1.0 is no cosine below 1"),
    ],
)
def test_wrong_settings_of_a_sentence_model_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Onnx(**{"path": "model", **keys})


def test_weights_of_the_settings_take_the_place_of_those_of_the_class() -> None:
    given = Onnx(path="m", score_weights={"vector": 0.4}, leg_weights={"vector": 0.2}, unrelated=0.7)
    assert (given.score_weights, given.leg_weights, given.unrelated) == (
        {"vector": 0.4},
        {"vector": 0.2},
        0.7,
    )
    assert Onnx(path="m").score_weights == {"vector": 1.0, "keywords": 0.15}


@pytest.mark.parametrize(
    ("module", "name", "keys", "package"),
    [
        ("fastembed", "FastEmbed", {}, "fastembed"),
        ("sentence_transformers", "SentenceTransformers", {"hub": "a/b"}, "sentence-transformers"),
    ],
)
async def test_large_packages_are_named_with_their_extra_where_they_are_not_installed(
    module: str, name: str, keys: dict[str, Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted, *more: None if wanted == module else real(wanted, *more)
    )
    embedder = getattr(importlib.import_module(f"contextrouter.builtin.embedders.{module}"), name)(**keys)
    with pytest.raises(MissingDependency, match=rf"'{package}'.*contextrouter-rag\[{package}\]"):
        await embedder.open()


@pytest.mark.parametrize("keys", [{}, {"path": "a", "hub": "b/c"}])
def test_sentence_transformers_takes_a_folder_or_a_repository(keys: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="path and hub are both given, or neither"):
        SentenceTransformers(**keys)
