"""A run is noted once for its job, and documents read from it when they were last compared with their source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.postgres_server import open_store
from support.stores import open_memory, open_sqlite

from contextrouter.contracts import Entry
from contextrouter.ingest import ingest
from contextrouter.model import Document, Query


class Shelf:
    """A source that lists these documents, and may break off."""

    def __init__(self, *names: str, breaks: bool = False) -> None:
        self.names, self.breaks = names, breaks

    async def crawl(self) -> AsyncIterator[Document]:
        for name in self.names:
            yield Document(id=name, content=f"otter {name}", keywords=(f"otter {name}",))
        if self.breaks:
            raise OSError("gone")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    opens = {"memory": open_memory, "sqlite": open_sqlite, "postgres": open_store}
    async with opens[request.param](embedder=None) as opened:
        yield opened


async def times(store: Any) -> dict[str, datetime | None]:
    hits = await store.search(Query(text="otter", leg="text"))
    return {hit.document.parent or hit.document.id: hit.document.synced_at for hit in hits}


@pytest.mark.case("C14")
async def test_every_run_dates_all_documents_of_its_job_and_writes_none_of_them(store: Any) -> None:
    before = datetime.now(UTC)
    await ingest(Shelf("a", "b"), store, [], None, origin="x")
    await ingest(Shelf("c"), store, [], None, origin="y")
    first, version = await times(store), await store.version()
    assert first.keys() == {"x:a", "x:b", "y:c"}
    assert all(before <= moment <= datetime.now(UTC) for moment in first.values() if moment)
    report = await ingest(Shelf("a", "b"), store, [], None, origin="x")
    assert (report.unchanged, report.documents, await store.version()) == (2, 0, version)
    second = await times(store)
    assert second["x:a"] == second["x:b"]
    assert second["x:a"] > first["x:a"]
    assert second["y:c"] == first["y:c"]
    (hit,) = await store.mentions(Query(text="", entities=("otter a",)))
    assert hit.document.synced_at == second["x:a"]
    (document,) = await store.fetch(["x:a"])
    assert document.synced_at == second["x:a"]


async def test_a_run_that_breaks_off_or_is_doubted_or_dry_dates_nothing(store: Any) -> None:
    await ingest(Shelf("a"), store, [], None, origin="x")
    first = await times(store)
    with pytest.raises(Exception, match="broke off"):
        await ingest(Shelf("a", breaks=True), store, [], None, origin="x")
    await ingest(Shelf("a"), store, [], None, origin="x", dry_run=True)
    assert (await ingest(Shelf(), store, [], None, origin="x")).in_doubt == 1
    assert await times(store) == first


async def test_a_document_that_no_job_stored_keeps_its_own_time(store: Any) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    documents = [Document(id="by-hand", content="otter", synced_at=moment)]
    await store.upsert([Entry(document=each, chunks=[each]) for each in documents])
    await store.record_run("x", moment + timedelta(days=1))
    assert await times(store) == {"by-hand": moment}
