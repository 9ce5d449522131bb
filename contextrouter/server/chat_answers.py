"""Chat answers: retrieve the context of a conversation and generate an answer with citation markers.

The answer comes in pieces, as the generator writes it, and at its end a `Draft` with everything that is known
about it then: the tokens, the numbers cited and the checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from contextrouter.contracts import Completion, Writing
from contextrouter.model import Context, ModelUsage, Request
from contextrouter.runtime.metering import Meter, prices_of
from contextrouter.server.answer_guard import AGAIN, check_answer
from contextrouter.server.answer_writing import write_pieces
from contextrouter.server.auth import Caller
from contextrouter.server.chat_schema import ChatAsked
from contextrouter.server.citation_markers import Markers
from contextrouter.server.endpoints import Exchange, ServerState
from contextrouter.server.prompt import messages, similar
from contextrouter.server.router_endpoints import check_sources
from contextrouter.server.streams import closing
from contextrouter.text import tokens
from contextrouter.text.answer_links import AllLinks, LinkFilter

_GROUNDED = ("answered", "facts_only")


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a conversation. The last user turn with a text, at `index`, is the question."""

    turns: Sequence[Mapping[str, str]]
    index: int

    @property
    def question(self) -> str:
        """The text of the question."""
        return self.turns[self.index]["content"]

    @property
    def history(self) -> Sequence[Mapping[str, str]]:
        """The turns before the question."""
        return self.turns[: self.index]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer: the conversation, the generator that writes, and its limits."""

    conversation: Conversation
    generator: str
    writing: Writing


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is written: its text, the generator's completion, the numbers cited, the checks, and
    what all language models of the request cost.
    """

    text: str
    completion: Completion
    cited: Sequence[int] = ()
    checks: Mapping[str, bool] = {}
    models: Sequence[ModelUsage] = ()


def read_order(exchange: Exchange) -> Order:
    """Read a chat request. Raises Refused without a question, or for a model that the caller may not use."""
    body: ChatAsked = exchange.body
    turns = body.conversation()
    generator = exchange.server.generators.choose(exchange.caller, body.model)
    index = max(i for i, turn in enumerate(turns) if turn["role"] == "user" and turn["content"].strip())
    limits = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    return Order(
        conversation=Conversation(turns=turns, index=index),
        generator=generator,
        writing=Writing(
            max_tokens=min([*limits, exchange.server.settings.chat.synthesis_max_tokens]),
            temperature=body.temperature,
            top_p=body.top_p,
            stop=body.stops(),
        ),
    )


async def retrieve(server: ServerState, caller: Caller, conversation: Conversation) -> Context:
    """Find the context for the question, of which the beginning is enough to search with."""
    sources = check_sources(caller, None)
    request = Request(
        question=conversation.question[: server.settings.chat.max_query_chars],
        history=tuple(conversation.history),
        scope=caller.scope,
        sources=None if sources is None else tuple(sources),
    )
    async with server.running:
        context = await server.router.route(request)
    server.metrics.context(context)
    return context


class AnswerWriter:
    """Writes the answer to one order from one context."""

    def __init__(self, server: ServerState, order: Order, context: Context) -> None:
        self._server, self._order, self._context = server, order, context
        self._meter = Meter(context.usage.models)

    async def pieces(self) -> AsyncIterator[str | Draft]:
        """Yield the text in pieces with checked citation markers, and at the end the draft."""
        chat = self._server.settings.chat
        clarification = self._context.clarification
        if clarification is not None or (self._context.outcome not in _GROUNDED and chat.no_context == "say"):
            text = chat.no_context_text if clarification is None else clarification.question
            yield text
            silent = Completion(text=text, tokens_in=0, tokens_out=0)
            yield Draft(text=text, completion=silent, models=self._meter.usage)
            return
        prompt = self._prompt()
        if chat.guard == "retry" and self._context.envelopes:
            draft = await self._write_checked(prompt)
            yield draft.text
            yield draft
            return
        async with closing(self._write(prompt)) as pieces:
            async for piece in pieces:
                yield piece

    async def whole(self) -> Draft:
        """Return the whole answer."""
        return await _draft(self.pieces())

    def _prompt(self) -> list[Mapping[str, str]]:
        settings, conversation = self._server.settings, self._order.conversation
        few_shot = settings.rag.use_enhancements and settings.rag.enable_fewshot
        pool = self._server.examples if few_shot else []
        examples = similar(conversation.question, pool, settings.chat.max_examples)
        return messages(settings.chat, conversation.turns, self._context.text, examples)

    def _links(self) -> LinkFilter | AllLinks:
        """Return what makes links harmless that are no citation, unless the settings allow all."""
        if self._server.settings.chat.answer_links == "all":
            return AllLinks()
        return LinkFilter(citation.url for citation in self._context.citations)

    async def _write_checked(self, prompt: list[Mapping[str, str]]) -> Draft:
        """Write the whole answer, and once more when it fails a check: no citations, or another script."""
        draft = await _draft(self._write(prompt))
        if all(draft.checks.values()):
            return draft
        correction = [{"role": "assistant", "content": draft.text or "…"}, {"role": "user", "content": AGAIN}]
        second = await _draft(self._write([*prompt, *correction]))
        total = msgspec.structs.replace(
            second.completion,
            tokens_in=_sum(draft.completion.tokens_in, second.completion.tokens_in),
            tokens_out=_sum(draft.completion.tokens_out, second.completion.tokens_out),
        )
        return msgspec.structs.replace(second, completion=total)

    async def _write(self, prompt: list[Mapping[str, str]]) -> AsyncIterator[str | Draft]:
        order, context = self._order, self._context
        markers, completion, text = Markers(len(context.envelopes)), Completion(text=""), ""
        links = self._links()
        generator = await self._server.generators.ready(order.generator)
        self._meter.count_call(order.generator)
        async with closing(write_pieces(generator, prompt, order.writing)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Completion):
                    completion = piece
                elif complete := links.feed(markers.feed(piece)):
                    text += complete
                    yield complete
        if tail := links.feed(markers.end()) + links.end():
            text += tail
            yield tail
        completion = _count_tokens(completion, prompt)
        self._server.metrics.tokens(order.generator, completion.tokens_in, completion.tokens_out)
        self._meter.add(order.generator, completion, prices_of(self._server.settings, order.generator))
        checks = check_answer(order.conversation.question, text, markers.used, context)
        yield Draft(
            text=text, completion=completion, cited=markers.used, checks=checks, models=self._meter.usage
        )


async def _draft(pieces: AsyncIterator[str | Draft]) -> Draft:
    """Read an answer to its end."""
    async with closing(pieces) as items:
        async for item in items:
            if isinstance(item, Draft):
                return item
    raise AssertionError("an answer ends with its draft")


def _count_tokens(completion: Completion, prompt: Sequence[Mapping[str, str]]) -> Completion:
    """Count the tokens that the generator did not report."""
    tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
    if tokens_in is None:
        tokens_in = sum(tokens.count(message["content"]) for message in prompt)
    if tokens_out is None:
        tokens_out = tokens.count(completion.text)
    return msgspec.structs.replace(completion, tokens_in=tokens_in, tokens_out=tokens_out)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)
