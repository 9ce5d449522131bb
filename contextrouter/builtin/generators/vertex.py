"""The generator `vertex`: Gemini models of Vertex AI, whole, in pieces, or as an object of a JSON schema."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self

from contextrouter.builtin.generators.gemini_server import GeminiServer
from contextrouter.builtin.generators.options import clean_messages
from contextrouter.builtin.shared.google_cloud.cloud_connection import CloudConnection
from contextrouter.builtin.shared.google_cloud.cloud_options import CloudOptions, check_above_zero, check_name
from contextrouter.builtin.shared.google_cloud.google_services import vertex_ai
from contextrouter.contracts import Completion, FilePath, Generator, Writing

_CUT = "MAX_TOKENS"
_FILTERS = frozenset(("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION"))
_NORMAL = ("STOP", _CUT, "FINISH_REASON_UNSPECIFIED")


class VertexGenerator(Generator):
    """Asks `model`, a Gemini model of Vertex AI, in `location` ("global": wherever there is room).

    `max_tokens` is the limit of an answer where the request sets none (0: the model's own). `request_timeout`
    is the limit of a whole answer in seconds. The other keys are those of the provider `vertex`.
    """

    def __init__(
        self,
        *,
        model: str = "gemini-2.5-flash",
        project: str = "",
        location: str = "us-central1",
        max_tokens: int = 0,
        request_timeout: float = 60.0,
        credentials_file: FilePath = "",
        endpoint: str = "",
    ) -> None:
        self.model, self._location = check_name("model", model), location
        if max_tokens:
            check_above_zero("max_tokens", max_tokens, 2**31 - 1)
        self._max_tokens = max_tokens or None
        options = CloudOptions(project, location, credentials_file, endpoint, request_timeout).check()
        self._connection = CloudConnection(vertex_ai(location), options, "Generator 'vertex'")
        self._client: Any = None

    @classmethod
    def example(cls) -> Self:
        """An instance with a server of its own on this machine, which runs from open() to aclose()."""
        generator = cls()
        generator._connection.server = GeminiServer()
        return generator

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

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The answer; with a schema as an object in `data`. Raises PluginError when the service fails."""
        self._connection.check_home()
        request = self._request(messages, Writing(), schema)
        answer = await self._connection.call(self._client.generate_content, request)
        answer_so_far = _Answer(self.model)
        text = answer_so_far.add(answer)
        self._check(answer_so_far)
        try:
            data = None if schema is None else json.loads(text)
        except ValueError:
            raise self._connection.answer_error(
                f"(model {self.model!r}) answered with what is no JSON", "Raise max_tokens if it was cut."
            ) from None
        return answer_so_far.completion(text, data)

    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """The answer in pieces."""
        async with aclosing(self._pieces(messages, Writing())) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    yield piece

    def write(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncIterator[str | Completion]:
        """The answer in pieces, and last the Completion; where a filter stopped it, its `finish` says so.
        Raises PluginError when the service fails.
        """
        return self._pieces(messages, writing, filtered=True)

    async def _pieces(
        self, messages: Sequence[Mapping[str, str]], writing: Writing, *, filtered: bool = False
    ) -> AsyncGenerator[str | Completion, None]:
        connection, request = self._connection, self._request(messages, writing, None)
        answer, text = _Answer(self.model), list[str]()
        stream = await connection.call(self._client.stream_generate_content, request)
        try:
            async for chunk in stream:
                if piece := answer.add(chunk):
                    text.append(piece)
                    yield piece
        except Exception as error:
            raise connection.explain_error(error, connection.options.request_timeout) from None
        finally:
            stream.cancel()  # a reader that has left; ended, it does nothing
        if answer.blocked in _FILTERS and filtered:
            answer.finish = "filter"
        else:
            self._check(answer)
        yield answer.completion("".join(text), None)

    def _request(
        self, messages: Sequence[Mapping[str, str]], writing: Writing, schema: Mapping[str, Any] | None
    ) -> Any:
        self._connection.check_home()
        from google.cloud.aiplatform_v1 import types

        limits: dict[str, Any] = {
            "max_output_tokens": writing.max_tokens or self._max_tokens,
            "temperature": writing.temperature,
            "top_p": writing.top_p,
        }
        config = types.GenerationConfig({k: v for k, v in limits.items() if v is not None})
        if writing.stop:
            config.stop_sequences = list(writing.stop)
        contents = _contents(messages)
        if not contents:
            raise self._connection.answer_error("was not asked: no message has a text")
        request = types.GenerateContentRequest(
            model=self._connection.resource, contents=contents, generation_config=config
        )
        system = _texts_by(messages, "system")
        if system and _texts_by(messages, "user", "assistant"):
            parts = [types.Part(text="\n\n".join(system))]
            request.system_instruction = types.Content(role="system", parts=parts)
        if schema is not None:
            from google.protobuf import json_format

            raw = type(request).pb(request).generation_config
            raw.response_mime_type = "application/json"
            json_format.ParseDict(dict(schema), raw.response_json_schema)
        return request

    def _check(self, answer: _Answer) -> None:
        """Raise PluginError where a model ended without an answer."""
        if answer.blocked:
            raise self._connection.answer_error(
                f"(model {self.model!r}) wrote no answer: {answer.blocked}", "Ask in other words."
            )


class _Answer:
    """What is known of an answer while its pieces come."""

    def __init__(self, model: str) -> None:
        self.model, self.finish, self.blocked = model, "stop", ""
        self.tokens: tuple[int | None, int | None] = (None, None)

    def add(self, response: Any) -> str:
        """Take a piece; return its text."""
        raw = type(response).pb(response)
        if raw.HasField("prompt_feedback") and response.prompt_feedback.block_reason:
            self.blocked = response.prompt_feedback.block_reason.name
        if raw.HasField("usage_metadata"):
            usage = raw.usage_metadata
            self.tokens = (usage.prompt_token_count, usage.candidates_token_count)
        self.model = response.model_version or self.model
        if not response.candidates:
            return ""
        candidate = response.candidates[0]
        reason = candidate.finish_reason.name
        self.finish = "length" if reason == _CUT else self.finish
        if reason not in _NORMAL:
            self.blocked = reason
        return "".join(part.text for part in candidate.content.parts if not getattr(part, "thought", False))

    def completion(self, text: str, data: Any) -> Completion:
        """The whole answer."""
        tokens_in, tokens_out = self.tokens
        return Completion(
            text=text,
            data=data,
            model=self.model,
            finish=self.finish,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
        )


def _texts_by(messages: Sequence[Mapping[str, str]], *roles: str) -> list[str]:
    """The texts of messages of these roles that are not blank: the service refuses a blank one."""
    return [
        message["content"]
        for message in clean_messages(messages)
        if message["role"] in roles and message["content"].strip()
    ]


def _contents(messages: Sequence[Mapping[str, str]]) -> list[Any]:
    """The turns of a conversation. The service wants turns that alternate and begin with the user's: two of
    one role in a row become one, and where there is nothing but system messages, the user says these.
    """
    from google.cloud.aiplatform_v1 import types

    contents: list[Any] = []
    alone = not _texts_by(messages, "user", "assistant")
    for message in clean_messages(messages):
        if not message["content"].strip() or (message["role"] == "system" and not alone):
            continue
        role = "model" if message["role"] == "assistant" else "user"
        part = types.Part(text=message["content"])
        if role == "model" and not contents:
            contents.append(types.Content(role="user", parts=[types.Part(text="…")]))
        if contents and contents[-1].role == role:
            contents[-1].parts.append(part)
        else:
            contents.append(types.Content(role=role, parts=[part]))
    return contents
