"""Writing: the generators of the settings, and text generation within limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

from contextrouter.answering.closing import closing
from contextrouter.contracts import (
    Abstention,
    Completion,
    Generator,
    Refusal,
    SupportsWriting,
    Thought,
    Writing,
)
from contextrouter.errors import ContextRouterError, PluginError
from contextrouter.runtime.lifecycle import Instances
from contextrouter.runtime.plugin_calls import containment, text_of
from contextrouter.runtime.registry import Registry
from contextrouter.runtime.threads import work_aside
from contextrouter.scope import Scope
from contextrouter.settings import Chat, Instance
from contextrouter.text import tokens

_END = object()


def compartment_generator(chat: Chat, scope: Scope | None) -> str | None:
    """Return the generator of a compartment that a scope allows; None: none is bound to one."""
    if scope is None:
        return None
    generators = chat.compartment_generators
    return next((generators[name] for name in generators if name in scope.compartments), None)


class Generators:
    """The generators of the settings, and those that need no settings, such as `extractive`."""

    def __init__(self, instances: Instances, registry: Registry) -> None:
        self._instances, self._registry = instances, registry
        self._own: dict[str, Generator] = {}

    async def ready(self, name: str) -> Generator:
        """Return the generator of this name, open."""
        if name in self._instances.generators:
            await self._instances.ready("generator", name)
            return self._instances.generators[name]
        if name not in self._own:  # the settings name it and have no table for it: it gets its defaults
            instance = Instance(kind="generator", name=name, use=name, keys=None)
            generator = cast(Generator, await work_aside(self._registry.build, instance, {}))  # it imports
            await generator.open()
            self._own.setdefault(name, generator)
        return self._own[name]


async def write_pieces(
    generator: Generator, messages: Sequence[Mapping[str, str]], writing: Writing
) -> AsyncIterator[str | Completion]:
    """Yield an answer in pieces, and at its end the Completion.

    The text of a generator that takes no limits is cut to them here.
    """
    stream: AsyncIterator[str | Completion]
    if isinstance(generator, SupportsWriting):
        stream = _pieces_of(generator.write, messages, writing)
    else:
        stream = _cut(generator, messages, writing)
    async with closing(stream) as pieces:
        async for piece in pieces:
            yield piece


async def _pieces_of(write: Callable[..., AsyncIterator[Any]], *arguments: object) -> AsyncIterator[Any]:
    """Yield the pieces of a generator. Whatever it raises is a PluginError, so that another can write in its
    place, and so is a piece that is neither a text nor a Completion.
    """
    stream: Any = None
    try:
        while True:
            try:
                with containment():
                    stream = write(*arguments) if stream is None else stream
                    piece = await anext(stream, _END)
            except (ContextRouterError, OSError):
                raise
            except Exception as error:
                raise PluginError(f"{type(error).__name__}: {text_of(error)}") from error
            if piece is _END:
                return
            if not isinstance(piece, str | Completion):
                raise PluginError(f"The generator wrote {type(piece).__name__}, not a text.")
            if isinstance(piece, Completion) and not isinstance(piece.text, str):
                raise PluginError(f"The text of the generator's Completion is {type(piece.text).__name__}.")
            yield piece
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


async def _cut(
    generator: Generator, messages: Sequence[Mapping[str, str]], writing: Writing
) -> AsyncIterator[str | Completion]:
    """Yield a generator's own stream up to the first stop text and the limit of tokens."""
    reserve = max((len(text) - 1 for text in writing.stop), default=0)
    text, sent, finish = "", 0, "stop"
    async with closing(_pieces_of(generator.stream, messages)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Thought | Refusal):
                finish = "refusal" if isinstance(piece, Refusal) else finish
                yield piece
                continue
            if isinstance(piece, Abstention):
                finish = "abstained"
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
    yield Completion(
        text=text, model="", tokens_out=tokens.count(text), finish=finish
    )  # who reads counts the prompt
