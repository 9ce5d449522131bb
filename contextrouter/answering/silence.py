"""Reads the stream of a generator within limits: one that is silent for too long, or panics, fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from contextrouter.answering.closing import closing
from contextrouter.errors import ContextRouterError, PluginError
from contextrouter.pipeline.deadline import GRACE
from contextrouter.runtime.abandoned_calls import AbandonedCalls, consume_exception
from contextrouter.runtime.plugin_calls import containment, text_of

Piece = TypeVar("Piece")


async def in_time(
    stream: AsyncIterator[Piece], seconds: float | None, abandoned: AbandonedCalls
) -> AsyncIterator[Piece]:
    """Yield the pieces of a stream. It is read in one task of its own, a piece when one is asked for.

    Raises PluginError where the next piece takes more than `seconds` (None: any time), and for every error of
    the plugin that is none of this package or of the system. A stream that does not end then is added to
    `abandoned`.
    """
    abandoned.check()
    turns, pieces = asyncio.Semaphore(0), asyncio.Queue[Piece | None]()
    reading = asyncio.get_running_loop().create_task(_read_pieces(stream, turns, pieces))
    try:
        while True:
            turns.release()
            try:
                async with asyncio.timeout(seconds):
                    piece = await pieces.get()
            except TimeoutError:
                raise PluginError(f"it wrote nothing for {seconds:g} s") from None
            if piece is None:
                break
            yield piece
        await asyncio.wait([reading])
        if reading.cancelled():
            raise PluginError("the plugin cancelled its own call")
        reading.result()
    finally:
        reading.cancel()
        _, stubborn = await asyncio.wait([reading], timeout=GRACE)
        abandoned.add(stubborn)
        if not stubborn:
            consume_exception(reading)


async def _read_pieces(
    stream: AsyncIterator[Piece], turns: asyncio.Semaphore, pieces: asyncio.Queue[Piece | None]
) -> None:
    """Put the pieces of a stream into a queue, and None at its end."""
    try:
        with containment():
            async with closing(stream) as items:
                await turns.acquire()
                async for piece in items:
                    pieces.put_nowait(piece)
                    await turns.acquire()
    except (ContextRouterError, OSError):
        raise
    except Exception as error:
        raise PluginError(f"{type(error).__name__}: {text_of(error)}") from error
    finally:
        pieces.put_nowait(None)
