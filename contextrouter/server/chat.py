"""OpenAI-compatible chat endpoints: `POST /v1/chat/completions` and `GET /v1/models`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from contextrouter.answering import Draft, Order
from contextrouter.answering.answers import note_of
from contextrouter.answering.closing import closing
from contextrouter.contracts import Refusal, Thought
from contextrouter.model import Context
from contextrouter.serialization import plain
from contextrouter.server.chat_answers import context_of, models_of, read_order, unknown_model
from contextrouter.server.chat_schema import (
    ChatAnswered,
    ChatAsked,
    ChatUsage,
    Choice,
    Cited,
    MessageAnswered,
    ModelShown,
    ModelsShown,
    Receipt,
)
from contextrouter.server.citation_links import follow, origin_of
from contextrouter.server.endpoints import Endpoint, Exchange, json_response


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a reply before its text: its id, and what the text is written from."""

    id: str
    created: int
    model: str
    generator: str
    context: Context
    request_id: str
    trace_id: str = ""

    def whole(self, draft: Draft) -> ChatAnswered:
        """Return the reply as one object."""
        return ChatAnswered(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[Choice(message=_message(draft), finish_reason=_openai_finish(draft))],
            usage=_usage(draft),
            contextrouter=self.receipt(draft),
        )

    def chunk(self, delta: Mapping[str, str], finish: str | None = None) -> dict[str, Any]:
        """Return a chunk of a stream, with a part of the reply."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self.empty_chunk(), "choices": [choice]}

    def empty_chunk(self) -> dict[str, Any]:
        """Return a chunk of a stream without a part of the reply."""
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [],
        }

    def receipt(self, draft: Draft) -> Receipt:
        """Return how the answer came about. A number is that of its context block, whatever else is cited."""
        context = self.context
        sources = [
            Cited(
                number=citation.number,
                id=envelope.document.id,
                title=citation.title,
                url=citation.url,
                source=citation.source,
                job=citation.job,
                path=citation.path,
                place=citation.place,
                file=citation.file,
            )
            for citation, envelope in zip(context.citations, context.envelopes, strict=True)
        ]
        return Receipt(
            outcome=_outcome(draft, context),
            query_type=context.intent.kind,
            generator=draft.generator or self.generator,
            citations={str(number): sources[number - 1] for number in draft.cited},
            sources=sources,
            facts=[plain(fact) for fact in context.facts],
            entities=[plain(entity) for entity in context.entities],
            answerability=plain(context.answerability),
            degraded=context.degraded,
            guard=draft.checks,
            models=[plain(usage) for usage in draft.models],
            request_id=self.request_id,
            note=note_of(draft),
            trace_id=self.trace_id,
        )


def _message(draft: Draft) -> MessageAnswered:
    return MessageAnswered(
        content=draft.text, refusal=draft.refusal or None, reasoning_content=draft.thinking or None
    )


def _outcome(draft: Draft, context: Context) -> str:
    """Return the outcome of the context, unless the generator refuses, or nothing that was found answers."""
    unanswered = draft.outcome == "empty" and context.text
    return draft.outcome if unanswered or draft.outcome == "declined" else context.outcome


def _openai_finish(draft: Draft) -> str:
    """Return OpenAI's word for how an answer ended: a model that refuses stops."""
    finish = draft.completion.finish
    return {"filter": "content_filter", "refusal": "stop", "abstained": "stop"}.get(finish, finish)


def _usage(draft: Draft) -> ChatUsage:
    tokens_in, tokens_out = draft.completion.tokens_in or 0, draft.completion.tokens_out or 0
    return ChatUsage(
        prompt_tokens=tokens_in, completion_tokens=tokens_out, total_tokens=tokens_in + tokens_out
    )


async def completions(exchange: Exchange) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    order = read_order(exchange)
    server = exchange.server
    context = await context_of(server, exchange.caller, order)
    order = server.router.answering.bind(order, context)
    reply = Reply(
        id=f"chatcmpl-{secrets.token_hex(12)}",
        created=int(time.time()),
        model=exchange.body.model,
        generator=order.generator,
        context=follow(context, exchange.caller, origin_of(exchange)),
        request_id=exchange.request_id,
        trace_id=exchange.trace_id,
    )
    if exchange.body.stream:
        return await _stream(exchange, order, reply)
    draft = server.finish(await server.router.answering.whole(order, context), exchange.caller)
    return json_response(reply.whole(draft))


async def _stream(exchange: Exchange, order: Order, reply: Reply) -> web.StreamResponse:
    """Send server-sent events: the role, the text, a chunk with the finish reason and the receipt, `[DONE]`.

    A client that sets `include_usage` gets one chunk more, with the usage.
    """
    events = await exchange.stream()
    options = exchange.body.stream_options
    usage = {"usage": None} if options and options.include_usage else {}
    await events.send({**reply.chunk({"role": "assistant", "content": ""}), **usage})
    async with closing(exchange.server.router.answering.pieces(order, reply.context)) as pieces:
        async for piece in pieces:
            if isinstance(piece, str):
                await events.send({**reply.chunk({_channel(piece): str(piece)}), **usage})
                continue
            draft = exchange.server.finish(piece, exchange.caller)
            end = reply.chunk({}, _openai_finish(draft))
            await events.send({**end, **usage, "contextrouter": reply.receipt(draft)})
            if usage:
                await events.send({**reply.empty_chunk(), "usage": _usage(draft)})
    await events.send("[DONE]")
    await events.write_eof()
    return events


def _channel(piece: str) -> str:
    """Return the field of a delta that a piece belongs to."""
    if isinstance(piece, Thought):
        return "reasoning_content"
    return "refusal" if isinstance(piece, Refusal) else "content"


async def models(exchange: Exchange) -> web.StreamResponse:
    """GET /v1/models."""
    names = models_of(exchange.server.settings.chat, exchange.caller)
    return json_response(ModelsShown(data=[ModelShown(id=name) for name in names]))


async def model(exchange: Exchange) -> web.StreamResponse:
    """GET /v1/models/{model}: the name may hold slashes."""
    name = exchange.request.path.partition("/v1/models/")[2].rstrip("/")
    names = models_of(exchange.server.settings.chat, exchange.caller)
    if name not in names:
        raise unknown_model(name, names)
    return json_response(ModelShown(id=name))


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
    Endpoint(
        method="GET",
        path="/v1/models/{model}",
        handle=model,
        summary="A model that the caller may name",
        answer=ModelShown,
        openai=True,
        errors=(404, 429, 503),
    ),
)
