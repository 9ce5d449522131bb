"""Questions with a person's name: a table of people beside notes about birth and height, ingested from files."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import people
from measures import at_least, at_most
from people import Person

from contextrouter import ContextRouter
from contextrouter.ingest import run

LEAST, FEWER = 0.97, 1
Asked = list[tuple[str, Person]]


async def names(build: Path, *, minilm: bool) -> bool:
    """Measure how often the part of the table with that person comes first; whether the limits hold."""
    folder, persons = build / "names", people.people()
    people.write(folder / "library", persons)
    various = people.questions(persons, 200, people.QUESTIONS, seed=13)
    born = people.questions(persons, 50, people.QUESTIONS[:1], seed=14)
    embedders = ("static", "minilm") if minilm else ("static",)
    print(f"\nnames: {len(persons)} people in a table, {people.NOTES} notes; share of answers at rank 1\n")
    shares: dict[str, float] = {}
    counts: dict[str, int] = {}
    for embedder in embedders:
        async with router_of(folder, embedder) as router:
            chunks = (await run(router))["documents"].chunks
            if chunks:
                print(f"  {embedder}: {chunks} chunks ingested")
            asked = {f"default, {embedder}": None, "text leg": ("text",)}
            for system, legs in asked.items() if embedder == "static" else [*asked.items()][:1]:
                started = perf_counter()
                counts[system] = await at_first(router, born, legs)
                shares[system] = await at_first(router, various, legs) / len(various)
                milliseconds = (perf_counter() - started) / (len(various) + len(born)) * 1000
                print(
                    f"  {system:<18} {shares[system]:.3f} of {len(various)} questions, {counts[system]} of"
                    f' {len(born)} times "{people.QUESTIONS[0].format("…")}", {milliseconds:.1f} ms each',
                    flush=True,
                )
    good = True
    for embedder in embedders:
        system = f"default, {embedder}"
        good &= at_least(f"{system}, rank 1", shares[system], LEAST)
        fewer = counts["text leg"] - counts[system]
        good &= at_most(
            f'{system}, "{people.QUESTIONS[0].format("…")}" fewer than the text leg', fewer, FEWER
        )
    return good


def router_of(folder: Path, embedder: str) -> ContextRouter:
    """A router with the library in a store, as a settings file would have it."""
    return ContextRouter(
        {
            "rag": {"cache_enabled": False, "timeout_seconds": 60.0},
            "embedders": {"default": {"use": embedder}},
            "providers": {"library": {"use": "sqlite", "path": str(folder / f"{embedder}.db")}},
            "ingest": {"documents": {"from": str(folder / "library"), "to": "library"}},
        }
    )


async def at_first(router: ContextRouter, asked: Asked, legs: tuple[str, ...] | None) -> int:
    """How many questions have a chunk with the row of the person meant at rank 1."""
    right = 0
    for question, person in asked:
        context = await router.route(question, legs=legs)
        right += bool(context.envelopes) and ",".join(person) in context.envelopes[0].document.content
    return right
