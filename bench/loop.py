"""How long one step of a request holds the event loop, in CPU time: questions, documents and answers that are
as hard as they may be.

    python bench/loop.py

Every step of the event loop is measured. Exits 1 when one takes longer than LIMIT.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import Mapping, Sequence
from time import thread_time
from typing import Any

import aiohttp

from contextrouter import Connector, ContextRouter, Document, Hit, Query
from contextrouter.server import serve

LIMIT = 0.05  # seconds
WORDS = "the quick brown fox jumps over lazy dogs while seventeen otters swim in a river of time".split()
LONG = 20_000  # characters of a question, at most


class Longest:
    """The longest step so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._run = events.Handle._run

    def watch(self) -> None:
        """Measure every step from now on."""
        longest, run = self, self._run

        def measured(handle: events.Handle) -> None:
            started = thread_time()
            run(handle)
            longest.seconds = max(longest.seconds, thread_time() - started)

        events.Handle._run = measured  # type: ignore[method-assign]  # there is no other place to measure


class Answering(Connector):
    """Answers every query with the same hits."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self.hits = hits

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the first of the hits."""
        await asyncio.sleep(0)
        return self.hits[: query.limit]


def words(number: int, seed: int = 0) -> str:
    """A text of so many words."""
    return " ".join([WORDS[(i * 7 + seed * 3 + i // 5) % len(WORDS)] for i in range(number)])


def sources(number: int, documents: int, content: str | int = 200, **fields: Any) -> dict[str, Connector]:
    """Sources of so many documents each, all with one content, or each with so many words."""
    return {
        f"s{source}": Answering(
            [
                Hit(
                    document=Document(
                        id=f"{source}-{n}",
                        title=f"Title {n}",
                        content=words(content, n) if isinstance(content, int) else content,
                        metadata={"number": n, "tags": ["x", "y"]},
                        **fields,
                    ),
                    score=1.0 - n / documents,
                )
                for n in range(documents)
            ]
        )
        for source in range(number)
    }


Case = tuple[str, Mapping[str, Connector], str, Mapping[str, Any]]


def cases() -> list[Case]:
    """Name, sources, question, and other fields of the request."""
    few = sources(3, 30)
    long = sources(3, 30, 2_000)
    foreign = {"untrusted": True}
    marks = ("#" * 30 + "\n") * 10_000 + "otters"
    return [
        ("3 sources, 30 documents", few, "quick otters", {}),
        ("30 sources, 1000 documents", sources(30, 1_000, 100), "quick otters", {}),
        ("the same, with trace", sources(30, 300, 100), "quick otters", {"detail": "trace"}),
        ("long question", few, words(4_000)[:LONG], {"detail": "trace"}),
        ("long question, other words", few, " ".join(f"w{n}" for n in range(4_000))[:LONG], {}),
        ("long question in Chinese", few, ("獺在河裡游泳時間" * 2_400)[:LONG], {"detail": "trace"}),
        ("3000 exclusions", long, " ".join(f"-w{n}" for n in range(3_000))[: LONG - 7] + " otters", {}),
        (
            "1000 phrases",
            long,
            " ".join(f'"otters swim{n}"' for n in range(1_000))[: LONG - 7] + " otters",
            {},
        ),
        ("quotation marks", few, '"' * (LONG - 2) + " a", {}),
        ("OR", few, "a OR " * 3_900 + "a", {}),
        ("dates", few, ("since March 2025 until " * 900)[:LONG], {}),
        ("1000 filter values", few, "otters", {"filters": {"id": [f"0-{n}" for n in range(999)]}}),
        ("documents of 1 MB", sources(3, 10, 200_000), "quick otters", {}),
        ("of strangers", sources(3, 10, 200_000, **foreign), "quick otters", {}),
        ("marks of a prompt", sources(1, 10, marks, **foreign), "otters", {}),
        ("hidden characters", sources(1, 10, "o\ufe00" * 200_000 + "otters", **foreign), "otters", {}),
        ("white space", sources(1, 10, "#" + " " * 500_000 + "otters", **foreign), "otters", {}),
    ]


async def measure(case: Case, longest: Longest) -> float:
    """The longest step of one request over HTTP, the second one after the start."""
    _, connectors, question, fields = case
    settings = {"rag": {"cache_enabled": False, "timeout_seconds": 60}, "serve": {"log_format": "json"}}
    listening, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    router = ContextRouter(settings, connectors=connectors)
    server = asyncio.create_task(serve(router, port=0, listening=listening.set_result, stop=stop))
    url = await listening
    async with aiohttp.ClientSession() as session:
        for body in ({"question": "otters"}, {"question": question, **fields}):
            longest.seconds = 0.0
            async with session.post(f"{url}/v1/route", json=body) as response:
                await response.read()
                assert response.status == 200, await response.text()
    seconds = longest.seconds
    stop.set()
    await server
    return seconds


async def main() -> int:
    """Measure all cases."""
    longest, slow = Longest(), []
    longest.watch()
    for case in cases():
        seconds = await measure(case, longest)
        print(f"{case[0]:<30} {seconds * 1000:8.1f} ms", flush=True)
        if seconds > LIMIT:
            slow.append(case[0])
    print(f"longer than {LIMIT * 1000:.0f} ms: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
