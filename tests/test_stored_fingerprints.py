"""Fingerprints of stored documents, compared outside memory: what is stored, listed, and in which version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing

import pytest

from contextrouter.errors import IngestError
from contextrouter.ingest import ingest, stored_fingerprints
from contextrouter.ingest.stored_fingerprints import StoredFingerprints, StoredVersions
from contextrouter.model import Document

Marks = Mapping[str | None, Mapping[str, str]]
"""Tenant -> id -> fingerprint."""


class Named:
    """A store that names its tenants, and has nothing else of its own."""

    embedder = None
    vector_legs: Sequence[str] = ()

    def __init__(self, marks: Marks) -> None:
        self.marks, self.calls = marks, list[str | None]()

    async def upsert(self, entries: object) -> None: ...

    async def delete(self, ids: object, tenant: object = None) -> int:
        return 0

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        self.calls.append(tenant)
        return self.marks.get(tenant, {})

    async def tenants(self) -> Sequence[str | None]:
        return list(self.marks)


class Paged(Named):
    """A store that lists pages, and is asked for nothing else."""

    async def fingerprints(self, tenant: str | None = None) -> Mapping[str, str]:
        raise NotImplementedError

    async def fingerprint_pages(self) -> AsyncIterator[Sequence[tuple[str | None, str, str]]]:
        for tenant, marks in self.marks.items():
            yield [(tenant, id, mark) for id, mark in marks.items()]


MARKS: Marks = {
    None: {"x:a": "1.r.v1", "x:b": "2.r.v2", "y:a": "3.r.v3", "x;a": "4.r.v4"},
    "acme": {"x:b": "5.r.v2", "x:c": "6.old.v6", "x:d": "7", "x:e": "8.r.v8"},
}


@pytest.fixture(params=[Named, Paged])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredFingerprints]:
    monkeypatch.setattr(stored_fingerprints, "_PAGE", 2)
    with closing(StoredFingerprints(request.param(MARKS))) as stored:
        yield stored


async def test_versions_are_those_of_the_origin_and_its_recipe(stored: StoredFingerprints) -> None:
    """A document that two tenants have is left out: its version does not tell whose it is."""
    await stored.load_all()
    versions = StoredVersions(stored, "x", "r")
    assert dict(versions) == {"a": "v1", "e": "v8"}
    assert len(versions) == 2
    assert (versions.tenant("a"), versions.tenant("e")) == (None, "acme")
    assert versions.get("b") is None
    assert "c" not in versions


async def test_documents_are_stored_listed_or_both(stored: StoredFingerprints) -> None:
    await stored.load_all()
    assert stored.add_listed(None, "x:a")
    assert not stored.add_listed(None, "x:a")
    assert stored.add_listed("acme", "x:a")
    assert stored.add_listed("acme", "x:new")
    assert list(stored.documents("x", listed=True)) == [(None, "x:a")]
    gone = [(None, "x:b"), ("acme", "x:b"), ("acme", "x:c"), ("acme", "x:d"), ("acme", "x:e")]
    assert list(stored.documents("x", listed=False)) == gone
    assert list(stored.documents("x")) == [(None, "x:a"), *gone]
    assert (stored.is_listed("x:a"), stored.is_listed("x:b")) == (True, False)
    assert (stored.fingerprint("acme", "x:d"), stored.fingerprint(None, "x:d")) == ("7", None)
    assert stored.fingerprint("acme", "x:new") is None
    assert stored.count_listed() == 2
    assert stored.count_stored("x") == 5
    assert stored.count_stored("x", [None]) == 2
    assert stored.count_all("x") == 6
    assert stored.count_all("x", [None]) == 3


async def test_ids_are_any_text(stored: StoredFingerprints) -> None:
    """Lone surrogates, NUL, quotes: an id is compared as it is."""
    await stored.load_all()
    for id in ("x:\ud800", "x:\x00", "x:'; DROP TABLE documents", "x:é"):
        assert stored.add_listed(None, id)
        assert not stored.add_listed(None, id)


async def test_a_store_is_asked_once_for_each_tenant() -> None:
    store = Named(MARKS)
    with closing(StoredFingerprints(store)) as stored:
        await stored.load("acme")
        await stored.load_all()
        await stored.load("acme")
        await stored.load(None)
    assert sorted(store.calls, key=str) == [None, "acme"]


async def test_a_store_that_breaks_off_is_named() -> None:
    class Broken(Paged):
        async def fingerprint_pages(self) -> AsyncIterator[Sequence[tuple[str | None, str, str]]]:
            yield [(None, "x:a", "1")]
            raise OSError("unplugged")

    with (
        closing(StoredFingerprints(Broken(MARKS))) as stored,
        pytest.raises(IngestError, match="The store does not say what it holds: unplugged"),
    ):
        await stored.load(None)


class Pages:
    """A source of so many documents with long ids."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def crawl(self) -> AsyncIterator[Document]:
        for number in range(self.count):
            yield Document(id=f"{number:0200}", content="a moon")


@pytest.mark.parametrize("kind", [Named, Paged])
@pytest.mark.parametrize(("listed", "kept"), [(200, 0), (0, 200)])
async def test_a_run_without_room_for_its_notes_says_so(
    kind: type[Named], listed: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the store's fault, wherever the notes come from."""
    small = f"PRAGMA max_page_count = 4;{stored_fingerprints._SCHEMA}"
    monkeypatch.setattr(stored_fingerprints, "_SCHEMA", small)
    store = kind({None: {f"x:{number:0200}": "mark" for number in range(kept)}})
    with pytest.raises(
        IngestError, match=r"^The run cannot note which documents there are.*\(database or disk is full\)"
    ):
        await ingest(Pages(listed), store, [], None, origin="x")
