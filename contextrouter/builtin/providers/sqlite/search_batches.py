"""Batches of searches: the queries of one request are answered in one look at the file, and share what they
read.

A question becomes several queries, and each is asked of several legs. Their calls come in one turn of the
event loop, and find much the same chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from contextrouter.model import Hit, Query

Answers: TypeAlias = "list[Sequence[Hit] | Exception]"
"""The hits of each query, or why there are none, in the order of the queries."""
Answering: TypeAlias = Callable[[Sequence[Query], Answers], Awaitable[None]]
"""Answers queries with one deadline and one scope. It adds each answer when it has it."""


@dataclass(eq=False)
class _Batch:
    """Queries, and who waits for their answers."""

    queries: list[Query] = field(default_factory=list)
    waiting: list[asyncio.Future[Sequence[Hit]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class SearchBatches:
    """Joins the searches that begin in one turn of the event loop: those of one request (they have one scope
    and one deadline) on legs of one kind, so that a slow leg holds up no other.
    """

    def __init__(self) -> None:
        self._open: dict[Hashable, _Batch] = {}

    async def search(self, query: Query, kind: str, answering: Answering) -> Sequence[Hit]:
        """Return the hits of a query, and raise what it raised. A batch that nobody waits for any more is
        cancelled. `answering` is the same for all queries.
        """
        loop = asyncio.get_running_loop()
        key = (loop, kind, id(query.scope), query.deadline)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Batch()
            batch.task = loop.create_task(self._run(key, batch, answering))
        future: asyncio.Future[Sequence[Hit]] = loop.create_future()
        batch.queries.append(query)
        batch.waiting.append(future)
        try:
            return await future
        finally:
            if batch.task is not None and all([each.done() for each in batch.waiting]):
                self._close(key, batch)
                batch.task.cancel()  # has no effect on one that has answered

    def _close(self, key: Hashable, batch: _Batch) -> None:
        """Let no further query into a batch."""
        if self._open.get(key) is batch:
            del self._open[key]

    async def _run(self, key: Hashable, batch: _Batch, answering: Answering) -> None:
        """Answer a batch. It begins in the next turn of the event loop, when all queries are in it."""
        self._close(key, batch)
        answers: Answers = []
        try:
            await answering(batch.queries, answers)
            answers += [[] for _ in batch.queries[len(answers) :]]  # the store holds nothing
        except Exception as error:
            answers += [error for _ in batch.queries[len(answers) :]]
        finally:
            for future, answer in zip(batch.waiting, answers, strict=False):
                if not future.done():
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
            for future in batch.waiting[len(answers) :]:
                future.cancel()  # the event loop ends
