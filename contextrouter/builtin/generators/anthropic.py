"""The generator `anthropic`: answers over HTTP from any server with Anthropic's `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from contextrouter.builtin.generators.example_server import ChatServer
from contextrouter.builtin.generators.options import check_positive, clean_messages
from contextrouter.builtin.generators.remote import Remote
from contextrouter.builtin.shared.bounded_client import bounded_options
from contextrouter.contracts import Completion, Writing
from contextrouter.errors import PluginError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_TOOL = "answer"


class Anthropic(Remote):
    """Asks `model` at `base_url` (empty: Anthropic's own), for at most `max_tokens` tokens where the request
    does not say.

    `request_timeout` is in seconds, for one answer to begin.
    """

    label, package = "Generator 'anthropic'", "anthropic"
    service, such_as = "Anthropic", "claude-haiku-4-5"

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "",
        api_key: str = "",
        max_tokens: int = 1024,
        request_timeout: float = 60.0,
    ) -> None:
        super().__init__(model, base_url, api_key, request_timeout)
        self.max_tokens = int(check_positive("max_tokens", max_tokens))

    @classmethod
    def example(cls) -> Self:
        """An instance with a server of its own on this machine, which runs from open() to aclose()."""
        generator = cls(model="example", base_url="http://127.0.0.1:9", api_key="none")
        generator._server = ChatServer()
        return generator

    def _connect(self) -> AsyncAnthropic:
        if not self._api_key:
            raise PluginError(
                "api_key is empty. Set it, to anything where base_url names a server that needs none."
            )
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            api_key=self._api_key,
            base_url=self.base_url or "https://api.anthropic.com",
            timeout=self.request_timeout,
            max_retries=1,
            **bounded_options(DefaultAsyncHttpxClient),
        )

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The answer; with a schema as an object in `data`, or in the text where the model did not use the
        tool. Raises PluginError when the server fails.
        """
        options: dict[str, Any] = {}
        if schema is not None:
            tool = {"name": _TOOL, "description": "Give the answer.", "input_schema": dict(schema)}
            options = {"tools": [tool], "tool_choice": {"type": "tool", "name": _TOOL}}
        answer = await self._ask(messages, options)
        try:
            text = "".join(block.text for block in answer.content if block.type == "text")
            data = next((block.input for block in answer.content if block.type == "tool_use"), None)
            return Completion(
                text=text,
                data=data if isinstance(data, dict) else None,
                model=answer.model,
                tokens_in=answer.usage.input_tokens,
                tokens_out=answer.usage.output_tokens,
                finish=_finish_reason(answer.stop_reason),
            )
        except (AttributeError, TypeError) as error:
            problem = f"it did not answer as Anthropic's server does ({type(error).__name__})"
            raise self._make_error(problem, hint="Check base_url.") from None

    async def _stream_completion(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncGenerator[str | Completion, None]:
        from anthropic import AnthropicError

        options: dict[str, Any] = {"stream": True}
        if writing.max_tokens is not None:
            options["max_tokens"] = writing.max_tokens
        if writing.stop:
            options["stop_sequences"] = list(writing.stop)
        sampling = {"temperature": writing.temperature, "top_p": writing.top_p}
        if sampling := {name: value for name, value in sampling.items() if value is not None}:
            options["extra_body"] = sampling  # newer clients do not name them; servers know them
        state: dict[str, Any]
        text, state = [], {"model": self.model, "in": None, "out": None, "finish": "stop"}
        try:
            async with await self._ask(messages, options) as events:
                async for event in events:
                    _record_event(event, state)
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        text.append(event.delta.text)
                        yield event.delta.text
        except (AnthropicError, AttributeError, TypeError) as error:
            raise self._refused_by_server(error) from None
        yield Completion(
            text="".join(text),
            model=state["model"],
            tokens_in=state["in"],
            tokens_out=state["out"],
            finish=state["finish"],
        )

    async def _ask(self, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]) -> Any:
        from anthropic import AnthropicError

        create: Any = self._get_client().messages.create
        system = "\n\n".join(
            message["content"] for message in clean_messages(messages) if message["role"] == "system"
        )
        arguments: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "messages": _merge_turns(messages),
            **options,
        }
        if system:
            arguments["system"] = system
        try:
            return await create(model=self.model, **arguments)
        except (AnthropicError, ValueError) as error:  # the latter: a page in place of JSON, or no UTF-8
            # The chain is cut: the client's own exceptions carry the request and with it the key.
            raise self._refused_by_server(error) from None


def _merge_turns(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The conversation as turns that alternate and begin with the user's."""
    turns: list[dict[str, str]] = []
    for message in clean_messages(messages):
        if message["role"] == "system" or not message["content"].strip():
            continue
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1]["content"] += "\n\n" + message["content"]
        else:
            turns.append({"role": message["role"], "content": message["content"]})
    return turns if turns and turns[0]["role"] == "user" else [{"role": "user", "content": "…"}, *turns]


def _record_event(event: Any, state: dict[str, Any]) -> None:
    """Keep what an event says of model, tokens and end."""
    if event.type == "message_start":
        state["model"], state["in"] = event.message.model, event.message.usage.input_tokens
    elif event.type == "message_delta":
        state["out"], state["finish"] = event.usage.output_tokens, _finish_reason(event.delta.stop_reason)


def _finish_reason(reason: str | None) -> str:
    return {"max_tokens": "length", "refusal": "refusal"}.get(reason or "", "stop")
