"""The generator `openai`: answers over HTTP from any server with OpenAI's `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Self

import msgspec

from contextrouter.builtin.generators.example_server import ChatServer
from contextrouter.builtin.generators.options import clean_messages
from contextrouter.builtin.generators.remote import Remote, RequestNotTaken
from contextrouter.builtin.generators.structured_requests import (
    MODES,
    Mode,
    modes_from,
    object_in,
    response_format,
    with_schema,
)
from contextrouter.builtin.shared.server_client import OpenAIClient
from contextrouter.contracts import Completion, Refusal, Thought, Writing

_OTHER_REASONS = ("content_filter", "context_length_exceeded")
"""Codes of a 400 that has nothing to do with how an object is asked for."""


class OpenAI(OpenAIClient, Remote):
    """Asks `model` at `base_url` (empty: OpenAI's own). `request_timeout` is in seconds, for one answer to
    begin.

    `older_names` is for servers that know the cap of an answer as `max_tokens` only. `structured` says how an
    object is asked for: by a JSON "schema", as any JSON "object", or in the "prompt" alone; "" tries them in
    this order and stays with the first that the server takes.
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
        structured: Literal["", "schema", "object", "prompt"] = "",
    ) -> None:
        super().__init__(model, base_url, api_key, request_timeout)
        if structured and structured not in MODES:
            raise ValueError(f"structured {structured!r} is none of {', '.join(map(repr, MODES))}.")
        self.older_names, self.structured = older_names, structured
        self._mode: Mode = structured or MODES[0]

    @classmethod
    def example(cls) -> Self:
        """An instance with a server of its own on this machine, which runs from open() to aclose()."""
        generator = cls(model="example", base_url="http://127.0.0.1:9/v1")
        generator._server = ChatServer()
        return generator

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The answer; with a schema as an object in `data`, or in the text if it does not parse as it stands.
        Raises PluginError when the server fails.
        """
        try:
            if schema is None:
                return self._read(await self._ask(messages, {}))
            return await self._complete_by_schema(messages, schema)
        except RequestNotTaken as refused:
            if refused.code != "content_filter":  # so some servers answer, before the model has seen it
                raise
            return Completion(text="", model=self.model, finish="filter")

    async def _complete_by_schema(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]
    ) -> Completion:
        """Ask in the mode that the server took last; where it does not take it any more, in the next."""
        modes: Sequence[Mode] = (self._mode,) if self.structured else modes_from(self._mode)
        for mode in modes:
            try:
                options = response_format(mode, schema)
                answer = await self._ask(with_schema(messages, mode, schema), options)
            except RequestNotTaken as refused:
                if mode == modes[-1] or refused.code in _OTHER_REASONS:
                    raise
                continue
            self._mode = mode
            break
        completion = self._read(answer)
        return msgspec.structs.replace(completion, data=object_in(completion.text))

    def _read(self, answer: Any) -> Completion:
        try:
            choice = answer.choices[0]
            refusal = getattr(choice.message, "refusal", None)
            text = choice.message.content or refusal or ""
        except (AttributeError, IndexError, TypeError) as error:
            problem = f"it did not answer as OpenAI's server does ({type(error).__name__})"
            raise self._make_error(problem, hint="Check base_url.") from None
        usage = getattr(answer, "usage", None)
        return Completion(
            text=text,
            model=answer.model or self.model,
            finish=_finish_reason(choice.finish_reason, refused=bool(refusal)),
            tokens_in=getattr(usage, "prompt_tokens", None),
            tokens_out=getattr(usage, "completion_tokens", None),
            thinking=_thinking(choice.message),
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
        text, reason, usage, model, refused = [], "stop", None, self.model, False
        try:
            async with await self._ask(messages, options) as chunks:
                async for chunk in chunks:
                    usage, model = getattr(chunk, "usage", None) or usage, chunk.model or model
                    for choice in chunk.choices[:1]:
                        if choice.finish_reason:
                            reason = choice.finish_reason
                        refusal = getattr(choice.delta, "refusal", None)
                        refused = refused or bool(refusal)
                        if thinking := _thinking(choice.delta):
                            yield Thought(thinking)
                        if piece := choice.delta.content or (Refusal(refusal) if refusal else ""):
                            text.append(piece)
                            yield piece
        except (OpenAIError, AttributeError, TypeError) as error:
            raise self._refused_by_server(error) from None
        yield Completion(
            text="".join(text),
            model=model,
            finish=_finish_reason(reason, refused=refused),
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
            raise self._refused_by_server(error) from None


def _finish_reason(reason: str | None, *, refused: bool) -> str:
    finish = {"length": "length", "content_filter": "filter"}.get(reason or "", "stop")
    return "refusal" if refused and finish != "filter" else finish


def _thinking(message: Any) -> str:
    """Return what servers of models that think send beside the answer, under two names."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(value := getattr(message, name, None), str):
            return value
    return ""
