"""Request and response schemas of the OpenAI-compatible chat completions API.

The server accepts and ignores fields of OpenAI's that it does not know, as other servers do. It refuses, by
name, the fields that would change what an answer is: calls of tools, several answers, log probabilities,
objects. What earlier turns have beside their text, such as images and results of tools, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from contextrouter.server.error_responses import Refused

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OF_TOOLS = ("tool", "function")
_MAY_IGNORE = (None, "none", "auto")
Text = Annotated[str, Meta(max_length=200_000)]
Whole = int | float
"""A whole number. Programs whose numbers are all floats send 1024.0."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message. Texts are read."""

    type: str
    text: Text | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the conversation."""

    role: str
    content: Text | list[Part] | None = None

    @property
    def text(self) -> str:
        """The text of the message."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text" and part.text)
        return self.content or ""

    @property
    def unread(self) -> str:
        """The type of a part that cannot be read; empty: there is none."""
        parts = self.content if isinstance(self.content, list) else ()
        return next((part.type for part in parts if part.type != "text"), "")


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation. Its last user message is the question."""

    model: Annotated[str, Meta(max_length=256)]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=1000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: Text | Annotated[list[Text | None], Meta(max_length=64)] | None = None
    n: Whole | None = None
    logprobs: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[str] | None = None
    response_format: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None

    def conversation(self) -> list[dict[str, str]]:
        """Return the messages as roles and texts. Raises Refused (400) for what cannot be done or read."""
        self._check_parameters()
        for index, message in enumerate(self.messages):
            if message.role not in _ROLES:
                detail = f"Role {message.role!r:.80} is not one of {', '.join(_ROLES)}."
                raise Refused(400, "unsupported_role", detail, param=f"messages[{index}].role")
        questions = [
            index
            for index, message in enumerate(self.messages)
            if message.role == "user" and message.text.strip()
        ]
        for index in range(questions[-1] if questions else 0, len(self.messages)):
            message = self.messages[index]
            if message.role == "user" and message.unread:
                detail = f"A part of type {message.unread!r:.80} cannot be read; send texts."
                raise Refused(400, "unsupported_content", detail, param=f"messages[{index}].content")
        if not questions:
            raise Refused(
                400, "no_question", "There is no user message with a text to answer.", param="messages"
            )
        return [
            {"role": "system" if message.role == "developer" else message.role, "content": message.text}
            for message in self.messages
            if message.role not in _OF_TOOLS and (message.text.strip() or message.role == "user")
        ]

    def _check_parameters(self) -> None:
        """Raise Refused (400) for a parameter that asks for another kind of answer. Tools that a model may
        leave alone are no such parameter: none is ever called.
        """
        if self.n not in (None, 1):
            raise Refused(422, "invalid_body", f"'n' is {self.n}; there is one answer.", param="n")
        parameters = {
            "tool_choice": self.tool_choice not in _MAY_IGNORE,
            "function_call": self.function_call not in _MAY_IGNORE,
            "logprobs": bool(self.logprobs),
            "modalities": any(kind != "text" for kind in self.modalities or ()),
            "response_format": (self.response_format or {}).get("type", "text") != "text",
        }
        for name, unsupported in parameters.items():
            if unsupported:
                raise Refused(
                    400, "unsupported_parameter", f"{name!r} is not supported here; leave it out.", param=name
                )

    def most_tokens(self) -> list[int]:
        """Return the limits of the answer. Zero and less are none. Raises Refused (422) for a fraction."""
        limits = []
        for name in ("max_tokens", "max_completion_tokens"):
            value: Whole = getattr(self, name) or 0
            if value != int(value):
                raise Refused(422, "invalid_body", f"{name!r} is {value}; send a whole number.", param=name)
            if value > 0:
                limits.append(int(value))
        return limits

    def stops(self) -> tuple[str, ...]:
        """Return the texts at which an answer ends."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or ()
        return tuple(text for text in stops if text)


class Cited(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The document that a citation number in the answer stands for."""

    number: int
    id: str
    title: str
    url: str  # what opens
    source: str
    job: str = ""  # the ingestion job that stored it
    path: tuple[str, ...] = ()  # the headings above it
    place: str = ""  # "page 7", "1:02:03", "line 12"
    file: str = ""  # its path on the machine of the server, for a caller who may see everything


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
