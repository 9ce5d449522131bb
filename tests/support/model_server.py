"""A server on this machine that answers as OpenAI's does, in every way in which models and servers answer.

`play` names the way; `answer` is the object that the model means to give.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

TOKENS_IN, TOKENS_OUT = 50, 10
_FENCE = "Sure, here it is:\n\n```json\n{}\n```\nAnything else?"
_PROSE = "The set {{a, b}} and [1] aside, the answer is {} as [2] says. Not {{this}}."
_THINKING = 'The user wants {{"queries": ["a draft"], "kind": "temporal"}}. Or rather:\n</think>\n{}'


def _as_texts(answer: Any) -> Any:
    """Return the answer with every number and truth as a text."""
    if isinstance(answer, dict):
        return {key: _as_texts(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_as_texts(value) for value in answer]
    return json.dumps(answer) if isinstance(answer, bool | int | float) else answer


TEXTS: Mapping[str, Callable[[Any], str]] = {
    "plain": json.dumps,
    "fenced": lambda answer: _FENCE.format(json.dumps(answer, indent=2)),
    "prose": lambda answer: _PROSE.format(json.dumps(answer)),
    "think": lambda answer: "<think>" + _THINKING.format(json.dumps(answer)),
    "bom": lambda answer: "\ufeff" + json.dumps(answer),
    "texts": lambda answer: json.dumps(_as_texts(answer)),
    "list": lambda answer: json.dumps(next(part for part in answer.values() if isinstance(part, list))),
    "wrapped": lambda answer: json.dumps({"answer": answer, "done": True}),
    "injected": lambda answer: json.dumps(
        {
            **answer,
            "tenant": "globex",
            "scope": {"tenant": "globex"},
            "filters": {"tenant": "globex", "category": "secret"},
            "kind": "admin",
            "limit": 100_000,
        }
    ),
    "wrong keys": lambda answer: json.dumps({"rewrites": ["a"], "mode": "temporal"}),
    "long": lambda answer: json.dumps({**answer, "queries": ["a"] * 300_000}),
    "deeply wrapped": lambda answer: json.dumps({"a": {"b": {"c": {"d": {"e": answer}}}}}),
    "cut": lambda answer: json.dumps(answer)[:-15],
    "empty": lambda answer: "",
    "talk": lambda answer: "I would search for cats.",
    "nan": lambda answer: json.dumps(answer)[:-1] + ', "confidence": NaN}',
    "doubled": lambda answer: json.dumps(answer)[:-1] + ', "queries": ["other"]}',
}
"""Texts of a model that answers with 200."""
_FINISH = {"cut": "length", "filtered": "content_filter"}


class ModelServer:
    """Answers `POST /v1/chat/completions`. `requests` are the bodies that came, oldest first.

    `refuses` are the types of `response_format` that it answers with 400.
    """

    def __init__(self, answer: Any = None, play: str = "plain", *, refuses: tuple[str, ...] = ()) -> None:
        self.answer, self.play, self.refuses = answer or {}, play, refuses
        self.requests: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {}  # in place of what it says of tokens
        self.stop = asyncio.Event()

    async def __aenter__(self) -> ModelServer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/elsewhere", self._answer_elsewhere)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        self.stop.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        if body.get("response_format", {}).get("type") in self.refuses:
            return _error(400, "Unsupported parameter: 'response_format'.")
        if self.play == "limited":
            return _error(429, "Rate limit reached.")
        if self.play == "blocked":
            return _error(400, "The prompt was filtered.", code="content_filter")
        if self.play == "hangs up":
            return await self._hang_up(request)
        if self.play == "page":
            return web.Response(text="<html>Please log in.</html>", content_type="application/json")
        if self.play == "redirects":
            return web.Response(status=307, headers={"Location": f"{self.url}/elsewhere"})
        if self.play == "bomb":
            packed = gzip.compress(b" " * 1_000_000)
            return web.Response(body=packed, headers={"Content-Encoding": "gzip"})
        if self.play == "no utf-8":
            broken = json.dumps(self._completion()).encode().replace(b"fake", b"fa\xc3")
            return web.Response(body=broken, content_type="application/json")
        if self.play == "slow":
            with contextlib.suppress(asyncio.CancelledError):
                await self.stop.wait()
        return web.json_response(self._completion())

    async def _answer_elsewhere(self, request: web.Request) -> web.StreamResponse:
        """Where a redirect leads: it must not be followed."""
        self.requests.append(await request.json())
        self.play = "plain"
        return web.json_response(self._completion())

    def _completion(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        if self.play == "refusal":
            message["refusal"] = "I cannot help with that."
        elif self.play == "parts":
            message["content"] = [{"type": "text", "text": part} for part in (json.dumps(self.answer), " ")]
        elif self.play == "no text":
            message["content"] = self.answer
        elif self.play in TEXTS:
            message["content"] = TEXTS[self.play](self.answer)
        choice = {"index": 0, "message": message, "finish_reason": _FINISH.get(self.play, "stop")}
        usage: dict[str, Any] = {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT}
        usage |= self.usage
        frame = {"id": "1", "object": "chat.completion", "created": 0, "model": "fake-1"}
        return {**frame, "choices": [choice], "usage": usage}

    async def _hang_up(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"id": "1", "choices": [{"message": {"content": "')
        assert request.transport is not None
        request.transport.close()
        return response


def _error(status: int, message: str, code: str | None = None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    return web.json_response({"error": error}, status=status, headers={"retry-after-ms": "1"})
