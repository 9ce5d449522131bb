"""The result cache: exact keys, bounded by bytes and age, one computation for many callers."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import Request, Scope
from contextrouter.cache import MemoryCache, SingleFlight, key_of


def test_cac_01_the_key_is_a_full_sha256():
    assert len(key_of("a")) == 32


def test_keys_ignore_the_order_of_mappings_and_sets_and_nothing_else():
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of(Scope(compartments={"a", "b"})) == key_of(Scope(compartments={"b", "a"}))
    assert key_of("a", "b") != key_of("ab")
    assert key_of(["a"], "b") != key_of(["a", "b"])


_scopes = st.builds(
    Scope, tenant=st.sampled_from([None, "", "a", "b"]), compartments=st.frozensets(st.sampled_from("xy")),
    ceiling=st.sampled_from(["public", "internal"]),
)  # fmt: skip
_requests = st.builds(
    Request, question=st.sampled_from(["q", "Q", "q "]), scope=st.none() | _scopes, sources=st.none() | st.tuples(st.sampled_from("ab")),
    filters=st.dictionaries(st.sampled_from("xy"), st.sampled_from([1, 1.0, True, "1"]), max_size=2),
)  # fmt: skip


@given(_requests, _requests)
def test_b08_requests_that_differ_in_anything_have_different_keys(one: Request, other: Request):
    assert (key_of(one) == key_of(other)) == (repr(one) == repr(other) or sorted_repr(one) == sorted_repr(other))


def sorted_repr(request: Request) -> str:
    scope = request.scope and (request.scope.tenant, sorted(request.scope.compartments), request.scope.ceiling)
    return repr((request.question, scope, request.sources, sorted(request.filters.items())))


def test_values_expire_and_the_least_recently_used_go_first():
    now = [0.0]
    cache: MemoryCache[str] = MemoryCache(10, 5.0, len, clock=lambda: now[0])
    cache.put(b"a", "1234")
    cache.put(b"b", "1234")
    assert cache.get(b"a") == "1234"
    cache.put(b"c", "1234")
    assert (cache.get(b"b"), cache.get(b"a"), cache.bytes) == (None, "1234", 8)
    now[0] = 5.0
    assert cache.get(b"a") is None
    assert cache.bytes == 4


def test_a_value_larger_than_the_cache_is_not_kept_and_replacing_counts_once():
    cache: MemoryCache[str] = MemoryCache(10, 5.0, len)
    cache.put(b"a", "x" * 11)
    assert len(cache) == 0
    cache.put(b"a", "x" * 8)
    cache.put(b"a", "x" * 3)
    assert cache.bytes == 3
    cache.clear()
    assert (cache.bytes, len(cache)) == (0, 0)


class Slow:
    def __init__(self, delay: float = 0.05, error: Exception | None = None) -> None:
        self.runs, self.delay, self.error, self.cancelled = 0, delay, error, 0

    async def __call__(self) -> str:
        self.runs += 1
        try:
            await asyncio.sleep(self.delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error:
            raise self.error
        return f"value {self.runs}"


async def test_a_thousand_equal_questions_are_one_computation():
    flights: SingleFlight[str] = SingleFlight()
    slow = Slow()
    until = monotonic() + 5
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(flights.run(b"k", until, slow)) for _ in range(1000)]
    assert slow.runs == 1
    assert sum(task.result()[1] for task in tasks) == 999


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_cac_12_a_cancelled_caller_never_fails_the_others(which: int):
    flights: SingleFlight[str] = SingleFlight()
    slow = Slow()
    until = monotonic() + 5
    tasks = [asyncio.create_task(flights.run(b"k", until, slow)) for _ in range(3)]
    await asyncio.sleep(0.01)
    tasks[which].cancel()
    results = [await task for index, task in enumerate(tasks) if index != which]
    with pytest.raises(asyncio.CancelledError):
        await tasks[which]
    assert {value for value, _ in results} == {"value 1"}
    assert (slow.runs, slow.cancelled) == (1, 0)


async def test_when_the_last_caller_leaves_the_computation_ends():
    flights: SingleFlight[str] = SingleFlight()
    slow = Slow(delay=5)
    tasks = [asyncio.create_task(flights.run(b"k", monotonic() + 9, slow)) for _ in range(3)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert slow.cancelled == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_reaches_every_caller_and_is_not_kept():
    flights: SingleFlight[str] = SingleFlight()
    bad = Slow(error=ValueError("no"))
    tasks = [asyncio.create_task(flights.run(b"k", monotonic() + 5, bad)) for _ in range(3)]
    await asyncio.wait(tasks)
    assert [type(task.exception()) for task in tasks] == [ValueError] * 3
    assert await flights.run(b"k", monotonic() + 5, Slow(0)) == ("value 1", False)


async def test_an_impatient_caller_does_not_join_a_patient_computation():
    flights: SingleFlight[str] = SingleFlight()
    slow, quick = Slow(delay=5), Slow(delay=0)
    patient = asyncio.create_task(flights.run(b"k", monotonic() + 60, slow))
    await asyncio.sleep(0.01)
    assert await flights.run(b"k", monotonic() + 0.5, quick) == ("value 1", False)
    patient.cancel()
    await asyncio.wait([patient])
