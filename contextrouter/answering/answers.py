"""Answers: a generator writes from a context, and what it writes is checked on the way.

The answer comes in pieces, as the generator writes it, and at its end a `Draft` with everything that is known
about it then: its outcome, the tokens, the numbers cited and the checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from contextrouter.answering.answer_guard import AGAIN, check_answer
from contextrouter.answering.citation_markers import Markers
from contextrouter.answering.closing import closing
from contextrouter.answering.conversation import Conversation, Draft, Order
from contextrouter.answering.examples import Example, Meanings, load_examples, similar
from contextrouter.answering.generator_rules import FALLBACK, NO_TASK, bound_generator, quotes
from contextrouter.answering.markdown_markers import load_parser
from contextrouter.answering.prompt import messages
from contextrouter.answering.silence import in_time
from contextrouter.answering.thinking import Thinking
from contextrouter.answering.writing import Generators, compartment_generator, with_token_counts, write_pieces
from contextrouter.contracts import CLARIFY, GATED, Completion, Refusal, Thought, Writing
from contextrouter.errors import ContextRouterError, PluginError
from contextrouter.model import Context, Request
from contextrouter.model.answer import Answer, AnswerOutcome
from contextrouter.pipeline.deadline import Deadline
from contextrouter.runtime.abandoned_calls import AllAbandonedCalls
from contextrouter.runtime.lifecycle import Instances
from contextrouter.runtime.masking import mask
from contextrouter.runtime.metering import Meter, prices_of
from contextrouter.runtime.registry import Registry
from contextrouter.settings import Settings
from contextrouter.text.answer_links import AllLinks, LinkFilter

log = logging.getLogger("contextrouter")
DECLINED = "The model declined to answer."
_GROUNDED = ("answered", "facts_only")
_DECLINED = ("refusal", "filter")
_BETWEEN = "\n\n"  # the text of an answer and the refusal that ends it


class Answering:
    """Writes the answers of one router. Raises SettingsError for a file of examples that is wrong."""

    def __init__(self, settings: Settings, instances: Instances, registry: Registry) -> None:
        self.settings, self._instances = settings, instances
        self.generators = Generators(instances, registry)
        self._examples = load_examples(settings.chat.examples)
        self._meanings = Meanings(self._examples)
        self.abandoned = AllAbandonedCalls(settings.limits.max_abandoned)

    def make_order(self, request: Request) -> Order:
        """Return the order for a request: its history and its question, and what the settings say."""
        chat = self.settings.chat
        turns = [*request.history, {"role": "user", "content": request.question}]
        return Order(
            conversation=Conversation(turns=turns, index=len(turns) - 1),
            generator=compartment_generator(chat, request.scope) or chat.synthesis_model,
            writing=Writing(max_tokens=chat.synthesis_max_tokens),
        )

    def bind(self, order: Order, context: Context) -> Order:
        """Return the order with the generator that alone may read the context, where a rule names one.

        Raises RequestRefused where two rules would each have a generator of their own.
        """
        bound = bound_generator(self.settings.chat.compartment_generators, context)
        return msgspec.structs.replace(order, generator=bound) if bound else order

    async def whole(self, order: Order, context: Context) -> Draft:
        """Return the whole answer to one order from one context."""
        return await _draft(self.pieces(order, context, in_one=True))

    async def pieces(
        self, order: Order, context: Context, *, in_one: bool = False
    ) -> AsyncIterator[str | Draft]:
        """Yield the text in pieces with checked citation markers, and at the end the draft. A piece that is a
        Thought or a Refusal is no part of the text. With `in_one` the text comes as one piece.

        Raises PluginError when the generator fails, and none can write in its place or text is out already;
        RequestRefused as `bind`.
        """
        chat, order = self.settings.chat, self.bind(order, context)
        if order.task:
            async with closing(self._do_task(order, context)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        clarification = context.clarification
        if clarification is not None or (context.outcome not in _GROUNDED and chat.no_context == "say"):
            text = chat.no_context_text if clarification is None else clarification.question
            yield text
            silent = Completion(text=text, tokens_in=0, tokens_out=0)
            outcome = outcome_of(context, "stop")
            yield Draft(text=text, completion=silent, outcome=outcome, models=context.usage.models)
            return
        work = _Work(self, order, context, await self._prompt(order, context))
        if in_one or (chat.guard == "retry" and context.envelopes):
            draft = await work.whole()
            for part in (Thought(draft.thinking), draft.text, Refusal(draft.refusal)):
                if part:
                    yield part
            yield draft
            return
        async with closing(work.pieces()) as pieces:
            async for piece in pieces:
                yield piece

    async def _do_task(self, order: Order, context: Context) -> AsyncIterator[str | Draft]:
        """Let the generator do what a chat program wants of a conversation: the conversation is all it gets.
        One that quotes documents has nothing to quote, and refuses.
        """
        if quotes(self.settings, order.generator):
            nothing = Completion(text="", tokens_in=0, tokens_out=0, finish="refusal")
            yield Refusal(NO_TASK)
            yield Draft(text="", completion=nothing, outcome="declined", refusal=NO_TASK)
            return
        work = _Work(self, order, context, list(order.conversation.turns))
        async with closing(work.pieces()) as pieces:
            async for piece in pieces:
                yield piece

    async def _prompt(self, order: Order, context: Context) -> list[Mapping[str, str]]:
        examples = await self._choose_examples(order.conversation.question)
        turns = await order.conversation.without_markers()
        return messages(self.settings.chat, turns, context.text, examples)

    async def _choose_examples(self, question: str) -> Sequence[Example]:
        """Choose the examples, by meaning where the settings name an embedder; by words if it fails."""
        rag, chat = self.settings.rag, self.settings.chat
        if not (rag.use_enhancements and rag.enable_fewshot and self._examples):
            return []
        name = chat.examples_embedder
        if name:
            try:
                until = Deadline.after(rag.timeout_seconds)
                async with until.timeout():
                    await self._instances.ready("embedder", name)
                asking = self._meanings.similar(question, chat.max_examples, self._instances.embedders[name])
                return await until.run(asking, self.abandoned.of("embedder", name))
            except Exception as error:
                log.debug("examples are chosen by words: %s", type(error).__name__)
        return similar(question, self._examples, chat.max_examples)


class _Work:
    """The work on one answer."""

    def __init__(
        self, answering: Answering, order: Order, context: Context, prompt: list[Mapping[str, str]]
    ) -> None:
        self._answering, self._order, self._context, self._prompt = answering, order, context, prompt
        self._settings = answering.settings
        self._meter = Meter(context.usage.models)

    async def pieces(self) -> AsyncIterator[str | Draft]:
        """Yield the answer as it is written. A generator that fails before it writes anything is replaced."""
        started = False
        try:
            async with closing(self._write(self._order.generator, self._prompt)) as pieces:
                async for piece in pieces:
                    started = started or not isinstance(piece, Draft | Thought)
                    yield piece
            return
        except (ContextRouterError, OSError) as error:
            if started:
                raise
            reason = self._reason(error)
        async with closing(self._write_instead(reason)) as pieces:
            async for piece in pieces:
                yield piece

    async def whole(self) -> Draft:
        """Return the whole answer, with `guard = "retry"` once more where it fails a check."""
        try:
            draft = await _draft(self._write(self._order.generator, self._prompt))
            retry = self._settings.chat.guard == "retry" and self._context.envelopes
            if not retry or all(draft.checks.values()):
                return draft
        except (ContextRouterError, OSError) as error:
            return await _draft(self._write_instead(self._reason(error)))
        correction = [{"role": "assistant", "content": draft.text or "…"}, {"role": "user", "content": AGAIN}]
        try:
            second = await _draft(self._write(self._order.generator, [*self._prompt, *correction]))
        except (ContextRouterError, OSError) as error:
            return msgspec.structs.replace(draft, note="The second try failed", reason=self._masked(error))
        total = msgspec.structs.replace(
            second.completion,
            tokens_in=_sum(draft.completion.tokens_in, second.completion.tokens_in),
            tokens_out=_sum(draft.completion.tokens_out, second.completion.tokens_out),
        )
        if second.outcome == "declined":  # what there is already is more than that
            note = "The second try was declined"
            return msgspec.structs.replace(draft, completion=total, models=second.models, note=note)
        return msgspec.structs.replace(second, completion=total)

    def _reason(self, error: ContextRouterError | OSError) -> str:
        """Return why a generator failed. Raises the error where none writes in its place."""
        configured = self._settings.generators.get(FALLBACK)
        if (
            not self._settings.chat.fallback
            or self._order.generator == FALLBACK
            or not self._context.text
            or (configured is not None and configured.use != FALLBACK)  # another one by this name
        ):
            raise error
        return self._masked(error)

    def _masked(self, error: Exception) -> str:
        return mask(str(error) or type(error).__name__, self._settings.secrets)

    async def _write_instead(self, reason: str) -> AsyncIterator[str | Draft]:
        note = f"Generator {self._order.generator!r} failed, {FALLBACK!r} wrote"
        async with closing(self._write(FALLBACK, self._prompt)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Draft):
                    piece = msgspec.structs.replace(piece, note=note, reason=reason)
                yield piece

    async def _write(self, name: str, prompt: list[Mapping[str, str]]) -> AsyncIterator[str | Draft]:
        parts = _Parts(self._context, defuse=self._settings.chat.answer_links != "all")
        abandoned = self._answering.abandoned
        # What writes in the place of another asks nobody: it is only late where the machine is busy.
        silence = self._settings.chat.silence_seconds if name == self._order.generator else None
        async with asyncio.timeout(silence):
            generator = await self._answering.generators.ready(name)
        await load_parser()
        self._meter.count_call(name)
        writing = write_pieces(generator, prompt, self._order.writing)
        async with closing(in_time(writing, silence, abandoned.of("generator", name))) as pieces:
            async for piece in pieces:
                if isinstance(piece, Completion):
                    parts.completion = piece
                    piece = Thought("" if parts.thinking else piece.thinking)
                for part in parts.feed(piece):
                    yield part
        for part in parts.end():
            yield part
        completion = await with_token_counts(parts.completion, prompt)
        self._meter.add(name, completion, prices_of(self._settings, name))
        if not (parts.text.strip() or completion.finish in _DECLINED or self._order.writing.stop):
            reason = "it was cut off before its answer began" if completion.finish == "length" else "no text"
            raise PluginError(f"Generator {name!r} wrote no answer: {reason}.")
        if completion.finish in _DECLINED and not (parts.text or parts.refusal):
            parts.refusal = DECLINED
            yield Refusal(DECLINED)
        yield await self._finish(name, parts, completion)

    async def _finish(self, name: str, parts: _Parts, completion: Completion) -> Draft:
        context, checks = self._context, {}
        outcome = outcome_of(context, completion.finish)
        if outcome != "declined" and completion.finish != "abstained" and not self._order.task:
            question = self._order.conversation.question
            checks = dict(await check_answer(question, parts.text, parts.markers.used, context))
        return Draft(
            text=parts.text,
            completion=completion,
            outcome=outcome,
            generator=name,
            refusal=parts.refusal,
            thinking=parts.thinking,
            cited=parts.markers.used,
            checks=checks,
            models=self._meter.usage,
        )


class _Parts:
    """The parts of one answer as it comes: thinking, text with checked markers, and refusal. Links that are
    no citation are made harmless in each.
    """

    def __init__(self, context: Context, *, defuse: bool) -> None:
        self.markers, self.completion = Markers(len(context.envelopes)), Completion(text="")
        self.text = self.thinking = self.refusal = ""
        self._splitter = Thinking()
        documents = [envelope.document.url for envelope in context.envelopes]  # some open at a page of theirs
        urls = [*documents, *[citation.url for citation in context.citations]]
        self._links = {kind: LinkFilter(urls) if defuse else AllLinks() for kind in (str, Thought, Refusal)}

    def feed(self, piece: str) -> list[str]:
        """Add a piece of a generator. Returns the pieces that are ready."""
        if isinstance(piece, Thought | Refusal):
            kind = type(piece)
            return self._add(kind, self._links[kind].feed(piece))
        thinking, answer = self._splitter.feed(piece)
        return self._ready(thinking, self.markers.feed(answer) if answer else "")

    def end(self) -> list[str]:
        """End the answer. Returns the pieces that waited."""
        thinking, answer = self._splitter.end()
        ready = self._ready(thinking, self.markers.feed(answer) + self.markers.end())
        for kind, links in self._links.items():
            ready += self._add(kind, links.end())
        return ready

    def _ready(self, thinking: str, answer: str) -> list[str]:
        return [
            *self._add(Thought, self._links[Thought].feed(thinking)),
            *self._add(str, self._links[str].feed(answer)),
        ]

    def _add(self, kind: type[str], piece: str) -> list[str]:
        if not piece:
            return []
        if kind is Thought:
            self.thinking += piece
        elif kind is Refusal:
            self.refusal += piece
        else:
            self.text += piece
        return [kind(piece)]


def outcome_of(context: Context, finish: str) -> AnswerOutcome:
    """Return the outcome of an answer from a context, by how its generator finished."""
    if context.clarification is not None or context.outcome == CLARIFY:
        return "clarify"
    if finish in _DECLINED:
        return "declined"
    if context.outcome == GATED:
        return "gated"
    return "answered" if context.outcome in _GROUNDED and finish != "abstained" else "empty"


async def visible_pieces(pieces: AsyncIterator[str | Draft]) -> AsyncIterator[str | Draft]:
    """Yield what a user reads of an answer: its pieces without the thinking, and at the end the draft.
    Joined, they are the text of the Answer.
    """
    previous: type[str] | None = None
    async with closing(pieces) as items:
        async for piece in items:
            if isinstance(piece, Thought):
                continue
            if isinstance(piece, Refusal) and previous is str:
                yield Refusal(_BETWEEN)
            if not isinstance(piece, Draft):
                previous = Refusal if isinstance(piece, Refusal) else str
            yield piece


def note_of(draft: Draft) -> str:
    """Return what is to be known of how an answer came about."""
    return f"{draft.note}: {draft.reason}" if draft.reason else draft.note


def to_answer(draft: Draft, context: Context) -> Answer:
    """Return a draft as the Answer that callers get."""
    return Answer(
        question=context.question,
        outcome=draft.outcome,
        text=_BETWEEN.join(part for part in (draft.text, draft.refusal) if part),
        citations=tuple([context.citations[number - 1] for number in draft.cited]),
        context=context,
        usage=context.usage.replace(models=tuple(draft.models)),
        generator=draft.generator,
        finish=draft.completion.finish,
        thinking=draft.thinking,
        checks=draft.checks,
        note=note_of(draft),
    )


async def _draft(pieces: AsyncIterator[str | Draft]) -> Draft:
    """Read an answer to its end."""
    async with closing(pieces) as items:
        async for item in items:
            if isinstance(item, Draft):
                return item
    raise AssertionError("an answer ends with its draft")


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)
