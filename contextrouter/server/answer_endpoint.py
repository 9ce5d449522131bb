"""HTTP endpoint `POST /v1/answer`: a question to its cited answer, as a whole or as a stream."""

from __future__ import annotations

import msgspec
from aiohttp import web

from contextrouter.answering import Draft, to_answer, visible_pieces
from contextrouter.answering.closing import closing
from contextrouter.contracts import Refusal
from contextrouter.errors import RequestRefused
from contextrouter.model import Answer
from contextrouter.server.chat_answers import choose_generator
from contextrouter.server.citation_links import follow, origin_of
from contextrouter.server.endpoints import Endpoint, Exchange, json_response
from contextrouter.server.hidden_errors import hide_errors
from contextrouter.server.request_schema import RouteAsked, schema_type
from contextrouter.server.router_endpoints import QUESTION, QUESTION_ERRORS, make_request, retrieve


class AnswerAsked(RouteAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to answer in words. With `stream`, the text comes in pieces, and then the answer."""

    model: str = "contextrouter"


async def answer(exchange: Exchange) -> web.StreamResponse:
    """POST /v1/answer."""
    request, server = make_request(exchange), exchange.server
    if not request.question.strip():
        raise RequestRefused("The question is empty. Ask with at least one word.")
    answering = server.router.answering
    generator = choose_generator(server.settings.chat, exchange.caller, exchange.body.model)
    order = msgspec.structs.replace(answering.make_order(request), generator=generator)
    context = await retrieve(server, request)
    detail = exchange.body.detail
    order = answering.bind(order, context)
    visible = follow(hide_errors(context, exchange.caller), exchange.caller, origin_of(exchange))
    if not exchange.body.stream:
        draft = server.finish(await answering.whole(order, context), exchange.caller)
        return json_response(to_answer(draft, visible).to_dict(detail))
    events = await exchange.stream()
    async with closing(visible_pieces(answering.pieces(order, context))) as pieces:
        async for piece in pieces:
            if isinstance(piece, Draft):
                draft = server.finish(piece, exchange.caller)
                await events.send(to_answer(draft, visible).to_dict(detail), "result")
            else:
                await events.send({"text": piece}, "refusal" if isinstance(piece, Refusal) else "text")
    await events.write_eof()
    return events


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/answer",
        handle=answer,
        summary="Answer a question in words, citing the context",
        body=AnswerAsked,
        answer=schema_type(Answer),
        errors=(*QUESTION_ERRORS[:1], 404, *QUESTION_ERRORS[1:]),
        example=QUESTION,
        streams=(
            "`text` for each piece of the answer (`refusal`, where the model refuses), then `result` (the"
            " Answer), or `error` (a Problem)"
        ),
    ),
)
