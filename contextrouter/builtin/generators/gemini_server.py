"""A local stand-in for the Gemini models of Vertex AI, for examples and tests.

It answers with the last message, word by word; asked for an object, with one that has a list of texts for
each property. It refuses a request without a message, blank texts, and a conversation that the model begins.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer, Rpc


class GeminiServer(GrpcServer):
    """Answers GenerateContent and StreamGenerateContent. `requests` are those that came, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Any] = []
        self.text = ""  # the answer; "": made of the last message
        self.finish = "STOP"

    def services(self) -> Mapping[str, Mapping[str, Rpc]]:
        """The methods that the generator calls."""
        from google.cloud.aiplatform_v1 import types

        self.types: Any = types
        request_type, answered = types.GenerateContentRequest, types.GenerateContentResponse
        return {
            "google.cloud.aiplatform.v1.PredictionService": {
                "GenerateContent": Rpc(self._generate, request_type, answered),
                "StreamGenerateContent": Rpc(self._stream, request_type, answered, streams=True),
            }
        }

    async def _generate(self, request: Any, context: Any) -> Any:
        await _check(request, context)
        return self._piece(self._answer(request), self.finish)

    async def _stream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await _check(request, context)
        words = self._answer(request).split(" ")
        for number, word in enumerate(words, 1):
            final = number == len(words)
            yield self._piece(word if final else f"{word} ", self.finish if final else "")

    def _answer(self, request: Any) -> str:
        from google.protobuf import json_format

        self.requests.append(request)
        config = type(request).pb(request).generation_config
        if config.HasField("response_json_schema"):
            schema = json_format.MessageToDict(config.response_json_schema)
            return self.text or json.dumps({name: ["example"] for name in schema.get("properties", {})})
        return self.text or f"You said: {request.contents[-1].parts[-1].text}"

    def _piece(self, text: str, finish: str) -> Any:
        types = self.types
        content = types.Content(role="model", parts=[types.Part(text=text)])
        candidate = types.Candidate(content=content)
        answer = types.GenerateContentResponse(candidates=[candidate], model_version="example")
        if finish:
            answer.candidates[0].finish_reason = types.Candidate.FinishReason[finish]
            usage = answer.usage_metadata
            usage.prompt_token_count, usage.candidates_token_count = 5, 7
        return answer


async def _check(request: Any, context: Any) -> None:
    import grpc

    problem = ""
    if not request.contents:
        problem = "at least one contents field is required"
    elif not all(part.text.strip() for turn in request.contents for part in turn.parts):
        problem = "it must have a text parameter"
    elif [turn.role for turn in request.contents] != (["user", "model"] * len(request.contents))[
        : len(request.contents)
    ]:
        problem = "multiturn requests alternate between user and model"
    if problem:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Unable to submit request because {problem}.")
