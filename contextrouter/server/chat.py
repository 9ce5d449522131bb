"""`POST /v1/chat/completions` and `GET /v1/models`: answers written from the context, in OpenAI's wire
format.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, cast

import msgspec
from aiohttp import web

from contextrouter.contracts import Completion, Writing
from contextrouter.model import Context, Request
from contextrouter.serialization import plain
from contextrouter.server.answer_guard import AGAIN, judged
from contextrouter.server.answer_writing import written
from contextrouter.server.chat_schema import (
    Answer,
    ChatAnswered,
    ChatAsked,
    ChatUsage,
    Choice,
    Cited,
    ModelShown,
    ModelsShown,
    Receipt,
)
from contextrouter.server.citation_markers import Markers
from contextrouter.server.endpoints import Endpoint, Exchange, answered
from contextrouter.server.prompt import messages, similar
from contextrouter.server.router_endpoints import sources_of
from contextrouter.text import tokens

_GROUNDED = ("answered", "facts_only")


class Reply:
    """One answer: what was asked, found and written."""

    def __init__(self, exchange: Exchange) -> None:
        asked: ChatAsked = exchange.body
        self.exchange, self.asked, self.chat = exchange, asked, exchange.server.settings.chat
        self.id, self.created = f"chatcmpl-{secrets.token_hex(12)}", int(time.time())
        self.conversation = asked.conversation()
        self.generator = exchange.server.generators.chosen(exchange.caller, asked.model)
        self.question = next(turn["content"] for turn in reversed(self.conversation) if self._asks(turn))
        limits = [n for n in (asked.max_tokens, asked.max_completion_tokens) if n is not None]
        self.writing = Writing(
            max_tokens=min([*limits, self.chat.synthesis_max_tokens]),
            temperature=asked.temperature,
            top_p=asked.top_p,
            stop=asked.stops(),
        )
        self.context: Context
        self.markers = Markers(0)
        self.done = Completion(text="")
        self.guard: Mapping[str, bool] = {}

    @staticmethod
    def _asks(turn: Mapping[str, str]) -> bool:
        return turn["role"] == "user" and bool(turn["content"].strip())

    async def retrieve(self) -> None:
        """Find the context for the last user message, of which the beginning is enough to search with."""
        last = max(place for place, turn in enumerate(self.conversation) if self._asks(turn))
        caller, server = self.exchange.caller, self.exchange.server
        sources = sources_of(caller, None)
        request = Request(
            question=self.question[: self.chat.max_query_chars],
            history=tuple(self.conversation[:last]),
            scope=caller.scope,
            sources=None if sources is None else tuple(sources),
        )
        async with server.running:
            self.context = await server.router.route(request)
        server.metrics.context(self.context)

    async def pieces(self) -> AsyncIterator[str]:
        """The answer in pieces, its markers checked; then `done`, `guard` and `markers` say how it came
        out.
        """
        self.markers = Markers(len(self.context.envelopes))
        if self.context.outcome not in _GROUNDED and self.chat.no_context == "say":
            self.done = Completion(text=self.chat.no_context_text, tokens_in=0, tokens_out=0)
            yield self.chat.no_context_text
            return
        server = self.exchange.server
        rag = server.settings.rag
        known = server.examples if rag.use_enhancements and rag.enable_fewshot else []
        examples = similar(self.question, known, self.chat.max_examples)
        prompt = messages(self.chat, self.conversation, self.context.text, examples)
        if self.chat.guard == "retry" and self.context.envelopes:
            yield await self._guarded(prompt)
            return
        shown = []
        async with aclosing(cast(Any, self._written(prompt))) as pieces:
            async for piece in pieces:
                shown.append(piece)
                yield piece
        self.guard = judged(self.question, "".join(shown), self.markers.used, self.context)

    async def _guarded(self, prompt: list[Mapping[str, str]]) -> str:
        """The whole answer; one without citations, or in another script than the question's, is asked for
        once more.
        """
        text = "".join([piece async for piece in self._written(prompt)])
        self.guard = judged(self.question, text, self.markers.used, self.context)
        if all(self.guard.values()):
            return text
        first, self.markers = self.done, Markers(len(self.context.envelopes))
        again = [*prompt, {"role": "assistant", "content": text or "…"}, {"role": "user", "content": AGAIN}]
        text = "".join([piece async for piece in self._written(again)])
        self.guard = judged(self.question, text, self.markers.used, self.context)
        spent = {
            name: _sum(getattr(first, name), getattr(self.done, name)) for name in ("tokens_in", "tokens_out")
        }
        self.done = msgspec.structs.replace(self.done, **spent)
        return text

    async def _written(self, prompt: list[Mapping[str, str]]) -> AsyncIterator[str]:
        server = self.exchange.server
        generator = await server.generators.ready(self.generator)
        async with aclosing(cast(Any, written(generator, prompt, self.writing))) as pieces:
            async for piece in pieces:
                if isinstance(piece, Completion):
                    self.done = piece
                elif shown := self.markers.feed(piece):
                    yield shown
        if rest := self.markers.end():
            yield rest
        read = sum(tokens.count(message["content"]) for message in prompt)
        known = {"tokens_in": self.done.tokens_in, "tokens_out": self.done.tokens_out}
        counted = {"tokens_in": read, "tokens_out": tokens.count(self.done.text)}
        self.done = msgspec.structs.replace(
            self.done, **{n: counted[n] if v is None else v for n, v in known.items()}
        )
        server.metrics.tokens(self.generator, self.done.tokens_in, self.done.tokens_out)

    def usage(self) -> ChatUsage:
        """What the answer cost."""
        taken, wrote = self.done.tokens_in or 0, self.done.tokens_out or 0
        return ChatUsage(prompt_tokens=taken, completion_tokens=wrote, total_tokens=taken + wrote)

    def receipt(self) -> Receipt:
        """How the answer came about. Each number is that of its block, whatever else was cited."""
        context = self.context
        sources = [
            Cited(
                number=each.number,
                id=envelope.document.id,
                title=each.title,
                url=each.url,
                source=each.source,
            )
            for each, envelope in zip(context.citations, context.envelopes, strict=True)
        ]
        return Receipt(
            outcome=context.outcome,
            query_type=context.intent.kind,
            generator=self.generator,
            citations={str(number): sources[number - 1] for number in self.markers.used},
            sources=sources,
            facts=[plain(fact) for fact in context.facts],
            entities=[plain(entity) for entity in context.entities],
            answerability=plain(context.answerability),
            degraded=context.degraded,
            guard=self.guard,
            request_id=self.exchange.request_id,
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


async def completions(exchange: Exchange) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    reply = Reply(exchange)
    await reply.retrieve()
    if exchange.body.stream:
        return await _streamed(exchange, reply)
    text = "".join([piece async for piece in reply.pieces()])
    choice = Choice(message=Answer(content=text), finish_reason=reply.done.finish)
    return answered(
        ChatAnswered(
            id=reply.id,
            created=reply.created,
            model=exchange.body.model,
            choices=[choice],
            usage=reply.usage(),
            contextrouter=reply.receipt(),
        )
    )


async def _streamed(exchange: Exchange, reply: Reply) -> web.StreamResponse:
    """Chunks: the role, the text, an empty last one with the reason and the receipt, the usage where asked
    for, and the end.
    """
    events = await exchange.stream()
    options = exchange.body.stream_options
    counted = bool(options and options.include_usage)
    base = {
        "id": reply.id,
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": exchange.body.model,
    }
    if counted:
        base["usage"] = None

    def chunk(delta: Mapping[str, str], finish: str | None = None) -> dict[str, Any]:
        return {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    await events.send(chunk({"role": "assistant", "content": ""}))
    async with aclosing(cast(Any, reply.pieces())) as pieces:
        async for piece in pieces:
            await events.send(chunk({"content": piece}))
    await events.send({**chunk({}, reply.done.finish), "contextrouter": reply.receipt()})
    if counted:
        await events.send({**base, "choices": [], "usage": reply.usage()})
    await events.send("[DONE]")
    await events.write_eof()
    return events


async def models(exchange: Exchange) -> web.StreamResponse:
    """GET /v1/models."""
    names = exchange.server.generators.models(exchange.caller)
    return answered(ModelsShown(data=[ModelShown(id=name) for name in names]))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/chat/completions",
        handle=completions,
        summary="Answer a conversation, citing the context",
        body=ChatAsked,
        answer=ChatAnswered,
        openai=True,
        errors=(400, 404, 408, 413, 415, 422, 429, 502, 503, 504),
        streams=(
            "OpenAI's chunks; the last one with a finish reason carries the receipt, and [DONE] ends every"
            " stream"
        ),
        example={
            "model": "contextrouter",
            "messages": [{"role": "user", "content": "Which book explains search engines?"}],
        },
    ),
    Endpoint(
        method="GET",
        path="/v1/models",
        handle=models,
        summary="The models that the caller may name",
        answer=ModelsShown,
        openai=True,
        errors=(429, 503),
    ),
)
