"""Sources that break one law of all plugins each, derived from one that keeps all."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, ClassVar

from breaking import breaks

from contextrouter.contracts import Connector
from contextrouter.model import Document, Hit, Query
from contextrouter.testing import admits

_SHELF = (
    ("sea", "The sea is salt water under the moon.", None),
    ("sun", "The sun dries salt from sea water in the light.", None),
    ("moon", "The moon moves the water of the sea, and people see it with the sun.", None),
    ("vault", "The sea moon vault is known to few.", "restricted"),
)


def shelf() -> list[Document]:
    """Four documents, one of them restricted."""
    return [
        Document(
            id=name,
            title=name.title(),
            content=text,
            snippet=text[:12],
            url=f"https://example.org/{name}",
            kind="book",
            sensitivity=level,
            updated_at=datetime(2025, 1, number, tzinfo=UTC),
            metadata={"shelf": number},
        )
        for number, (name, text, level) in enumerate(_SHELF, 1)
    ]


class Shelf(Connector):
    """Keeps the laws: finds documents that share words with the question, most first."""

    def __init__(self, *, most: int = 100) -> None:
        self.most = most
        self.documents = shelf()

    async def search(self, query: Query) -> Sequence[Hit]:
        return self.found(query)[: max(0, min(query.limit, self.most))]

    def found(self, query: Query) -> list[Hit]:
        return self.ranked(query, [document for document in self.documents if admits(document, query)])

    def ranked(self, query: Query, documents: Sequence[Document]) -> list[Hit]:
        asked = set(query.text.casefold().split())
        scored = [(float(len(asked & set(d.content.casefold().split()))), d) for d in documents]
        best = sorted((pair for pair in scored if pair[0]), key=lambda pair: (-pair[0], pair[1].id))
        return [Hit(document=document, score=score) for score, document in best]


@breaks("example_works")
class NoPing(Shelf):
    async def ping(self) -> None:
        raise ConnectionError("nobody is there")


@breaks("constructor_does_no_io")
class LooksAtOnce(Shelf):
    def __init__(self) -> None:
        super().__init__()
        self.there = os.path.exists(__file__)


@breaks("constructor_does_no_io")
class ReadsAtOnce(Shelf):
    def __init__(self) -> None:
        super().__init__()
        with open(__file__, encoding="utf-8") as file:
            self.text = file.read()


@breaks("keywords_are_typed_for_toml")
class Untyped(Shelf):
    def __init__(self, *, size=3) -> None:  # type: ignore[no-untyped-def]  # the missing type is the fault
        super().__init__(most=size)


@breaks("keywords_are_typed_for_toml")
class NotOfToml(Shelf):
    def __init__(self, *, ranks: type | None = None) -> None:
        super().__init__()


@breaks("keywords_are_typed_for_toml")
class WrongDefault(Shelf):
    def __init__(self, *, size: int = "many") -> None:  # type: ignore[assignment]  # the wrong default is the fault
        super().__init__()


@breaks("router_keys_are_left_alone")
class TakesWeight(Shelf):
    def __init__(self, *, weight: float = 1.0) -> None:
        super().__init__()


@breaks("unknown_keyword_is_refused")
class TakesAnything(Shelf):
    def __init__(self, *, size: int = 3, **more: str) -> None:
        super().__init__(most=size)


class _Lifecycle(Shelf):
    def __init__(self) -> None:
        super().__init__()
        self.state = "new"

    async def open(self) -> None:
        self.state = "open"

    async def aclose(self) -> None:
        self.state = "closed"


@breaks("aclose_twice_is_harmless")
class ClosesOnce(_Lifecycle):
    async def aclose(self) -> None:
        if self.state == "closed":
            raise RuntimeError("is closed")
        self.state = "closed"


@breaks("aclose_without_open_is_harmless")
class ClosesWhatIsOpen(_Lifecycle):
    async def aclose(self) -> None:
        if self.state == "new":
            raise RuntimeError("was never open")
        self.state = "closed"


@breaks("open_twice_is_harmless")
class OpensOnce(_Lifecycle):
    async def open(self) -> None:
        if self.state == "open":
            raise RuntimeError("is open")
        self.state = "open"


@breaks("reopened_it_answers_as_before")
class EmptyWhenReopened(Shelf):
    """Forgets its documents at aclose(), and reads them again only in another event loop."""

    loop: Any = None

    async def open(self) -> None:
        if self.loop is not asyncio.get_running_loop():
            self.documents = shelf()
        self.loop = asyncio.get_running_loop()

    async def aclose(self) -> None:
        self.documents = []


@breaks("works_in_a_second_event_loop")
class LockOfOneLoop(Shelf):
    lock: asyncio.Lock | None = None

    async def open(self) -> None:
        self.lock = self.lock or asyncio.Lock()

    async def search(self, query: Query) -> Sequence[Hit]:
        assert self.lock is not None
        async with self.lock:
            await asyncio.sleep(0)
            return await super().search(query)


@breaks("nothing_goes_on_after_aclose")
class LeavesATask(Shelf):
    """Forgets the task that it started."""

    async def open(self) -> None:
        self.polling = asyncio.get_running_loop().create_task(self.poll())

    async def poll(self) -> None:
        await asyncio.Event().wait()


@breaks("nothing_goes_on_after_aclose")
class LeavesAThread(Shelf):
    """Forgets the threads of its pool."""

    async def open(self) -> None:
        self.pool = ThreadPoolExecutor(1, "shelf")

    async def search(self, query: Query) -> Sequence[Hit]:
        return await asyncio.get_running_loop().run_in_executor(self.pool, self.found_some, query)

    def found_some(self, query: Query) -> list[Hit]:
        return self.found(query)[: max(0, query.limit)]


@breaks("instances_share_no_state")
class CountsForAll(Shelf):
    asked: ClassVar[list[str]] = []

    async def search(self, query: Query) -> Sequence[Hit]:
        self.asked.append(query.text)
        return await super().search(query)


@breaks("instances_share_no_state")
class ClosesForAll(Shelf):
    open_ones: ClassVar[int] = 0

    async def open(self) -> None:
        type(self).open_ones = 1

    async def aclose(self) -> None:
        type(self).open_ones = 0

    async def search(self, query: Query) -> Sequence[Hit]:
        return await super().search(query) if self.open_ones else []


@breaks("same_answer_twice")
class DriftsWhenIdle(Shelf):
    """Answers otherwise once the event loop had time for something else, but for a query it knows."""

    async def open(self) -> None:
        self.drift, self.known = 0, dict[int, tuple[Query, list[Hit]]]()

    def found(self, query: Query) -> list[Hit]:
        asyncio.get_running_loop().call_later(0.0005, self._drift)
        if id(query) not in self.known:
            self.known[id(query)] = query, super().found(query)[self.drift :]
        return self.known[id(query)][1]

    def _drift(self) -> None:
        self.drift = 1


@breaks("same_answer_twice")
class DatesWhenIdle(DriftsWhenIdle):
    """Finds the same documents, and says later that they changed."""

    def found(self, query: Query) -> list[Hit]:
        hits, drift = Shelf.found(self, query), self.drift
        super().found(query)
        if not drift or id(query) in self.dated:
            self.dated.add(id(query))
            return hits
        return [hit.replace(document=hit.document.replace(updated_at=datetime.now(UTC))) for hit in hits]

    async def open(self) -> None:
        self.dated = set[int]()
        await super().open()


@breaks("concurrent_calls_agree_with_serial_ones")
class OneQuestionAtATime(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        self.query = query
        await asyncio.sleep(0)
        return await super().search(self.query)


@breaks("inputs_are_not_changed")
class WritesIntoTheVector(Shelf):
    legs = ("vector",)
    vector_legs = ("vector",)

    async def search(self, query: Query) -> Sequence[Hit]:
        if isinstance(query.vector, list):
            query.vector[0] += 1.0
        return await super().search(query)


@breaks("no_text_is_an_error")
class ParsesQuotes(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        if query.text.count('"') % 2:
            raise ValueError("unterminated string")
        return await super().search(query)


@breaks("nothing_is_printed")
class Prints(Shelf):
    async def open(self) -> None:
        print("hello from open")  # noqa: T201 - that is the fault


@breaks("cancelled_it_leaves_at_once")
class LeavesSlowly(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            raise
        return await super().search(query)


@breaks("cancelled_it_leaves_at_once")
class AnswersInstead(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            return []
        return await super().search(query)


@breaks("event_loop_is_never_stalled")
class Blocks(Shelf):
    """Blocks once where somebody else waits, which spares the tests the time of all other calls."""

    blocked = False

    async def search(self, query: Query) -> Sequence[Hit]:
        if len(asyncio.all_tasks()) == 3 and not self.blocked:
            self.blocked = True
            time.sleep(0.4)  # noqa: ASYNC251 - that is the fault
        return await super().search(query)
