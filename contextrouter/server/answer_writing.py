"""Generators of chat answers: the choice of a model for a caller, and text generation within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

from contextrouter.contracts import Completion, Generator, SupportsWriting, Writing
from contextrouter.router import ContextRouter
from contextrouter.server.auth import Caller
from contextrouter.server.error_responses import Refused
from contextrouter.server.streams import closing
from contextrouter.settings import Instance
from contextrouter.text import tokens

MODEL = "contextrouter"
"""The name of the model that every server has. The settings say which generator it stands for."""


class Generators:
    """The generators of the settings, and those that need no settings, such as `extractive`."""

    def __init__(self, router: ContextRouter) -> None:
        self.router, self.chat = router, router.settings.chat
        self._own: dict[str, Generator] = {}

    def sole_generator(self, caller: Caller) -> str | None:
        """Return the only generator that may write for this caller; None: the caller may choose.

        It is the one of the API key, else the one of a compartment that the caller may see.
        """
        if caller.generator is not None:
            return caller.generator
        if caller.scope is None:
            return None
        generators = self.chat.compartment_generators
        return next((generators[name] for name in generators if name in caller.scope.compartments), None)

    def models(self, caller: Caller) -> list[str]:
        """Return the models that this caller may name."""
        return [MODEL] if self.sole_generator(caller) else [MODEL, *self.chat.models]

    def choose(self, caller: Caller, model: str) -> str:
        """Choose the generator of a request. Raises Refused (404) for a model that is not the caller's."""
        models = self.models(caller)
        if model not in models:
            detail = (
                f"The model {model!r} does not exist or may not be used by this key. Models:"
                f" {', '.join(models)}."
            )
            raise Refused(404, "model_not_found", detail, param="model")
        return (self.sole_generator(caller) or self.chat.synthesis_model) if model == MODEL else model

    async def ready(self, name: str) -> Generator:
        """Return the generator of this name, open."""
        if name in self.router.instances.generators:
            await self.router.instances.ready("generator", name)
            return self.router.instances.generators[name]
        if name not in self._own:  # the settings name it and have no table for it: it gets its defaults
            instance = Instance(kind="generator", name=name, use=name, keys=None)
            generator = cast(Generator, self.router.registry.build(instance, {}))
            await generator.open()
            self._own[name] = generator
        return self._own[name]


async def write_pieces(
    generator: Generator, messages: Sequence[Mapping[str, str]], writing: Writing
) -> AsyncIterator[str | Completion]:
    """Yield an answer in pieces, and at its end the Completion.

    The text of a generator that takes no limits is cut to them here.
    """
    stream: AsyncIterator[str | Completion]
    if isinstance(generator, SupportsWriting):
        stream = generator.write(messages, writing)
    else:
        stream = _cut(generator, messages, writing)
    async with closing(stream) as pieces:
        async for piece in pieces:
            yield piece


async def _cut(
    generator: Generator, messages: Sequence[Mapping[str, str]], writing: Writing
) -> AsyncIterator[str | Completion]:
    """Yield a generator's own stream up to the first stop text and the limit of tokens."""
    reserve = max((len(text) - 1 for text in writing.stop), default=0)
    text, sent, finish = "", 0, "stop"
    async with closing(generator.stream(messages)) as pieces:
        async for piece in pieces:
            text += piece
            end = min((at for stop in writing.stop if (at := text.find(stop)) >= 0), default=-1)
            over = writing.max_tokens is not None and tokens.count(text) > writing.max_tokens
            if over and end < 0:
                text, finish = tokens.truncate(text, writing.max_tokens or 0), "length"
            elif end >= 0:
                text = text[:end]
            boundary = len(text) if over or end >= 0 else len(text) - reserve
            if boundary > sent:
                yield text[sent:boundary]
                sent = boundary
            if over or end >= 0:
                break
    if len(text) > sent:
        yield text[sent:]
    read = sum(tokens.count(message["content"]) for message in messages)
    yield Completion(text=text, model="", tokens_in=read, tokens_out=tokens.count(text), finish=finish)
