"""The tiers outside memory: what is kept comes back equal, and what is corrupt, foreign, forged or gone is a
miss.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import diskcache
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.resp import RespServer, resp_server

from contextrouter import (
    Call,
    Citation,
    Context,
    ContextRouter,
    Document,
    Entity,
    Envelope,
    Facet,
    Fact,
    Intent,
    Period,
    Plan,
    Provenance,
    Query,
    Scope,
    SettingsError,
    SourceReport,
    Step,
    Trace,
    Usage,
)
from contextrouter.builtin.providers.memory import Memory
from contextrouter.cache import Tier, Tiers, codec, entry, outage, tiers
from contextrouter.cache.disk import INLINE, DiskTier
from contextrouter.cache.keys import address
from contextrouter.cache.redis import RedisTier

AT = address(b"key")
INSTANT = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


def context(**changes: Any) -> Context:
    """A Context with a value in every field."""
    document = Document(
        content="Entanglement ↔ ü",
        id="d",
        url="u",
        title="T",
        path=("a", "b"),
        tenant="t",
        updated_at=INSTANT,
        metadata={
            "n": 1,
            "f": 1.5,
            "b": True,
            "none": None,
            "list": [1, {"x": "y"}],
            "raw": b"\x00\xff",
            "at": INSTANT,
        },
    )
    stamp = Provenance(
        source="s", leg="vector", query="q", rank=1, score=0.5, normalized=1.0, retrieved_at=INSTANT
    )
    envelope = Envelope(
        document=document, provenance=(stamp,), score=0.5, normalized=1.0, signals={"freshness": 0.25}
    )
    period = Period(start=date(2026, 1, 1), end=INSTANT, zone="Europe/Berlin")
    intent = Intent(question="q", queries=("q", "r"), period=period, attributes={"k": ["v"]})
    query = Query(
        text="q", period=period, scope=Scope(tenant="t", compartments=frozenset("ab")), filters={"x": [1, 2]}
    )
    plan = Plan(intent=intent, calls=(Call(source="s", query=query, weight=2.0),), excluded={"z": "off"})
    made = Context(
        question="q",
        intent=intent,
        outcome="answered",
        text="### [1]",
        envelopes=(envelope,),
        citations=(Citation(number=1, title="T", url="u", source="s"),),
        facts=(Fact(subject="s", predicate="p", object="o"),),
        facets=(Facet(dimension="d", value="v", count=3),),
        entities=(Entity(id="e", name="E", attributes={"born": 1912}),),
        coverage=(SourceReport(source="s", leg="vector", query="q", status="ok", count=1),),
        usage=Usage(calls=1, tokens=7),
        trace=Trace(
            plan=plan, steps=(Step(name="select", elapsed=0.1, live=1, lost=(envelope.drop("why"),)),)
        ),
    )
    return made.replace(**changes)


def with_metadata(**values: Any) -> Context:
    made = context()
    return made.replace(
        envelopes=(made.envelopes[0].replace(document=Document(content="c", metadata=values)),)
    )


def test_a_context_comes_back_equal_in_every_field():
    assert codec.decode(codec.encode(context())) == context()


def test_vectors_stay_behind_numpy_numbers_become_numbers():
    (envelope,) = context().envelopes
    heavy = envelope.replace(
        vector=np.ones(3, dtype=np.float32), score=np.float32(0.5), signals={"s": np.float64(0.25)}
    )
    back = codec.decode(codec.encode(context(envelopes=(heavy,)))).envelopes[0]
    assert (back.vector, back.score, back.signals, type(back.score)) == (None, 0.5, {"s": 0.25}, float)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        datetime(2026, 1, 1),
        date(2026, 1, 1),
        {1: "a"},
        2**70,
        object(),
        np.ones(2),
        "\ud800",
        [[object()]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_metadata_that_would_not_come_back_as_it_went_is_unfit(value: Any):
    with pytest.raises(tiers.Unfit):
        codec.encode(with_metadata(x=value))


def test_a_tuple_in_metadata_comes_back_as_a_list_and_an_instant_in_utc():
    away = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    back = codec.decode(codec.encode(with_metadata(t=(1, 2), at=away))).envelopes[0].document.metadata
    assert back == {"t": [1, 2], "at": datetime(2026, 1, 1, tzinfo=UTC)}


SEALED = entry.seal(b"key", b"body", expires=1e10)


@pytest.mark.case("CAC-02")
def test_an_entry_names_its_whole_key_and_is_read_under_no_other():
    assert SEALED[:5] == b"ctxr\x01"
    assert SEALED.endswith(b"\x00\x00\x00\x03keybody")
    body, expires = entry.unseal(SEALED, b"key") or (b"", 0.0)
    assert (bytes(body), expires) == (b"body", 1e10)
    assert [entry.unseal(SEALED, key) for key in (b"kex", b"ke", b"keyb", b"")] == [None] * 4


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
@pytest.mark.case("CAC-14")
def test_any_changed_byte_makes_an_entry_unreadable(at: int, change: int):
    changed = bytearray(SEALED)
    changed[at] ^= change
    assert entry.unseal(bytes(changed), b"key") is None


@given(st.integers(0, len(SEALED) - 1), st.binary(min_size=1, max_size=8))
@pytest.mark.case("CAC-14")
def test_cut_off_prolonged_or_arbitrary_bytes_are_unreadable(length: int, more: bytes):
    assert entry.unseal(SEALED[:length], b"key") is None
    assert entry.unseal(SEALED + more, b"key") is None
    assert entry.unseal(more * 20, b"key") is None


def test_an_entry_signed_with_another_secret_is_unreadable():
    signed = entry.seal(b"key", b"body", expires=1.0, secret=b"one")
    assert entry.unseal(signed, b"key", secret=b"one") is not None
    assert entry.unseal(signed, b"key", secret=b"two") is None
    assert entry.unseal(signed, b"key") is None
    assert entry.unseal(SEALED, b"key", secret=b"one") is None


@asynccontextmanager
async def outside(kind: str, folder: Path) -> AsyncIterator[Tier]:
    if kind == "disk":
        yield DiskTier(str(folder), namespace="n", max_bytes=10_000_000)
        return
    async with resp_server() as server:
        yield RedisTier(server.url, namespace="n", timeout=2.0)


KINDS = pytest.mark.parametrize("kind", ["disk", "redis"])


@KINDS
async def test_a_tier_keeps_counts_expires_and_clears(kind: str, tmp_path: Path):
    async with outside(kind, tmp_path) as tier:
        await tier.open()
        await tier.open()
        assert await tier.get(AT) is None
        for index in range(5):
            await tier.put(address(b"%d" % index), b"x" * 100, 60)
        await tier.put(AT, b"\x00\xffshort", 0.5)
        assert await tier.get(AT) == b"\x00\xffshort"
        assert await tier.get(address(b"3")) == b"x" * 100
        await asyncio.sleep(0.55)
        assert await tier.get(AT) is None
        entries, size = await tier.size()
        assert (entries, size >= 500) == (5, True)
        assert await tier.clear() == 5
        assert await tier.get(address(b"3")) is None
        assert (await tier.size())[0] == 0
        await tier.aclose()
        await tier.aclose()


@KINDS
async def test_a_tier_outlives_its_process_s_hold_on_it_and_opens_again(kind: str, tmp_path: Path):
    async with outside(kind, tmp_path) as tier:
        await tier.open()
        await tier.put(AT, b"kept", 60)
        await tier.aclose()
        await tier.open()
        assert await tier.get(AT) == b"kept"
        await tier.aclose()


@KINDS
async def test_memory_comes_first_and_is_filled_from_outside_for_the_time_that_is_left(
    kind: str, tmp_path: Path
):
    async with outside(kind, tmp_path) as tier:
        first = Tiers(1000, tier)
        await first.open()
        first.keep(b"key", lambda: b"body", 60)
        await first.aclose()
        second = Tiers(1000, tier)
        await second.open()
        value, left = await second.fetch(b"key", bytes) or (b"", 0.0)
        assert (value, 50 < left <= 60) == (b"body", True)
        assert await second.fetch(b"other", bytes) is None
        memory, outer = await second.stats()
        assert (outer.tier, outer.entries, outer.hits, outer.misses, outer.rejected) == (kind, 1, 1, 1, 0)
        assert memory.tier == "memory"
        assert await second.clear() == 1
        await second.aclose()


@KINDS
@pytest.mark.case("CAC-14")
async def test_foreign_entries_are_counted_misses_and_overwritten(kind: str, tmp_path: Path):
    async with outside(kind, tmp_path) as tier:
        cache = Tiers(1000, tier)
        await cache.open()
        old = entry.seal(b"key", b"body", expires=1.0)
        for bad in (b"", b"garbage", SEALED[:-1], old, entry.seal(b"other", b"body", expires=1e10)):
            await tier.put(AT, bad, 60)
            assert await cache.fetch(b"key", bytes) is None
        await tier.put(AT, SEALED, 60)
        assert await cache.fetch(b"key", codec.decode) is None  # sealed, and no Context
        outer = (await cache.stats())[1]
        assert (outer.hits, outer.misses, outer.rejected, outer.failures) == (0, 6, 5, 0)
        await cache.aclose()


async def test_what_is_unfit_or_comes_too_fast_is_counted_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tiers, "WAITING", 2)
    async with outside("disk", tmp_path) as tier:
        cache = Tiers(1000, tier)
        await cache.open()
        cache.keep(b"a", lambda: codec.encode(with_metadata(x=object())), 60)
        cache.keep(b"b", lambda: b"", 60)
        cache.keep(b"c", lambda: b"", 60)
        for _ in range(3000):
            outer = (await cache.stats())[1]
            if outer.entries:
                break
            await asyncio.sleep(0.01)
        assert (outer.unfit, outer.skipped, outer.entries) == (1, 1, 1)
        await cache.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def rows(folder: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(folder / "n" / "cache.db") as connection:
        connection.execute(statement, values)
    connection.close()


class Bomb:
    """What a pickle may do when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("column", ["value", "file", "key"])
@pytest.mark.case("CAC-14")
async def test_a_poisoned_pickle_in_the_folder_never_runs(column: str, tmp_path: Path):
    ran = tmp_path / "ran"
    tier = DiskTier(str(tmp_path), namespace="n", max_bytes=10_000_000)
    cache = Tiers(1000, tier)
    await cache.open()
    await tier.put(AT, SEALED, 60)
    bomb = pickle.dumps(Bomb(ran))
    if column == "value":
        rows(tmp_path, "UPDATE Cache SET mode = 4, value = ?", bomb)
    elif column == "file":
        (tmp_path / "n" / "bomb.val").write_bytes(bomb)
        rows(tmp_path, "UPDATE Cache SET mode = 4, value = NULL, filename = 'bomb.val'")
    else:
        rows(tmp_path, "UPDATE Cache SET raw = 0, key = ?", bomb)
        with pytest.raises(ValueError, match="not a text"):
            list(tier._cache)
    assert await cache.fetch(b"key", bytes) is None
    assert await cache.clear() == 1
    await cache.aclose()
    assert not ran.exists()
    assert pickle.loads(bomb) is None  # the bomb is live: plain reading sets it off
    assert ran.exists()


async def test_a_row_names_no_file_outside_the_folder_neither_to_read_nor_to_remove(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_bytes(SEALED)
    tier = DiskTier(str(tmp_path), namespace="n", max_bytes=10_000_000)
    cache = Tiers(1000, tier)
    await cache.open()
    await tier.put(AT, b"x" * (INLINE + 1), 60)
    rows(tmp_path, "UPDATE Cache SET filename = '../victim', mode = 2, value = NULL")
    assert await cache.fetch(b"key", bytes) is None
    await cache.clear()
    await cache.aclose()
    assert victim.read_bytes() == SEALED


async def test_the_disk_never_pickles_what_it_is_given(tmp_path: Path):
    tier = DiskTier(str(tmp_path), namespace="n", max_bytes=10_000_000)
    await tier.open()
    with pytest.raises(TypeError, match="A value is bytes"):
        tier._cache.set("k", ["x"])
    with pytest.raises(TypeError, match="A key is a text"):
        tier._cache.set(("k",), b"x")
    await tier.aclose()


async def test_the_folder_is_the_user_s_alone(tmp_path: Path):
    tier = DiskTier(str(tmp_path / "deep" / "er"), namespace="n", max_bytes=10_000_000)
    await tier.open()
    await tier.aclose()
    assert os.stat(tmp_path / "deep" / "er" / "n").st_mode & 0o777 == 0o700
    os.chmod(tmp_path / "deep" / "er" / "n", 0o750)
    with pytest.raises(
        SettingsError, match=r"cache\.path: folder .* is open to other users. Close it: chmod 700"
    ):
        await tier.open()
    (tmp_path / "m").symlink_to(tmp_path / "deep")
    with pytest.raises(SettingsError, match="is a link or belongs to another user"):
        await DiskTier(str(tmp_path), namespace="m", max_bytes=1).open()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot be used: Not a directory"):
        await DiskTier(str(tmp_path / "file"), namespace="n", max_bytes=1).open()
    with pytest.raises(SettingsError, match="has a '\\$' or '~' in its name"):
        await DiskTier(str(tmp_path / "$HOME"), namespace="n", max_bytes=1).open()


async def test_a_damaged_database_is_made_anew_and_nothing_else_is_removed(tmp_path: Path):
    folder = tmp_path / "n"
    folder.mkdir(mode=0o700)
    (folder / "cache.db").write_bytes(b"no database " * 1000)
    (folder / "mine.txt").write_text("mine")
    tier = DiskTier(str(tmp_path), namespace="n", max_bytes=10_000_000)
    await tier.open()
    await tier.put(AT, b"x", 60)
    assert await tier.get(AT) == b"x"
    await tier.aclose()
    assert (folder / "mine.txt").read_text() == "mine"


async def test_the_disk_stays_below_its_size(tmp_path: Path):
    tier = DiskTier(str(tmp_path), namespace="n", max_bytes=3_000_000)
    await tier.open()
    for index in range(12):
        await tier.put(address(b"%d" % index), b"x" * 1_100_000, 60)
    assert (await tier.size())[1] < 3_000_000 + 1_200_000
    assert await tier.get(address(b"11")) is not None
    assert await tier.get(address(b"0")) is None
    await tier.aclose()


async def test_a_database_that_breaks_while_in_use_is_a_miss_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    tier = DiskTier(str(tmp_path), namespace="n", max_bytes=10_000_000)
    cache = Tiers(1000, tier)
    await cache.open()
    rows(tmp_path, "DROP TABLE Cache")
    for _ in range(3):
        assert await cache.fetch(b"key", bytes) is None
    assert cache._counts["failures"] == 1
    assert [r.levelname for r in caplog.records if "Cache tier 'disk' fails" in r.message] == ["WARNING"]
    await cache.aclose()


@pytest.mark.parametrize("how", ["hangs", "refuses"])
async def test_a_dead_redis_is_a_quick_miss_until_it_is_back(
    how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """One warning reports it, not one for each miss."""
    monkeypatch.setattr(outage, "RETRY", 0.2)
    caplog.set_level(logging.WARNING, "contextrouter")
    async with resp_server() as server:
        cache = Tiers(1000, RedisTier(server.url, namespace="n", timeout=0.1))
        await cache.open()
        if how == "hangs":
            server.hang = True
        else:
            await server.stop()
        started = monotonic()
        for _ in range(50):
            assert await cache.fetch(b"key", bytes) is None
            cache.keep(b"key", lambda: b"body", 60)
        assert monotonic() - started < 2.5  # one by one they would take 5 seconds
        await asyncio.sleep(0.25)
        assert await cache.fetch(b"key", bytes) is None  # still dead; said before
        server.hang = False
        if how == "refuses":
            await server.start()
        await asyncio.sleep(0.25)
        cache.keep(b"key", lambda: b"body", 60)
        for _ in range(100):
            if await cache.fetch(b"key", bytes):
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("the tier was not used again")
        await cache.aclose()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert told[0].startswith("Cache tier 'redis' fails, so answers are computed until it works again: ")
    assert told[1] == "Cache tier 'redis' works again."


async def test_a_redis_that_is_not_there_stops_neither_opening_nor_closing():
    server = RespServer()
    await server.start()
    await server.stop()
    cache = Tiers(1000, RedisTier(server.url, namespace="n", timeout=0.1))
    await cache.open()
    cache.keep(b"key", lambda: b"body", 60)
    assert await cache.fetch(b"key", bytes) is None
    started = monotonic()
    await cache.aclose()
    assert monotonic() - started < 30


async def test_namespaces_of_one_redis_do_not_see_nor_clear_each_other():
    async with resp_server() as server:
        one, other = (RedisTier(server.url, namespace=name, timeout=1.0) for name in ("a", "b"))
        await one.open()
        await other.open()
        await one.put(AT, b"one", 60)
        assert await other.get(AT) is None
        assert (await other.clear(), await one.get(AT)) == (0, b"one")
        assert list(server.data) == [b"contextrouter:a:" + AT.hex().encode()]
        await one.aclose()
        await other.aclose()


def test_what_the_disk_is_made_of_would_pickle_by_itself(tmp_path: Path):
    """Guards the reason for all this: were plain `diskcache` safe, it could be used as it is."""
    with diskcache.Cache(str(tmp_path)) as cache:
        cache["k"] = ["x"]
        assert cache["k"] == ["x"]


def test_a_router_may_go_from_one_event_loop_to_the_next_with_its_disk(tmp_path: Path):
    cache = {"tier": "disk", "path": str(tmp_path / "cache")}
    router = ContextRouter(
        {"cache": cache}, providers={"p": Memory(documents=[{"id": "1", "content": "alpha"}])}
    )
    found = [asyncio.run(router.route("alpha")) for _ in range(2)]

    async def last() -> Context:
        context = await router.route("alpha beta")
        await router.aclose()
        return context

    assert [context.outcome for context in [*found, asyncio.run(last())]] == ["answered"] * 3
    asyncio.run(router.aclose())


def test_a_tier_whose_loop_has_ended_can_be_closed_in_another(tmp_path: Path):
    tiers = Tiers(1000, DiskTier(str(tmp_path / "cache"), namespace="n", max_bytes=100_000))
    asyncio.run(tiers.open())
    asyncio.run(tiers.aclose())
    asyncio.run(tiers.aclose())
