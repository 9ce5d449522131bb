"""Frozen means frozen: what a reader changes in an answer changes no cache and no store."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextrouter import Context, ContextRouter, Document, Fact
from contextrouter.builtin.providers.memory import Memory
from contextrouter.contracts import Entry
from contextrouter.testing import Facts

CHANGES: list[Callable[[Any], Any]] = [
    lambda c: c.envelopes[0].document.metadata.update(hacked=1),
    lambda c: c.envelopes[0].document.metadata.__setitem__("hacked", 1),
    lambda c: c.envelopes[0].document.metadata["tags"].append("EVIL"),
    lambda c: c.envelopes[0].document.metadata["nested"]["deep"].sort(),
    lambda c: c.envelopes[0].signals.pop("fused"),
    lambda c: c.facts[0].attributes.clear(),
    lambda c: c.intent.attributes.setdefault("hacked", 1),
    lambda c: c.trace.dropped[0].document.metadata.update(hacked=1),
    lambda c: c.trace.plan.excluded.__delitem__("x"),
]


async def filled() -> Memory:
    store = Memory()
    metadata = {"tags": ["a"], "nested": {"deep": [2, 1]}}
    for n in range(3):
        document = Document(id=f"d{n}", content=f"otter {n}", metadata=metadata)
        await store.upsert([Entry(document=document, chunks=[document])])
    return store


@pytest.mark.case("CAC-08")
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("change", CHANGES)
async def test_no_reader_of_an_answer_changes_the_next_one(cache: bool, change: Callable[[Context], Any]):
    fact = Fact(subject="otter", predicate="eats", object="fish", attributes={"page": 1})
    settings = {"rag": {"cache_enabled": cache, "general_retrieval_final_count": 1}}
    async with ContextRouter(settings, providers={"p": await filled()}, facts={"f": Facts([fact])}) as router:
        first = await router.route("otter")
        before = copy.deepcopy([first.envelopes, first.facts, first.intent, first.trace.dropped])
        with pytest.raises(TypeError, match="read-only"):
            change(first)
        second = await router.route("otter")
    assert second.cached == cache
    assert [second.envelopes, second.facts, second.intent] == before[:3] or not cache
    assert second.envelopes[0].document.metadata == {"tags": ["a"], "nested": {"deep": [2, 1]}}


@pytest.mark.case("CAC-08")
async def test_an_answer_of_the_disk_is_read_only_too(tmp_path: Path):
    cache = {"tier": "disk", "path": str(tmp_path / "cache")}
    for _ in range(2):
        async with ContextRouter({"cache": cache}, providers={"p": await filled()}) as router:
            context = await router.route("otter")
            with pytest.raises(TypeError, match="read-only"):
                context.envelopes[0].document.metadata["tags"].append("EVIL")


async def test_a_copy_of_a_result_can_be_changed_and_pickled():
    async with ContextRouter({}, providers={"p": await filled()}) as router:
        context = await router.route("otter")
    metadata = context.envelopes[0].document.metadata
    changed = {**metadata, "tags": [*metadata["tags"], "b"]}
    assert changed["tags"] == ["a", "b"]
    assert pickle.loads(pickle.dumps(context)) == context
