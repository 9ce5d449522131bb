"""Walks over facts, the same for every store: a walk says which names it wants told, and is told the facts
about them.

    walk = spread({"ada"}, 2)
    names = next(walk)
    names = walk.send(facts_about(names))  # `Told`, the surest first; again, until StopIteration

Nothing here reads a store. Names are visited once, so that circles end, and the order of what is told is all
that decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Sequence
from typing import TypeVar

from contextrouter.builtin.facts.entity_names import WIDEST, Found
from contextrouter.model import Fact

T = TypeVar("T")
Told = Sequence[tuple[Hashable, Fact, set[str]]]
"""Facts: what tells each apart, the fact, and the folded names of its subject and object."""
Walk = Generator[Sequence[str], Told, T]
MOST_HOPS = 10
_MOST_ENDS = 4  # of the names in a question that are linked with each other


def walked(walk: Walk[T], about: Callable[[Sequence[str]], Told]) -> T:
    """The end of a walk over facts that are at hand."""
    try:
        names = next(walk)
        while True:
            names = walk.send(about(names))
    except StopIteration as end:
        found: T = end.value
        return found


def checked_hops(hops: int) -> int:
    """The number of hops. Raises ValueError when it is out of range."""
    if not 1 <= hops <= MOST_HOPS:
        raise ValueError(f"hops {hops!r} is out of range; give 1 to {MOST_HOPS}.")
    return hops


def spread(names: Collection[str], hops: int) -> Walk[list[Found]]:
    """Facts of the names, then, hop by hop, of the entities those facts name.

    Of the facts found, those on a shortest way between two of the names count as if they held both.
    """
    found: dict[Hashable, tuple[Found, set[str]]] = {}
    frontier, visited = sorted(names), set(names)
    for hop in range(1, hops + 1):
        if not frontier:
            break
        reached: dict[str, None] = {}
        for number, fact, keys in (yield frontier):
            if number not in found:
                found[number] = (Found(fact, len(keys & set(names)), hop), keys)
                reached.update(dict.fromkeys(sorted(keys - visited)))
        frontier = list(reached)[:WIDEST]
        visited.update(frontier)
    linking = between(sorted(names)[:_MOST_ENDS], {number: keys for number, (_, keys) in found.items()})
    return [
        each._replace(matched=max(2, each.matched)) if n in linking else each
        for n, (each, _) in found.items()
    ]


def between(names: Sequence[str], keys: dict[Hashable, set[str]]) -> set[Hashable]:
    """Of facts with their two names, those on any shortest way between two of `names`."""
    if len(names) < 2:
        return set()
    beside: defaultdict[str, set[str]] = defaultdict(set)
    for pair in keys.values():
        for one in pair:
            beside[one] |= pair - {one}
    far = [_distances(name, beside) for name in names]
    linking: set[Hashable] = set()
    for first in range(len(names)):
        for second in range(first + 1, len(names)):
            length = far[first].get(names[second])
            if length:
                linking |= {
                    n
                    for n, pair in keys.items()
                    if len(pair) == 2 and _on_the_way(pair, far[first], far[second], length)
                }
    return linking


def _on_the_way(pair: Iterable[str], start: dict[str, int], goal: dict[str, int], length: int) -> bool:
    one, other = pair
    ways = ((one, other), (other, one))
    return any(a in start and b in goal and start[a] + 1 + goal[b] == length for a, b in ways)


def _distances(name: str, beside: dict[str, set[str]]) -> dict[str, int]:
    found, frontier = {name: 0}, [name]
    while frontier:
        reached = {each for one in frontier for each in beside.get(one, ()) if each not in found}
        found.update(dict.fromkeys(reached, found[frontier[0]] + 1))
        frontier = list(reached)
    return found


def path(start: str, goal: str, hops: int) -> Walk[list[Fact]]:
    """The facts of a shortest way between two names, in order, whichever way each fact points; none within
    `hops`: nothing.

    It is looked for from both ends; of several ways the surest fact where the ends meet decides.
    """
    if not start or not goal or start == goal:
        return []
    sides: tuple[dict[str, tuple[Fact, str] | None], ...] = ({start: None}, {goal: None})
    frontiers: list[list[str]] = [[start], [goal]]
    for _ in range(hops):
        near = 0 if len(frontiers[0]) <= len(frontiers[1]) else 1
        known, other = sides[near], sides[1 - near]
        reached: dict[str, tuple[Fact, str]] = {}
        for _, fact, keys in (yield frontiers[near]):
            for key in sorted(keys - known.keys()):
                reached.setdefault(key, (fact, next(iter(keys - {key}))))
        known.update(reached)
        for key in reached:
            if key in other:
                return [*reversed(_back(key, sides[0])), *_back(key, sides[1])]
        frontiers[near] = list(reached)[:WIDEST]
        if not frontiers[near]:
            break
    return []


def _back(key: str, known: dict[str, tuple[Fact, str] | None]) -> list[Fact]:
    """The facts from a name back to where its side began."""
    steps = []
    while (step := known[key]) is not None:
        fact, key = step
        steps.append(fact)
    return steps
