"""Facts are held to the labels of their job exactly as documents are, and to what strangers wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextrouter import ContextRouter, Document, Fact, Scope
from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.ingest.jobs import run as run_jobs
from contextrouter.ingest.preparation import build_entry
from contextrouter.model import Query


async def ingested(folder: Path, labels: Mapping[str, str], **own: str) -> tuple[ContextRouter, Any]:
    """A router whose store has the facts of one file, and the report of the job that read it."""
    (folder / "facts").mkdir()
    records = [
        {"subject": "Otto", "predicate": "leads", "object": "sales", **own},
        {"subject": "Otto", "predicate": "likes", "object": "tea"},
    ]
    (folder / "facts" / "staff.jsonl").write_text("\n".join(map(json.dumps, records)))
    router = ContextRouter(
        {
            "rag": {"cache_enabled": False},
            "providers": {"store": {"use": "sqlite", "path": str(folder / "s.db")}},
            "facts": {"graph": {"use": "sqlite", "store": "store"}},
            "connectors": {"staff": {"use": "files", "path": str(folder / "facts"), "enabled": False}},
            "transforms": {"triples": {"use": "triples"}},
            "ingest": {"staff": {"from": "staff", "to": "store", "transforms": ["triples"], **labels}},
        }
    )
    reports = await run_jobs(router)
    return router, reports["staff"]


async def objects(router: ContextRouter, scope: Scope | None) -> set[str]:
    context = await router.route("What does Otto do?", scope=scope)
    return {fact.object for fact in context.facts}


@pytest.mark.case("SEC-01")
async def test_a_record_cannot_share_its_fact_with_every_tenant(tmp_path: Path):
    router, report = await ingested(tmp_path, {}, tenant="*")
    async with router:
        assert report.skipped == []
        assert await objects(router, Scope(tenant="acme")) == set()
        assert await objects(router, Scope()) == {"sales", "tea"}


@pytest.mark.case("SEC-01")
async def test_facts_have_the_labels_of_their_job_and_records_only_tighten_them(tmp_path: Path):
    labels = {"tenant": "acme", "compartment": "hr", "sensitivity": "internal"}
    router, report = await ingested(tmp_path, labels, tenant="acme", sensitivity="restricted")
    hr = frozenset({"hr"})
    async with router:
        assert report.skipped == []
        assert await objects(router, Scope(tenant="acme", compartments=hr, ceiling="restricted")) == {
            "sales",
            "tea",
        }
        assert await objects(router, Scope(tenant="acme", compartments=hr, ceiling="internal")) == {"tea"}
        assert await objects(router, Scope(tenant="acme", compartments=hr)) == set()
        assert await objects(router, Scope(tenant="acme", ceiling="restricted")) == set()


@pytest.mark.case("SEC-01")
@pytest.mark.parametrize("name", ["tenant", "compartment"])
async def test_a_record_that_contradicts_its_job_is_left_out_and_named(tmp_path: Path, name: str):
    labels = {"tenant": "acme", "compartment": "hr", "sensitivity": "restricted"}
    router, report = await ingested(tmp_path, labels, sensitivity="public", **{name: "other"})
    async with router:
        assert report.facts == 1
        ((_, reason),) = report.skipped
        assert f"fact 'Otto — leads — sales' names the {name} 'other'" in reason
        assert await objects(router, None) == {"tea"}


async def test_a_fact_is_never_labelled_looser_than_its_chunk():
    fact = Fact(subject="a", predicate="b", object="c", sensitivity="public")
    chunk = Document(
        id="d", content="x", sensitivity="restricted", metadata={"facts": [fact]}, untrusted=True
    )
    entry, problems = await build_entry(chunk, [], "")
    assert [(f.sensitivity, f.untrusted) for f in entry.facts] == [("restricted", True)]
    assert problems == []


async def test_a_store_keeps_which_facts_are_of_strangers(tmp_path: Path):
    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    ours = Fact(subject="Otto", predicate="likes", object="tea", attributes={"page": 3})
    entries = [
        Entry(
            document=Document(id=id, content="x", untrusted=id == "theirs"),
            chunks=[Document(id=id, content="x")],
            facts=[ours.replace(object=id)],
        )
        for id in ("ours", "theirs")
    ]
    await store.upsert(entries)
    await store.aclose()
    source = SqliteFacts(path=str(tmp_path / "s.db"))
    await source.open()
    try:
        facts = await source.facts(Query(text="Otto"))
        (entity,) = await source.entities(Query(text="Otto", leg="entities"))
    finally:
        await source.aclose()
    assert {(fact.object, fact.untrusted) for fact in facts} == {("ours", False), ("theirs", True)}
    assert [fact.attributes for fact in facts] == [{"page": 3}, {"page": 3}]
    assert entity.untrusted
