"""Graph walk over facts: neighbourhood, related entities and shortest path, for any store.

A walk is a generator. It yields names, and receives the facts about them:

    walk = spread({"ada"}, 2)
    names = next(walk)
    names = walk.send(find_facts(names))  # `FactRows`, the surest first; repeat until StopIteration

No walk reads a store itself. Each name is visited once, so that cycles end. Only the order of the received
facts decides between equal paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Sequence
from typing import TypeVar

from contextrouter.builtin.facts.entity_names import MAX_NAMES, FactMatch
from contextrouter.model import Fact

T = TypeVar("T")
FactRows = Sequence[tuple[Hashable, Fact, set[str]]]
"""Facts: a unique key, the fact, and the folded names of its subject and object."""
Walk = Generator[Sequence[str], FactRows, T]
MOST_HOPS = 10
_MAX_ENDS = 4  # how many names of a question are linked with each other


def run_walk(walk: Walk[T], find_facts: Callable[[Sequence[str]], FactRows]) -> T:
    """Run a walk to its end, and return its result."""
    try:
        names = next(walk)
        while True:
            names = walk.send(find_facts(names))
    except StopIteration as end:
        result: T = end.value
        return result


def check_hops(hops: int, name: str = "hops") -> int:
    """Return the number of hops. Raises ValueError when it is out of range."""
    if not 1 <= hops <= MOST_HOPS:
        raise ValueError(f"{name} {hops!r} is out of range; give 1 to {MOST_HOPS}.")
    return hops


def spread(names: Collection[str], hops: int) -> Walk[list[FactMatch]]:
    """Find facts about the names, then, hop by hop, about the entities of those facts.

    A fact on a shortest path between two of the names ranks as if it contained both.
    """
    matches: dict[Hashable, tuple[FactMatch, set[str]]] = {}
    frontier, visited = sorted(names), set(names)
    for hop in range(1, hops + 1):
        if not frontier:
            break
        reached: dict[str, None] = {}
        for number, fact, keys in (yield frontier):
            if number not in matches:
                matches[number] = (FactMatch(fact, len(keys & set(names)), hop), keys)
                reached.update(dict.fromkeys(sorted(keys - visited)))
        frontier = list(reached)[:MAX_NAMES]
        visited.update(frontier)
    linking = find_linking(sorted(names)[:_MAX_ENDS], {number: keys for number, (_, keys) in matches.items()})
    return [
        match._replace(matched=max(2, match.matched)) if n in linking else match
        for n, (match, _) in matches.items()
    ]


def find_linking(names: Sequence[str], keys: dict[Hashable, set[str]]) -> set[Hashable]:
    """Return the keys of the facts on any shortest path between two of `names`."""
    if len(names) < 2:
        return set()
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for pair in keys.values():
        for name in pair:
            neighbours[name] |= pair - {name}
    far = [_distances(name, neighbours) for name in names]
    linking: set[Hashable] = set()
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            length = far[i].get(names[j])
            if length:
                linking |= {
                    n
                    for n, pair in keys.items()
                    if len(pair) == 2 and _lies_on_path(pair, far[i], far[j], length)
                }
    return linking


def _lies_on_path(pair: Iterable[str], start: dict[str, int], goal: dict[str, int], length: int) -> bool:
    a, b = pair
    directions = ((a, b), (b, a))
    return any(a in start and b in goal and start[a] + 1 + goal[b] == length for a, b in directions)


def _distances(name: str, neighbours: dict[str, set[str]]) -> dict[str, int]:
    distances, frontier = {name: 0}, [name]
    while frontier:
        reached = {
            neighbour
            for entity in frontier
            for neighbour in neighbours.get(entity, ())
            if neighbour not in distances
        }
        distances.update(dict.fromkeys(reached, distances[frontier[0]] + 1))
        frontier = list(reached)
    return distances


def path(start: str, goal: str, hops: int) -> Walk[list[Fact]]:
    """Find a shortest path between two names, ignoring the direction of facts. Return its facts in order, or
    nothing beyond `hops`.

    It is a bidirectional breadth-first search. Of several paths the surest fact at the meeting point decides.
    """
    if not start or not goal or start == goal:
        return []
    sides: tuple[dict[str, tuple[Fact, str] | None], ...] = ({start: None}, {goal: None})
    frontiers: list[list[str]] = [[start], [goal]]
    for _ in range(hops):
        near = 0 if len(frontiers[0]) <= len(frontiers[1]) else 1
        side, opposite = sides[near], sides[1 - near]
        reached: dict[str, tuple[Fact, str]] = {}
        for _, fact, keys in (yield frontiers[near]):
            for key in sorted(keys - side.keys()):
                reached.setdefault(key, (fact, next(iter(keys - {key}))))
        side.update(reached)
        for key in reached:
            if key in opposite:
                return [*reversed(_trace_back(key, sides[0])), *_trace_back(key, sides[1])]
        frontiers[near] = list(reached)[:MAX_NAMES]
        if not frontiers[near]:
            break
    return []


def _trace_back(key: str, side: dict[str, tuple[Fact, str] | None]) -> list[Fact]:
    """Return the facts from a name back to the start of its side."""
    steps = []
    while (step := side[key]) is not None:
        fact, key = step
        steps.append(fact)
    return steps
