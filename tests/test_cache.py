"""The parts of the cache by themselves: exact keys, memory bounded by bytes and age, one computation for many
callers.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import requires
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextrouter import Period, Request, Scope
from contextrouter.cache import MemoryCache, ResultCache, SingleFlight, Tiers, keys
from contextrouter.runtime.distribution import DISTRIBUTION

TODAY = date(2026, 5, 1)


def key_of(
    request: Request, today: date = TODAY, versions: dict[str, str] | None = None, router: bytes = b"r" * 32
) -> bytes | None:
    return ResultCache(Tiers(10), router=router, ttl=1).key(
        request, today, {} if versions is None else versions
    )


@pytest.mark.case("CAC-01", "CAC-02")
def test_an_address_outside_memory_is_a_full_sha256():
    assert keys.address(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.case("CAC-15")
def test_the_core_neither_needs_nor_loads_diskcache_redis_or_a_pickle_of_theirs():
    core = [line for line in requires(DISTRIBUTION) or () if "extra ==" not in line]
    assert {line.split(">")[0].strip() for line in core} == {"msgspec", "snowballstemmer", "tomli"}
    unwanted = ("diskcache", "redis", "pickle")
    code = (
        f"import sys, contextrouter as c; c.ContextRouter(); print([n for n in {unwanted} if n in"
        " sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "[]"


def test_keys_ignore_the_order_of_mappings_and_sets():
    assert key_of(Request(question="q", filters={"a": 1, "b": 2})) == key_of(
        Request(question="q", filters={"b": 2, "a": 1})
    )
    one, other = (Scope(compartments=frozenset(names)) for names in (["a", "b", "c"], ["c", "b", "a"]))
    assert key_of(Request(question="q", scope=one)) == key_of(Request(question="q", scope=other))


SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**70,
    0.0,
    -0.0,
    1.0,
    float("nan"),
    float("inf"),
    "",
    "1",
    "true",
    "null",
    "a",
    b"a",
    b"",
    date(2026, 1, 1),
    "2026-01-01",
    datetime(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC),
    Decimal("1"),
    Decimal("1.0"),
    ["int", "1"],
    "['int', '1']",
    ["list"],
    [],
    [[]],
    {},
    {"": ""},
    {"a": None},
    {1: "a"},
    {"1": "a"},
    {("a",): 1},
    frozenset({1}),
    frozenset({"1"}),
    Scope(),
    Scope(tenant="a"),
    ["map", ["a", None]],
    ["bytes", "61"],
]


def test_values_of_different_types_never_have_the_same_key():
    made = [key_of(Request(question="q", profile={"x": value})) for value in SCALARS]
    assert None not in made
    assert len(set(made)) == len(SCALARS)


def test_what_has_no_exact_encoding_has_no_key_so_it_is_not_cached():
    assert key_of(Request(question="q", filters={"x": object()})) is None
    assert key_of(Request(question="\ud800")) is None
    assert key_of(Request(question="q", scope=Scope(tenant=b"a"))) is None  # type: ignore[arg-type]  # a wrong type on purpose
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert key_of(Request(question="q", profile={"x": deep})) is None


OTHER: dict[str, Any] = {
    "question": "Q",
    "history": ({"role": "user", "content": "x"},),
    "scope": Scope(),
    "profile": {"x": 1},
    "sources": ("a",),
    "legs": ("text",),
    "kinds": ("book",),
    "filters": {"x": 1},
    "mode": "m",
    "period": Period(start=date(2026, 3, 1)),
    "labels": ("a",),
    "as_of": datetime(2026, 3, 1, tzinfo=UTC),
    "limit": 3,
}


def test_every_field_of_a_request_but_its_deadline_is_in_the_key():
    assert {*OTHER, "deadline"} == set(Request.__struct_fields__)
    base = Request(question="q")
    made = [key_of(base.replace(**{name: value})) for name, value in OTHER.items()]
    assert len({*made, key_of(base)}) == len(OTHER) + 1
    assert key_of(base.replace(deadline=3.0)) == key_of(base)


_scopes = st.builds(
    Scope,
    tenant=st.sampled_from([None, "", "a", "b"]),
    compartments=st.frozensets(st.sampled_from("xy")),
    ceiling=st.sampled_from(["public", "internal"]),
)
_requests = st.builds(
    Request,
    question=st.sampled_from(["q", "Q", "q "]),
    scope=st.none() | _scopes,
    sources=st.none() | st.tuples(st.sampled_from("ab")),
    legs=st.none() | st.tuples(st.sampled_from("ab")),
    filters=st.dictionaries(st.sampled_from("xy"), st.sampled_from([1, 1.0, True, "1"]), max_size=2),
)
_circumstances = st.tuples(
    _requests,
    st.sampled_from([TODAY, date(2026, 5, 2)]),
    st.dictionaries(st.sampled_from("st"), st.sampled_from("12")),
    st.sampled_from([b"a" * 32, b"b" * 32]),
)


@given(_circumstances, _circumstances)
@pytest.mark.case("B08")
def test_what_differs_in_scope_tenant_settings_version_or_day_has_another_key(one: Any, other: Any):
    assert (key_of(*one) == key_of(*other)) == (told(*one) == told(*other))


def told(request: Request, today: date, versions: dict[str, str], router: bytes) -> str:
    scope = request.scope and (
        request.scope.tenant,
        sorted(request.scope.compartments),
        request.scope.ceiling,
    )
    filters = sorted(request.filters.items(), key=lambda pair: pair[0])
    return repr(
        (
            request.question,
            scope,
            request.sources,
            request.legs,
            filters,
            today,
            sorted(versions.items()),
            router,
        )
    )


def test_a_version_not_known_yet_is_no_version():
    assert ResultCache(Tiers(10), router=b"", ttl=1).key(Request(question="q"), TODAY, None) is None


def test_values_expire_and_the_least_recently_used_go_first():
    now = [0.0]
    cache: MemoryCache[str] = MemoryCache(10, clock=lambda: now[0])
    cache.put(b"a", "A", size=4, ttl=5)
    cache.put(b"b", "B", size=4, ttl=5)
    assert cache.get(b"a") == "A"
    cache.put(b"c", "C", size=4, ttl=9)
    assert (cache.get(b"b"), cache.get(b"a"), cache.size, len(cache)) == (None, "A", 10, 2)
    now[0] = 5.0
    assert (cache.get(b"a"), cache.get(b"c")) == (None, "C")
    assert (cache.size, cache.hits, cache.misses) == (5, 3, 2)


def test_a_value_larger_than_the_cache_is_not_kept_and_replacing_counts_once():
    cache: MemoryCache[str] = MemoryCache(10)
    cache.put(b"a", "x", size=10, ttl=5)
    assert len(cache) == 0
    cache.put(b"a", "x", size=8, ttl=5)
    cache.put(b"a", "x", size=3, ttl=5)
    assert cache.size == 4
    cache.put(b"b", "x", size=3, ttl=0)
    assert len(cache) == 1
    cache.clear()
    assert (cache.size, len(cache)) == (0, 0)


class Slow:
    def __init__(self, delay: float = 0.05, error: Exception | None = None) -> None:
        self.runs, self.delay, self.error, self.cancelled = 0, delay, error, 0
        self.release: asyncio.Event | None = None  # ends the delay

    async def __call__(self) -> str:
        self.runs += 1
        try:
            await (asyncio.sleep(self.delay) if self.release is None else self.release.wait())
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
@pytest.mark.case("CAC-12")
async def test_a_cancelled_caller_never_fails_the_others(which: int):
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


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=n))),
    st.booleans(),
)
@pytest.mark.case("CAC-12")
def test_whoever_is_cancelled_the_rest_get_the_one_value(callers: tuple[int, set[int]], twice: bool):
    count, leaving = callers

    async def run() -> None:
        flights: SingleFlight[str] = SingleFlight()
        slow = Slow(delay=60)
        slow.release = asyncio.Event()
        tasks = [asyncio.create_task(flights.run(b"k", monotonic() + 9, slow)) for _ in range(count)]
        await asyncio.sleep(0)
        if twice:
            await asyncio.sleep(0.002)
        for index in leaving:
            tasks[index].cancel()
        if len(leaving) < count:  # else it could end by itself before the last caller has left
            slow.release.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        stayed = [result for index, result in enumerate(results) if index not in leaving]
        assert all(isinstance(results[index], asyncio.CancelledError) for index in leaving)
        assert {value for value, _ in stayed} <= {"value 1"}  # type: ignore[misc]  # exceptions were asserted away above
        assert (slow.runs <= 1, slow.cancelled) == (True, 0 if stayed else slow.runs)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


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
