"""A server of answers on this machine, so that the examples of `openai` and `anthropic` work with no key and no network.

It answers with the last message, word by word, in OpenAI's or Anthropic's wire format; asked for an object, with one that has a
list of texts for each property.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any


class ExampleServer:
    """Answers `POST …/chat/completions` and `POST …/messages`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []  # the bodies that came, oldest first
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def open(self) -> str:
        """Listen on a free port of 127.0.0.1; return the address."""
        self._server = self._server or await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def aclose(self) -> None:
        """Stop listening, close the connections, and wait for what serves them."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        serving = dict(self._connections)
        for writer in serving.values():
            writer.close()
        if serving:
            await asyncio.wait(serving)
        await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = json.loads(await reader.readexactly(_length(head)))
                self.asked.append(body)
                events = _anthropic(body) if b"/messages " in head.split(b"\r\n")[0] else _openai(body)
                answer = "".join(events).encode() if body.get("stream") else json.dumps(_whole(body, head)).encode()
                media = b"text/event-stream" if body.get("stream") else b"application/json"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (media, len(answer)))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed
        finally:
            del self._connections[task]
            writer.close()


def _text(body: dict[str, Any]) -> str:
    return f"You said: {body['messages'][-1]['content']}"


def _made(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: ["example"] for name in schema.get("properties", {})}


def _whole(body: dict[str, Any], head: bytes) -> dict[str, Any]:
    if b"/messages " in head.split(b"\r\n")[0]:
        content: list[dict[str, Any]] = [{"type": "text", "text": _text(body)}]
        for tool in body.get("tools", ()):
            content = [{"type": "tool_use", "id": "t", "name": tool["name"], "input": _made(tool["input_schema"])}]
        return _message(body) | {"content": content, "stop_reason": "end_turn"}
    shape = body.get("response_format", {}).get("json_schema")
    text = json.dumps(_made(shape["schema"])) if shape else _text(body)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return _envelope(body, "chat.completion") | {"choices": [choice], "usage": _usage(text)}


def _openai(body: dict[str, Any]) -> Iterator[str]:
    chunk = _envelope(body, "chat.completion.chunk")
    for word in _text(body).split(" "):
        yield _data(chunk | {"choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}]})
    yield _data(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield _data(chunk | {"choices": [], "usage": _usage(_text(body))})
    yield "data: [DONE]\n\n"


def _anthropic(body: dict[str, Any]) -> Iterator[str]:
    yield _event("message_start", message=_message(body))
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in _text(body).split(" "):
        yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": word + " "})
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 7})
    yield _event("message_stop")


def _envelope(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "example", "object": kind, "created": 0, "model": body["model"]}


def _message(body: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 5, "output_tokens": 7}
    message = {"id": "example", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    return message | {"stop_reason": None, "stop_sequence": None, "usage": usage}


def _usage(text: str) -> dict[str, int]:
    return {"prompt_tokens": 5, "completion_tokens": len(text.split()), "total_tokens": 5 + len(text.split())}


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\n" + _data({"type": kind, **fields})


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0
