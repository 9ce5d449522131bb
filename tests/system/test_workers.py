"""Several servers and one Redis: rates are counted for all of them together."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.serving import KEY, key, router, serve_router
from test_redis import Server

from contextrouter.cache.shared_rates import RedisRates
from contextrouter.server.worker_share import Worker

ASK = {"question": "what?"}


@pytest.mark.case("NEW-31")
async def test_a_rate_is_that_of_all_servers_together(tmp_path: Path):
    redis = Server(tmp_path)
    await redis.start()
    try:
        cache = {"tier": "redis", "url": redis.url, "timeout_seconds": 5.0}
        settings = {**key(rate_per_minute=4), "cache": cache}
        one, two = (router(settings) for _ in range(2))
        async with (
            serve_router(one, token=KEY, worker=Worker(count=2)) as ask_one,
            serve_router(two, token=KEY, worker=Worker(count=2)) as ask_two,
        ):
            statuses = [(await ask("/v1/route", ASK)).status for ask in (ask_one, ask_one, ask_one, ask_two)]
            refused = [await ask("/v1/route", ASK) for ask in (ask_one, ask_two)]
        assert statuses == [200] * 4  # a share of the rate would be two
        assert [answer.status for answer in refused] == [429, 429]
        assert int(refused[0].headers["Retry-After"]) <= 15  # one comes back every 15 seconds
    finally:
        redis.stop()


async def test_a_bucket_fills_up_with_time_and_never_above_its_rate(tmp_path: Path):
    redis = Server(tmp_path)
    await redis.start()
    rates = RedisRates(redis.url, namespace="n", timeout=5.0)
    try:
        assert [await rates.take("anna", 2) for _ in range(2)] == [0, 0]
        assert 29 < await rates.take("anna", 2) <= 30  # two a minute: one every 30 seconds
        assert await rates.take("bert", 2) == 0
    finally:
        await rates.aclose()
        redis.stop()
