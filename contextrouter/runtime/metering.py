"""Metering of language models: counts the calls, tokens and cost of every generator within one request.

A plugin gets its generator wrapped in a `Metered`, which records into the meter of the running request.
The meter is a context variable: tasks of the request share it, other requests have another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import msgspec

from contextrouter.contracts import Completion, Generator, SupportsWriting, Writing
from contextrouter.model import ModelUsage
from contextrouter.settings import GeneratorKeys, Settings

_PER = 1_000_000  # tokens that a price is for
_MOST_TOKENS = 1_000_000_000  # of one call; more is no count
_NAME = 200  # characters of a model's name
Prices = tuple[float | None, float | None]
"""`price_in` and `price_out`, for a million tokens."""


class Meter:
    """What the generators of one request cost so far; `before` is what an earlier part of it cost."""

    def __init__(self, before: Sequence[ModelUsage] = ()) -> None:
        self._by_name = {usage.generator: usage for usage in before}

    def count_call(self, name: str) -> None:
        """Count a call that begins: it may cost, even if it fails."""
        usage = self._of(name)
        self._by_name[name] = usage.replace(calls=usage.calls + 1)

    def add(self, name: str, completion: Completion, prices: Prices) -> None:
        """Add what an answer cost, as far as its server says."""
        usage = self._of(name)
        self._by_name[name] = usage.replace(
            model=completion.model or usage.model,
            tokens_in=_sum(usage.tokens_in, completion.tokens_in),
            tokens_out=_sum(usage.tokens_out, completion.tokens_out),
            cost=_sum(usage.cost, cost(completion, prices)),
        )

    @property
    def usage(self) -> tuple[ModelUsage, ...]:
        """The usage of each generator, in the order of their first calls."""
        return tuple(self._by_name.values())

    def _of(self, name: str) -> ModelUsage:
        return self._by_name.get(name) or ModelUsage(generator=name)


_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


def start_metering() -> Meter:
    """Begin a request: return its meter, into which its generators record from here on."""
    meter = Meter()
    _meter.set(meter)
    return meter


def model_usage() -> tuple[ModelUsage, ...]:
    """Return what the generators of the running request cost so far."""
    meter = _meter.get()
    return meter.usage if meter is not None else ()


def prices_of(settings: Settings, name: str) -> Prices:
    """Return the prices in the table of a generator; None where it has none."""
    table = settings.generators.get(name)
    keys = table.keys if table is not None and table.keys is not None else GeneratorKeys()
    return keys.price_in, keys.price_out


def cost(completion: Completion, prices: Prices) -> float | None:
    """Return what an answer cost; None where it has no price, or its tokens are not known."""
    price_in, price_out = prices
    if price_in is None and price_out is None:
        return None
    if completion.tokens_in is None or completion.tokens_out is None:
        return None
    return (completion.tokens_in * (price_in or 0.0) + completion.tokens_out * (price_out or 0.0)) / _PER


def metered(generator: Generator, name: str, prices: Prices) -> Generator:
    """Return `generator` with a meter before it; it can write as before, if it could."""
    wrapper = _MeteredWriter if isinstance(generator, SupportsWriting) else Metered
    return wrapper(generator, name, prices)


class Metered(Generator):
    """A generator whose calls are counted. Everything else of it is that of the wrapped one."""

    def __init__(self, generator: Generator, name: str, prices: Prices) -> None:
        self._generator, self._name, self._prices = generator, name, prices

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    async def ping(self) -> None:
        """Ask the wrapped generator."""
        await self._generator.ping()

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the wrapped generator, and record its answer."""
        meter = self._count()
        answer: Any = await self._generator.complete(messages, schema=schema)
        if not isinstance(answer, Completion):  # whoever asked says what is wrong with it
            return answer  # type: ignore[no-any-return]  # a plugin may return anything
        completion = _with_plain_counts(answer)
        if meter is not None:
            meter.add(self._name, completion, self._prices)
        return completion

    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """Yield the pieces of the wrapped generator; a stream of texts does not say what it cost."""
        self._count()
        pieces: Any = self._generator.stream(messages)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    def _count(self) -> Meter | None:
        meter = _meter.get()
        if meter is not None:
            meter.count_call(self._name)
        return meter


class _MeteredWriter(Metered):
    """A generator that can be told how to write, and whose calls are counted."""

    async def write(
        self, messages: Sequence[Mapping[str, str]], writing: Writing
    ) -> AsyncIterator[str | Completion]:
        """Yield the pieces of the wrapped generator, and record the Completion at the end."""
        meter = self._count()
        pieces: Any = self._generator.write(messages, writing)  # type: ignore[attr-defined]  # it has the ability
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Completion):
                    piece = _with_plain_counts(piece)
                    if meter is not None:
                        meter.add(self._name, piece, self._prices)
                yield piece


def _with_plain_counts(completion: Completion) -> Completion:
    """Return a completion without counts that are none, and with a name that is one: a server may say
    anything.
    """
    name: Any = completion.model
    name = name[:_NAME] if isinstance(name, str) else ""
    tokens_in, tokens_out = _count_or_none(completion.tokens_in), _count_or_none(completion.tokens_out)
    same = (name, tokens_in, tokens_out) == (completion.model, completion.tokens_in, completion.tokens_out)
    if same and not isinstance(completion.tokens_in, bool) and not isinstance(completion.tokens_out, bool):
        return completion
    return msgspec.structs.replace(completion, model=name, tokens_in=tokens_in, tokens_out=tokens_out)


def _count_or_none(count: Any) -> int | None:
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MOST_TOKENS
    return count if is_count else None


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b
