"""A local stand-in for the embedding models of Vertex AI, for examples and tests: vectors made of hashes.

It refuses more than 250 texts or 20,000 words in a request, and long texts that it may not cut. Vectors
are not of length 1, as those of shortened models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer, Rpc

MOST_TEXTS, MOST_WORDS, LONGEST = 250, 20_000, 2_048  # of a request; words of one text


class PredictionServer(GrpcServer):
    """Answers Predict and EmbedContent. `asked` are the texts and the task type of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[str], str]] = []
        self.dimensions = 0  # of the vectors; 0: as many as are asked for

    def services(self) -> Mapping[str, Mapping[str, Rpc]]:
        """The methods that the embedder calls."""
        from google.cloud.aiplatform_v1 import types

        self.types: Any = types
        return {
            "google.cloud.aiplatform.v1.PredictionService": {
                "Predict": Rpc(self._predict, types.PredictRequest, types.PredictResponse),
                "EmbedContent": Rpc(self._embed, types.EmbedContentRequest, types.EmbedContentResponse),
            }
        }

    async def _predict(self, request: Any, context: Any) -> Any:
        import grpc
        from google.protobuf import json_format, struct_pb2

        raw = type(request).pb(request)
        instances = [json_format.MessageToDict(instance) for instance in raw.instances]
        if len(instances) > MOST_TEXTS:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{len(instances)} instances; at most 250")
        lengths = [len(item["content"].split()) for item in instances]
        cuts = raw.parameters.struct_value.fields["autoTruncate"].bool_value
        if sum(lengths) > MOST_WORDS or (max(lengths) > LONGEST and not cuts):
            message = f"the input token count is {sum(lengths)}; at most {MOST_WORDS}, {LONGEST} of one text"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        size = int(raw.parameters.struct_value.fields["outputDimensionality"].number_value)
        self.asked.append(([item["content"] for item in instances], instances[0]["task_type"]))
        predictions = [
            json_format.ParseDict({"embeddings": {"values": self._vector(item, size)}}, struct_pb2.Value())
            for item in self.asked[-1][0]
        ]
        return self.types.PredictResponse.wrap(self.types.PredictResponse.pb()(predictions=predictions))

    async def _embed(self, request: Any, context: Any) -> Any:
        config = request.embed_content_config
        text = "".join(part.text for part in request.content.parts)
        self.asked.append(([text], config.task_type.name))
        answer = self.types.EmbedContentResponse()
        answer.embedding.values = self._vector(text, config.output_dimensionality)
        return answer

    def _vector(self, text: str, dimensions: int) -> list[float]:
        digest = hashlib.shake_128(text.encode()).digest(self.dimensions or dimensions)
        return [(byte - 127.5) / 32 for byte in digest]
