"""The LRU cache, against a slow model of it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from contextrouter.runtime.lru import Lru

KEYS = st.sampled_from("abcd")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 12), st.sampled_from([0.0, 1.0, 3.0, math.inf])),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("pop"), KEYS),
        st.tuples(st.just("wait"), st.integers(1, 3)),
        st.tuples(st.just("clear")),
    ),
    max_size=40,
)
Entry = tuple[str, int, int, float]  # key, value, weight, when it expires


class Model:
    """A list, the least recently used entry first."""

    def __init__(self, max_weight: int) -> None:
        self.entries: list[Entry] = []
        self.max_weight, self.now = max_weight, 0.0

    def pop(self, key: str) -> Entry | None:
        entry = next((entry for entry in self.entries if entry[0] == key), None)
        self.entries = [entry for entry in self.entries if entry[0] != key]
        return entry if entry and self.now < entry[3] else None

    def get(self, key: str) -> int | None:
        entry = self.pop(key)
        self.entries += [entry] if entry else []
        return entry[1] if entry else None

    def put(self, key: str, value: int, weight: int, ttl: float) -> None:
        self.pop(key)
        if weight <= self.max_weight and ttl > 0:
            self.entries.append((key, value, weight, self.now + ttl))
        while self.weight > self.max_weight:
            del self.entries[0]

    @property
    def weight(self) -> int:
        return sum(entry[2] for entry in self.entries)


@given(OPERATIONS, st.integers(1, 12))
def test_it_keeps_what_a_list_in_order_of_use_would_keep(operations: list[tuple], max_weight: int):
    model = Model(max_weight)
    cache: Lru[str, int] = Lru(max_weight, clock=lambda: model.now)
    for value, (name, *arguments) in enumerate(operations):
        if name == "put":
            key, weight, ttl = arguments
            model.put(key, value, weight, ttl)
            cache.put(key, value, weight=weight, ttl=ttl)
        elif name == "get":
            assert cache.get(*arguments) == model.get(*arguments)
        elif name == "pop":
            entry = model.pop(*arguments)
            assert cache.pop(*arguments) == (entry[1] if entry else None)
        elif name == "wait":
            model.now += arguments[0]
        else:
            model.entries.clear()
            cache.clear()
        assert (len(cache), cache.weight) == (len(model.entries), model.weight)


def test_without_weights_the_bound_is_a_number_of_entries():
    cache: Lru[str, str] = Lru(2)
    for key in "abc":
        cache.put(key, key.upper())
        cache.get("a")
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
