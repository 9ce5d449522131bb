"""The key `pool` of a stage: how many candidates the sources are asked for while it runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import ContextRouter, Intent, Rag, Request, SettingsError
from contextrouter.builtin.stages.cross_encoder import CrossEncoder
from contextrouter.pipeline.planning import make_plan
from contextrouter.settings import Settings
from contextrouter.testing import Fixed

DOCUMENTS = [{"id": f"d{n:02}", "content": f"tides and page{n}"} for n in range(80)]


def settings(**rag: object) -> dict[str, object]:
    return {
        "rag": {"stages": ["cross"], "interpreters": [], "candidates": 15, **rag},
        "providers": {
            "many": {"use": "memory", "documents": DOCUMENTS},
            "few": {"use": "memory", "documents": DOCUMENTS, "limit": 5},
        },
        "stages": {"cross": {"pool": 2.0}, "late": {"use": "quality", "pool": 3.0}},
        "routes": {"wide": {"stages": ["cross", "late"]}, "plain": {"stages": []}},
    }


async def hits_by_source(mode: str = "default", **rag: object) -> dict[str, int]:
    stages = {"cross": CrossEncoder.example()}
    async with ContextRouter(settings(**rag), stages=stages) as router:
        context = await router.route(Request(question="tides", mode=mode))
    return {report.source: report.count for report in context.coverage}


@pytest.mark.case("K10")
async def test_a_cross_encoder_gets_twice_the_candidates_while_it_runs():
    assert await hits_by_source() == {"many": 30, "few": 10}
    assert await hits_by_source(enable_cross_encoder=False) == {"many": 15, "few": 5}
    assert await hits_by_source(use_enhancements=False) == {"many": 15, "few": 5}


async def test_the_largest_pool_of_the_stages_of_a_route_counts():
    assert await hits_by_source("wide") == {"many": 45, "few": 15}
    assert await hits_by_source("wide", enable_cross_encoder=False) == {"many": 45, "few": 15}
    assert await hits_by_source("plain") == {"many": 15, "few": 5}


async def test_the_plan_shows_the_limit_and_facts_keep_theirs():
    facts = {"graph": {"use": "sqlite", "path": "none.db"}}
    router = ContextRouter({**settings(), "facts": facts}, stages={"cross": CrossEncoder.example()})
    made = await router.plan("tides")
    assert {call.source: call.query.limit for call in made.calls} == {"many": 30, "few": 10, "graph": 50}
    await router.aclose()


@pytest.mark.parametrize("pool", [0.5, 0, -1.0, 101, float("nan"), "two"])
def test_a_pool_out_of_range_is_refused_with_its_key(pool: object):
    table = {"rag": {"stages": ["quality"]}, "stages": {"quality": {"pool": pool}}}
    with pytest.raises(SettingsError, match=r"stages\.quality\.pool"):
        ContextRouter(table)


def test_only_stages_have_a_pool():
    table = {"rag": {"interpreters": ["normalize"]}, "interpreters": {"normalize": {"pool": 2.0}}}
    with pytest.raises(SettingsError, match=r"interpreters\.normalize\.pool: unknown key"):
        ContextRouter(table)


def planned(limit: int, pool: float) -> int:
    intent, table = Intent(question="q", queries=("q",)), Settings(rag=Rag(candidates=limit))
    made = make_plan(intent, Request(question="q"), table, {"web": Fixed()}, pool=pool)
    return made.calls[0].query.limit


@given(limit=st.integers(1, 1000), tenths=st.integers(10, 1000))
def test_the_limit_is_rounded_up_without_errors_of_floats(limit: int, tenths: int):
    """In tenths, so that the right value is a matter of integers: -(-a // b) rounds up."""
    assert planned(limit, tenths / 10) == -(-limit * tenths // 10)
    assert planned(limit, 1.0) == limit
