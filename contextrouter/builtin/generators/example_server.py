"""Local generator server for the examples of `openai` and `anthropic`, which then need no key.

It answers with the last message, word by word, in OpenAI's or Anthropic's wire format; asked for an object,
with one that fits the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from contextrouter.builtin.shared.loopback_server import Loopback


class ChatServer(Loopback):
    """Answers `POST …/chat/completions`, `POST …/messages` and `GET …/models`."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []  # the bodies that came, oldest first

    def answer(self, path: str, body: bytes) -> tuple[bytes, bytes]:
        """The answer whole, or as events; or the list of models, which is empty."""
        if path.partition("?")[0].endswith("/models"):
            return b"application/json", b'{"object": "list", "data": [], "has_more": false}'
        request = json.loads(body)
        self.requests.append(request)
        anthropic = path.endswith("/messages")
        if request.get("stream"):
            return b"text/event-stream", "".join(
                _anthropic_events(request) if anthropic else _openai_events(request)
            ).encode()
        return b"application/json", json.dumps(_full_response(request, anthropic)).encode()


def _answer_text(body: dict[str, Any]) -> str:
    return f"You said: {body['messages'][-1]['content']}"


def example_value(schema: dict[str, Any], definitions: dict[str, Any] | None = None) -> Any:
    """Return a value that fits a JSON schema: the first of a choice, one item of a list, all of an object."""
    shared = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        return example_value(shared[schema["$ref"].rpartition("/")[2]], shared)
    if choices := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return choices[0]
    if options := [part for part in schema.get("anyOf", ()) if part.get("type") != "null"]:
        return example_value(options[0], shared)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kind == "object":
        return {name: example_value(part, shared) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [example_value(schema.get("items", {}), shared)]
    text = "2026-01-31" if schema.get("format") == "date" else "example"
    return {"integer": 1, "number": 0.5, "boolean": True}.get(kind, text)


def _full_response(body: dict[str, Any], anthropic: bool) -> dict[str, Any]:
    if anthropic:
        content: list[dict[str, Any]] = [{"type": "text", "text": _answer_text(body)}]
        for tool in body.get("tools", ()):
            content = [
                {
                    "type": "tool_use",
                    "id": "t",
                    "name": tool["name"],
                    "input": example_value(tool["input_schema"]),
                }
            ]
        return _message(body) | {"content": content, "stop_reason": "end_turn"}
    shape = body.get("response_format", {}).get("json_schema")
    text = json.dumps(example_value(shape["schema"])) if shape else _answer_text(body)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return _openai_frame(body, "chat.completion") | {"choices": [choice], "usage": _usage(text)}


def _openai_events(body: dict[str, Any]) -> Iterator[str]:
    chunk = _openai_frame(body, "chat.completion.chunk")
    for word in _answer_text(body).split(" "):
        yield _format_data(
            chunk | {"choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}]}
        )
    yield _format_data(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield _format_data(chunk | {"choices": [], "usage": _usage(_answer_text(body))})
    yield "data: [DONE]\n\n"


def _anthropic_events(body: dict[str, Any]) -> Iterator[str]:
    yield _format_event("message_start", message=_message(body))
    yield _format_event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in _answer_text(body).split(" "):
        yield _format_event("content_block_delta", index=0, delta={"type": "text_delta", "text": word + " "})
    yield _format_event("content_block_stop", index=0)
    yield _format_event(
        "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 7}
    )
    yield _format_event("message_stop")


def _openai_frame(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "example", "object": kind, "created": 0, "model": body["model"]}


def _message(body: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 5, "output_tokens": 7}
    message = {"id": "example", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    return message | {"stop_reason": None, "stop_sequence": None, "usage": usage}


def _usage(text: str) -> dict[str, int]:
    return {"prompt_tokens": 5, "completion_tokens": len(text.split()), "total_tokens": 5 + len(text.split())}


def _format_data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _format_event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\n" + _format_data({"type": kind, **fields})
