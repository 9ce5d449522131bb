"""The embedder `vertex`: embeddings of Vertex AI, text-embedding and gemini-embedding models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, get_args

from contextrouter.builtin.embedders.prediction_server import PredictionServer
from contextrouter.builtin.shared.concurrent_calls import run_together
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.builtin.shared.google_cloud.cloud_options import (
    MOST_NUMBERS,
    CloudOptions,
    check_above_zero,
    check_name,
)
from contextrouter.builtin.shared.google_cloud.google_services import vertex_ai
from contextrouter.contracts import Embedder, FilePath
from contextrouter.errors import PluginError
from contextrouter.model import Vector
from contextrouter.vectors import direction

Task = Literal[
    "RETRIEVAL_QUERY",
    "RETRIEVAL_DOCUMENT",
    "SEMANTIC_SIMILARITY",
    "CLASSIFICATION",
    "CLUSTERING",
    "QUESTION_ANSWERING",
    "FACT_VERIFICATION",
    "CODE_RETRIEVAL_QUERY",
]
MOST_TEXTS, MOST_TOKENS, LONGEST_TEXT = 250, 20_000, 2_048  # of a request; tokens of one text
_ONE_TEXT = ("gemini-embedding-2",)  # models whose requests hold one text: several would become one vector
_AT_ONCE = 8  # requests


class VertexEmbedder(Embedder):
    """Embeds texts with `model` of Vertex AI as unit vectors of `dimensions` floats.

    Up to `batch_size` texts go into one request, and no more than 20,000 tokens by a careful guess.
    `query_task` and `document_task` are the task types of questions and of texts. The service cuts texts that
    are too long for the model; with `cut_long_texts = false` they are errors. A blank text is never sent and
    gets a vector of zeros. `request_timeout` is in seconds, for one request. The other keys are those of the
    provider `vertex`.
    """

    leg_weights: Mapping[str, float] = {"vector": 1.0, "keywords": 0.5}

    def __init__(
        self,
        *,
        model: str = "gemini-embedding-001",
        dimensions: int = 768,
        project: str = "",
        location: str = "us-central1",
        batch_size: int = MOST_TEXTS,
        query_task: Task = "RETRIEVAL_QUERY",
        document_task: Task = "RETRIEVAL_DOCUMENT",
        cut_long_texts: bool = True,
        request_timeout: float = 10.0,
        credentials_file: FilePath = "",
        endpoint: str = "",
    ) -> None:
        check_name("model", model)
        check_above_zero("dimensions", dimensions, MOST_NUMBERS)
        check_above_zero("batch_size", batch_size, MOST_TEXTS)
        for key, task in (("query_task", query_task), ("document_task", document_task)):
            if task not in get_args(Task):
                raise ValueError(f"{key} {task!r} is no task type. Give one of {', '.join(get_args(Task))}.")
        self.model, self.dimensions = model, dimensions
        self._location, self._batch_size = location, batch_size
        self._tasks, self._cut = {True: query_task, False: document_task}, cut_long_texts
        options = CloudOptions(project, location, credentials_file, endpoint, request_timeout).check()
        self._connection = CloudConnection(vertex_ai(location), options, "Embedder 'vertex'")
        self._client: Any = None

    @classmethod
    def example(cls) -> Self:
        """An instance with a server of its own on this machine, which runs from open() to aclose()."""
        embedder = cls(dimensions=8)
        embedder._connection.server = PredictionServer()
        return embedder

    async def open(self) -> None:
        """Connect. Raises MissingDependency, and PluginError without a project or working credentials."""
        if self._connection.is_open:
            return
        await self._connection.open()
        self._client = self._connection.client("prediction_service")
        self._connection.resource = (
            f"projects/{self._connection.project}/locations/{self._location}"
            f"/publishers/google/models/{self.model}"
        )

    async def aclose(self) -> None:
        """Close the connection."""
        self._client = None
        await self._connection.aclose()

    async def ping(self) -> None:
        """Embed one word. Raises PluginError when the service does not answer as it should."""
        await self.embed(["ping"], query=True)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        """One vector per text: `dimensions` floats of length 1, or zeros for a blank text.

        Raises PluginError when the service fails, and when the number or the length of its vectors is not
        what was asked for.
        """
        self._connection.check_home()
        vectors: list[Vector] = [[0.0] * self.dimensions for _ in texts]
        filled = [number for number, text in enumerate(texts) if text.strip()]
        # Lone surrogates, which no message can carry, become "?".
        clean = {number: texts[number].encode("utf-8", "replace").decode() for number in filled}
        single = self.model.startswith(_ONE_TEXT)
        batches = [[number] for number in filled] if single else self._batches(clean)
        ask = self._embed_content if single else self._predict
        calls = [partial(ask, [clean[n] for n in batch], self._tasks[query]) for batch in batches]
        for batch, answers in zip(batches, await run_together(calls, _AT_ONCE), strict=True):
            for number, vector in zip(batch, self._check_vectors(answers, len(batch)), strict=True):
                vectors[number] = vector
        return vectors

    def _batches(self, texts: Mapping[int, str]) -> list[list[int]]:
        batches: list[list[int]] = []
        tokens = 0
        for number, text in texts.items():
            # In no script does a token hold less than two bytes of a long text.
            size = min(LONGEST_TEXT, len(text.encode()) // 2 + 1)
            if not batches or len(batches[-1]) >= self._batch_size or tokens + size > MOST_TOKENS:
                batches.append([])
                tokens = 0
            batches[-1].append(number)
            tokens += size
        return batches

    async def _predict(self, texts: Sequence[str], task: str) -> list[list[float]]:
        from google.cloud.aiplatform_v1.types import PredictRequest
        from google.protobuf import json_format

        # The client's own classes cannot hold plain values: the message is filled as it is.
        raw = PredictRequest.pb()(endpoint=self._connection.resource)
        for text in texts:
            json_format.ParseDict({"content": text, "task_type": task}, raw.instances.add())
        parameters = {"outputDimensionality": self.dimensions, "autoTruncate": self._cut}
        json_format.ParseDict(parameters, raw.parameters)
        answer = await self._connection.call(self._client.predict, PredictRequest.wrap(raw))
        return [_values_in(prediction) for prediction in type(answer).pb(answer).predictions]

    async def _embed_content(self, texts: Sequence[str], task: str) -> list[list[float]]:
        from google.cloud.aiplatform_v1.types import Content, EmbedContentRequest, Part

        config = EmbedContentRequest.EmbedContentConfig(
            task_type=task, auto_truncate=self._cut, output_dimensionality=self.dimensions
        )
        request = EmbedContentRequest(
            model=self._connection.resource,
            content=Content(parts=[Part(text=text) for text in texts]),
            embed_content_config=config,
        )
        answer = await self._connection.call(self._client.embed_content, request)
        return [list(type(answer).pb(answer).embedding.values)]

    def _check_vectors(self, vectors: Sequence[list[float]], expected: int) -> list[list[float]]:
        """Unit vectors, after a look at how many and how long they are. Shortened ones come of any length."""
        if len(vectors) != expected:
            raise self._model_error(f"returned {len(vectors)} vectors for {expected} texts")
        for vector in vectors:
            if len(vector) != self.dimensions:
                raise self._model_error(
                    f"returned a vector of {len(vector)} numbers where dimensions = {self.dimensions}",
                    f"Set dimensions = {len(vector)}, and index again what was indexed with another length."
                    if vector
                    else "",
                )
        directions = [direction(vector) for vector in vectors]
        if not all(directions):
            raise self._model_error("returned a vector that has no direction (zeros, or no finite numbers)")
        return directions

    def _model_error(self, problem: str, remedy: str = "") -> PluginError:
        return self._connection.answer_error(f"(model {self.model!r}) {problem}", remedy)


def _values_in(prediction: Any) -> list[float]:
    values = prediction.struct_value.fields["embeddings"].struct_value.fields["values"].list_value.values
    return [value.number_value for value in values]
