"""Questions with a person's name: a table of people beside notes about birth and height, ingested from files."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import people
from measures import at_least, at_most
from people import Person

from contextrouter import ContextRouter
from contextrouter.ingest import run

TEXT, STATIC, MINILM = "text leg", "default, static", "default, minilm"
BORN = '"When was … born?"'
LEAST, FEWER = 0.97, 1
"""Share at rank 1 of the various questions; how many fewer than the text leg of those about birth."""
Asked = list[tuple[str, Person]]


async def names(build: Path, *, minilm: bool) -> bool:
    """Measure how often the part of the table with that person comes first; whether the limits hold."""
    folder, persons = build / "names", people.people()
    people.write(folder / "library", persons)
    various = people.questions(persons, 200, people.QUESTIONS, seed=13)
    born = people.questions(persons, 50, people.QUESTIONS[:1], seed=14)
    systems = {TEXT: "static", STATIC: "static", **({MINILM: "minilm"} if minilm else {})}
    print(f"\nnames: {len(persons)} people in a table, {people.NOTES} notes; share of answers at rank 1\n")
    shares: dict[str, float] = {}
    counts: dict[str, int] = {}
    for system, embedder in systems.items():
        async with router_of(folder, embedder) as router:
            await run(router)  # the jobs of ingestion: the first time they fill the store
            started, legs = perf_counter(), ("text",) if system == TEXT else None
            shares[system] = await at_first(router, various, legs) / len(various)
            counts[system] = await at_first(router, born, legs)
            milliseconds = (perf_counter() - started) / (len(various) + len(born)) * 1000
        print(
            f"  {system:<18} {shares[system]:.3f} of {len(various)} questions, {counts[system]} of {len(born)}"
            f" times {BORN}, {milliseconds:.1f} ms each",
            flush=True,
        )
    good = []
    for system in list(systems)[1:]:
        good.append(at_least(f"{system}, rank 1", shares[system], LEAST))
        fewer = counts[TEXT] - counts[system]
        good.append(at_most(f"{system}, {BORN} fewer than the text leg", fewer, FEWER))
    return all(good)


def router_of(folder: Path, embedder: str) -> ContextRouter:
    """A router with the library in a store, as a settings file would have it."""
    return ContextRouter(
        {
            "rag": {"cache_enabled": False, "timeout_seconds": 60.0, "merge_neighbours": False},
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
