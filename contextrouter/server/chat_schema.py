"""Request and response schemas of the OpenAI-compatible chat completions API.

The server accepts and ignores fields of OpenAI's that it does not know, as other servers do. It refuses, by
name, the fields that would change what an answer is: tools, several answers, log probabilities, objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from contextrouter.server.error_responses import Refused

_ROLES = ("system", "developer", "user", "assistant")
Text = Annotated[str, Meta(max_length=200_000)]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message. Only text parts are supported."""

    type: str
    text: Text = ""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the conversation."""

    role: str
    content: Text | list[Part] | None = None

    def plain(self, index: int) -> dict[str, str]:
        """Return the message as role and text. Raises Refused (400) for an unsupported role or part."""
        path = f"messages[{index}]"
        if self.role not in _ROLES:
            raise Refused(
                400,
                "unsupported_role",
                f"Role {self.role!r} is not one of {', '.join(_ROLES)}.",
                param=f"{path}.role",
            )
        parts = self.content if isinstance(self.content, list) else ()
        for part in parts:
            if part.type != "text":
                detail = f"A part of type {part.type!r} cannot be read; send texts."
                raise Refused(400, "unsupported_content", detail, param=f"{path}.content")
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation. Its last user message is the question."""

    model: Annotated[str, Meta(max_length=256)]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=1000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: Text | Annotated[list[Text], Meta(max_length=4)] | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None
    logprobs: bool | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: Mapping[str, Any] | None = None

    def conversation(self) -> list[dict[str, str]]:
        """Return the messages as roles and texts. Raises Refused (400) for an unsupported parameter."""
        parameters = {
            "tools": bool(self.tools),
            "functions": bool(self.functions),
            "logprobs": bool(self.logprobs),
            "response_format": (self.response_format or {}).get("type", "text") != "text",
        }
        for name, unsupported in parameters.items():
            if unsupported:
                raise Refused(
                    400, "unsupported_parameter", f"{name!r} is not supported here; leave it out.", param=name
                )
        turns = [message.plain(index) for index, message in enumerate(self.messages)]
        if not any(turn["role"] == "user" and turn["content"].strip() for turn in turns):
            raise Refused(
                400, "no_question", "There is no user message with a text to answer.", param="messages"
            )
        return turns

    def stops(self) -> tuple[str, ...]:
        """Return the texts at which an answer ends."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or ()
        return tuple(text for text in stops if text)


class Cited(msgspec.Struct, frozen=True, kw_only=True):
    """The document that a citation number in the answer stands for."""

    number: int
    id: str
    title: str
    url: str
    source: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The extension of this server: how an answer came about.

    `outcome` is that of the context, "empty" where nothing that was found answers, or "declined"; `note` says
    why another generator wrote than the one that was to. `citations` maps each number that the answer cites
    to its document; `models` are the generators that interpreters, stages and the answer called, with their
    tokens and cost.
    """

    outcome: str
    query_type: str
    generator: str
    citations: Mapping[str, Cited]
    sources: Sequence[Cited]
    facts: Sequence[Any]
    entities: Sequence[Any]
    answerability: Any
    degraded: bool
    guard: Mapping[str, bool]
    models: Sequence[Any]
    request_id: str
    note: str = ""
    trace_id: str = ""


class ChatUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token usage."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class MessageAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """The message of the assistant."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    refusal: str | None = None
    reasoning_content: str | None = None  # what the model thought before: no part of the answer


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and the reason for its end."""

    index: int = 0
    message: MessageAnswered
    logprobs: None = None
    finish_reason: str


class ChatAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: Sequence[Choice]
    usage: ChatUsage
    contextrouter: Receipt


class ModelShown(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the caller may name."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "contextrouter"


class ModelsShown(msgspec.Struct, frozen=True, kw_only=True):
    """The models that the caller may name."""

    object: Literal["list"] = "list"
    data: Sequence[ModelShown]
