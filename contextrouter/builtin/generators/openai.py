"""The generator `openai`: answers over HTTP from any server with OpenAI's `POST /v1/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Self

from contextrouter.builtin.generators.example_server import ChatServer
from contextrouter.builtin.generators.options import clean_messages
from contextrouter.builtin.generators.remote import Remote
from contextrouter.builtin.shared.server_client import OpenAIClient
from contextrouter.contracts import Completion, Writing


class OpenAI(OpenAIClient, Remote):
    """Asks `model` at `base_url` (empty: OpenAI's own). `request_timeout` is in seconds, for one answer to
    begin.

    `older_names` is for servers that know the cap of an answer as `max_tokens` only.
    """

    label = "Generator 'openai'"
    service, such_as = "OpenAI", "gpt-5-mini"

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "",
        api_key: str = "",
        request_timeout: float = 60.0,
        older_names: bool = False,
    ) -> None:
        super().__init__(model, base_url, api_key, request_timeout)
        self.older_names = older_names

    @classmethod
    def example(cls) -> Self:
        """An instance with a server of its own on this machine, which runs from open() to aclose()."""
        generator = cls(model="example", base_url="http://127.0.0.1:9/v1")
        generator._server = ChatServer()
        return generator

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The answer; with a schema as an object in `data`. Raises PluginError when the server fails."""
        options: dict[str, Any] = {}
        if schema is not None:
            shape = {"name": "answer", "schema": dict(schema), "strict": False}
            options["response_format"] = {"type": "json_schema", "json_schema": shape}
        answer = await self._ask(messages, options)
        try:
            choice = answer.choices[0]
            text = choice.message.content or ""
            data = None if schema is None else json.loads(text)
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise self._make_error(f"answered in another shape ({type(error).__name__})") from None
        usage = getattr(answer, "usage", None)
        return Completion(
            text=text,
            data=data,
            model=answer.model or self.model,
            finish="length" if choice.finish_reason == "length" else "stop",
            tokens_in=getattr(usage, "prompt_tokens", None),
            tokens_out=getattr(usage, "completion_tokens", None),
        )

    async def _stream_completion(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncGenerator[str | Completion, None]:
        from openai import OpenAIError

        options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        cap = "max_tokens" if self.older_names else "max_completion_tokens"
        sampling = {cap: writing.max_tokens, "temperature": writing.temperature, "top_p": writing.top_p}
        options |= {name: value for name, value in sampling.items() if value is not None}
        if writing.stop:
            options["stop"] = list(writing.stop)
        text, finish, usage, model = [], "stop", None, self.model
        try:
            async with await self._ask(messages, options) as chunks:
                async for chunk in chunks:
                    usage, model = getattr(chunk, "usage", None) or usage, chunk.model or model
                    for choice in chunk.choices[:1]:
                        finish = "length" if choice.finish_reason == "length" else finish
                        if choice.delta.content:
                            text.append(choice.delta.content)
                            yield choice.delta.content
        except (OpenAIError, AttributeError, TypeError) as error:
            raise self._make_error(f"{type(error).__name__}: {error}") from None
        yield Completion(
            text="".join(text),
            model=model,
            finish=finish,
            tokens_in=getattr(usage, "prompt_tokens", None),
            tokens_out=getattr(usage, "completion_tokens", None),
        )

    async def _ask(self, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]) -> Any:
        from openai import OpenAIError

        create: Any = self._get_client().chat.completions.create
        try:
            return await create(model=self.model, messages=clean_messages(messages), **options)
        except OpenAIError as error:
            # The chain is cut: the client's own exceptions carry the request and with it the key.
            raise self._make_error(f"{type(error).__name__}: {error}") from None
