"""Tiny model and local server for the examples of rerankers."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b85decode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from contextrouter.builtin.shared.loopback_server import Loopback
from contextrouter.contracts import Completion, Embedder, Generator
from contextrouter.model import Vector
from contextrouter.text.analysis import words

HOST = "rerank.example"
_TOKENIZER = Path(__file__).parents[2] / "data" / "static" / "tokenizer.json"
_MODEL = (
    b"c-nnaU2oGc6s_~IBv)EnJPlR}knjsAPuqAwdjZA}Ql-66@v@i7CGKjqahk+tgQxLN_!;~>uI-jpWFimFy~pR|o}4&odiFbk7m!J{HhL<HmWHyJv*-hFb)G?>"
    b"t0VG@1aJfvhmhZ%Qo>pGMYXjN;)mGTIiX~>yK?}91DVmN<)vWp$J+1}JO|g(*sc!@dIf!5Erpuu?`z=<#kOj@%$LyTS_`FRrKTlsmo&0#m-y5>jOVgxHH~ko"
    b"rkJthQzN(*4I1(YjqI(fehl6KxTn*gIA-CcSpfws!HFm-Ja!0SrNl-+1EpCwF*6JT%dNh?*Vljbwa1<SDSXC3VRoY&fzJzP8X7I6e$DnSxwe`SxZcY`ELk$y"
    b"sL&4f&XW_J;1sEFvTK0UG+1mV=YXaEh@mni%RY<3d=(Q@<^xEVLaYl}wmy*@m7W?ELLL8?dkBu>J%m`|IDU(v+9_ZGJP8Zl2o_$*Zy12@AQtj^p=nUQ*(QS}"
    b"MDxltbZ=E%OWnF`{pW1+gOm)Db8BjxlAgcr!P9XXY{5qel5>9;#!>I?=S4nnkhO?F@9yoE<2+cX_dXvw$Qf{?cURAL|C%B6(}V(q_z&1cU9rybe30|cVefEe"
    b"BiOtz9l(A{Xy*5V6x~2?xc>(YP~uP"
)
"""An ONNX model of 25 operators: 8 x the share of the first text's tokens that the second has, less 4."""


def write_model(folder: Path) -> None:
    """Write `model.onnx` and `tokenizer.json`."""
    (folder / "model.onnx").write_bytes(zlib.decompress(b85decode(_MODEL)))
    (folder / "tokenizer.json").write_bytes(_TOKENIZER.read_bytes())


def word_share(question: str, text: str) -> float:
    """The share of a question's words that a text has."""
    terms = {*words(question)}
    return len(terms.intersection(words(text))) / len(terms) if terms else 0.0


class HashedWords(Embedder):
    """Vectors of 64 places, to which words are hashed."""

    dimensions, model = 64, "words"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """Counts of words."""
        vectors: list[Vector] = []
        for text in texts:
            vector = [0.0] * self.dimensions
            for word in words(text):
                vector[sha256(word.encode()).digest()[0] % self.dimensions] += 1.0
            vectors.append(vector)
        return vectors


class Chooser(Generator):
    """Ranks the numbered passages by the words they share with the question; equal ones by their text."""

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """An object with the numbers."""
        prompt = messages[-1]["content"]
        question = prompt.partition("\n")[0]
        passages = re.findall(r"^\[(\d+)\] (.*)$", prompt, re.M)
        ranked = sorted(passages, key=lambda passage: (-word_share(question, passage[1]), passage[1]))
        data = {"ranking": [int(number) for number, _ in ranked]}
        return Completion(text=json.dumps(data), data=data, model="chooser")


class RerankServer(Loopback):
    """Answers `POST /rerank` as Cohere does."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []  # the bodies that came, oldest first

    async def open(self) -> dict[str, tuple[str, int]]:
        """Listen; return where `HOST` is."""
        return {HOST: ("127.0.0.1", await self.listen())}

    def answer(self, path: str, body: bytes) -> tuple[bytes, bytes]:
        """Scores, best first."""
        request = json.loads(body)
        self.requests.append(request)
        results = [
            {"index": n, "relevance_score": word_share(request["query"], text)}
            for n, text in enumerate(request["documents"])
        ]
        results.sort(key=lambda item: -item["relevance_score"])
        return b"application/json", json.dumps({"results": results}).encode()
