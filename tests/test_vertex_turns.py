"""Several processes at one collection of Vector Search: one at a time writes, and all read what it wrote.

A process is a store of its own with its own connection: they share the server and nothing else.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from google.cloud import vectorsearch_v1 as types
from support.vertex import Script, Step, listening, opened

from contextrouter import Document, Query
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.providers.vertex import Vertex, ingest_lock, provider
from contextrouter.builtin.providers.vertex.collection_server import CollectionServer
from contextrouter.builtin.providers.vertex_index import VertexIndex
from contextrouter.builtin.providers.vertex_index.index_server import IndexServer
from contextrouter.contracts import Entry
from contextrouter.errors import IngestError, SourceError
from contextrouter.ingest import SupportsTurns, run

PARENT = "projects/p/locations/us-central1/collections/library"
TURN = f"{PARENT}/dataObjects/turn"


@asynccontextmanager
async def processes(
    number: int, embedder: str | None = None
) -> AsyncIterator[tuple[list[Vertex], CollectionServer, Script]]:
    server = CollectionServer("library", 0)
    async with listening(server) as (endpoint, script), AsyncExitStack() as stack:
        stores = [
            Vertex(collection="library", project="p", endpoint=endpoint, embedder=embedder)
            for _ in range(number)
        ]
        for store in stores:
            await stack.enter_async_context(opened(store))
        yield stores, server, script


def version(name: str, parts: int, language: str | None = None) -> Entry:
    chunks = [
        Document(id=f"d#{n}", parent="d", content=f"{name} part {n}", language=language) for n in range(parts)
    ]
    whole = Document(id="d", content=f"{name} whole", language=language)
    return Entry(document=whole, chunks=chunks, fingerprint=name)


async def texts(store: Vertex, word: str = "part") -> list[str]:
    hits = await store.search(Query(text=word, leg="text", limit=100))
    return sorted(hit.document.content for hit in hits)


async def leave_turn(server: CollectionServer, ends: object, owner: str = "process 1 on elsewhere") -> None:
    """Put a turn into the collection, as a process leaves it that ended in the middle."""
    data = {"role": "turn", "owner": "other", "id": owner, "updated": ends}
    server._keep(TURN, types.DataObject(name=TURN, data=data))


async def test_two_processes_that_write_one_document_at_once_leave_one_of_its_versions():
    async with processes(3) as (stores, server, script):
        script.always = Step(delay=0.002)
        for turn in range(3):
            names = [f"v{turn}x{number}" for number in range(3)]
            writes = [
                store.upsert([version(name, 3 + turn)]) for name, store in zip(names, stores, strict=True)
            ]
            await asyncio.gather(*writes)
            (name,) = {text.split()[0] for text in await texts(stores[0])}
            assert await texts(stores[0]) == [f"{name} part {number}" for number in range(3 + turn)]
            assert await stores[1].fingerprints() == {"d": name}
            assert len(server.objects) == 1 + 3 + turn + 1, "no turn and no stale chunk is left"


async def test_languages_that_two_processes_write_at_once_are_all_noted():
    async with processes(2) as (stores, _, _):
        german = Document(id="de", content="alte Häuser", language="de")
        french = Document(id="fr", content="les vieilles maisons", language="fr")
        entries = [Entry(document=each, chunks=[each]) for each in (german, french)]
        await asyncio.gather(*(store.upsert([entry]) for store, entry in zip(stores, entries, strict=True)))
        await stores[0].version()
        assert await texts(stores[0], "Haus") == ["alte Häuser"]
        assert await texts(stores[0], "maison") == ["les vieilles maisons"]


async def test_texts_of_a_new_language_are_found_without_the_cache(monkeypatch: pytest.MonkeyPatch):
    """The cache asks for the version of a store, and so for its notes. Nothing else may depend on that."""
    async with processes(2) as ((reader, writer), _, script):
        await writer.upsert([version("english", 1)])
        assert await texts(reader, "maison") == []
        french = Document(id="fr", content="les vieilles maisons", language="fr")
        await writer.upsert([Entry(document=french, chunks=[french])])
        monkeypatch.setattr(provider, "NOTES_SECONDS", 0.0)
        assert await texts(reader, "maison") == ["les vieilles maisons"]
        monkeypatch.setattr(provider, "NOTES_SECONDS", 3_600.0)
        script.seen.clear()
        await asyncio.gather(*(texts(reader, "maison") for _ in range(3)))
        assert "GetDataObject" not in script.methods(), "notes are not read for each question"


async def test_a_run_says_who_fills_the_collection_and_runs_when_that_one_is_done(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The moon raises the tides.")
    path = tmp_path / "settings.toml"
    async with processes(1) as ((store,), server, _):
        assert isinstance(store, SupportsTurns)
        path.write_text(
            f'[providers.vertex]\nproject = "p"\ncollection = "library"\nembedder = ""\nendpoint ='
            f' "{store._connection.options.endpoint}"\n[ingest.docs]\nfrom = "docs"\nto = "vertex"\n'
        )
        assert await store.take_turn() == ""
        holder = r"being filled by process \d+ on \S+ since [\d:]+ UTC"
        with pytest.raises(IngestError, match=holder):
            await run(path, wait=0.0)
        await store.upsert([version("mine", 1)])
        assert TURN in server.objects, "a write in the turn of a run does not end it"
        await store.end_turn()
        assert TURN not in server.objects
        (report,) = (await run(path, wait=0.0)).values()
        assert report.added == 1
        assert TURN not in server.objects


@pytest.mark.parametrize("ends", [lambda: time.time() - 60, lambda: time.time() + 86_400, lambda: "soon"])
async def test_a_turn_that_a_process_left_behind_is_taken(ends):
    async with processes(1) as ((store,), server, _):
        await leave_turn(server, ends())
        await store.upsert([version("mine", 1)])
        assert await store.fingerprints() == {"d": "mine"}
        assert TURN not in server.objects


async def test_of_two_processes_that_find_a_turn_left_behind_one_takes_it():
    async with processes(2) as (stores, server, script):
        script.always = Step(delay=0.002)
        for _ in range(5):
            await leave_turn(server, time.time() - 60)
            taken = await asyncio.gather(*(store.take_turn() for store in stores))
            assert sorted(owner == "" for owner in taken) == [False, True]
            await stores[taken.index("")].end_turn()
            for store in stores:
                store._get_opened()[1]._refused = (0.0, "")


async def test_a_write_outside_of_a_run_waits_and_says_who_holds_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingest_lock, "PATIENCE", 0.0)
    async with processes(1) as ((store,), server, _):
        await leave_turn(server, time.time() + 30)
        with pytest.raises(SourceError, match="being filled by process 1 on elsewhere; write again when"):
            await store.upsert([version("mine", 1)])
        assert await store.fingerprints() == {}


async def test_what_another_wrote_as_its_name_is_shown_as_one_short_line():
    async with processes(1) as ((store,), server, _):
        await leave_turn(server, time.time() + 30, owner="\x1b[2J" + "evil\n" * 1_000)
        owner = await store.take_turn()
        assert owner.startswith("[2Jevilevil")
        assert owner.isprintable()
        assert len(owner) <= 200


async def test_a_process_that_lost_its_turn_writes_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingest_lock, "RENEWED_AFTER", 0.01)
    async with processes(2) as ((first, second), server, _):
        assert await first.take_turn() == ""
        await first.upsert([version("first", 2)])
        await leave_turn(server, time.time() - 60)  # as if it had stood still
        assert await second.take_turn() == ""
        await second.upsert([version("second", 2)])
        lock = first._get_opened()[1]
        assert lock._renewal is not None
        await lock._renewal  # it ends when the turn is lost
        with pytest.raises(
            SourceError, match=r"the turn of this one is over \((process \d+ on .*|another process) took it\)"
        ):
            await first.upsert([version("third", 2)])
        await first.end_turn()
        assert TURN in server.objects, "that of the other"
        await second.end_turn()
        assert await second.fingerprints() == {"d": "second"}
        assert await texts(second) == ["second part 0", "second part 1"]


async def test_a_turn_that_could_not_be_renewed_ends_and_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingest_lock, "RENEWED_AFTER", 0.01)
    monkeypatch.setattr(ingest_lock, "TERM", 2.0)
    async with processes(1) as ((store,), _, script):
        script.only, script.always = ("UpdateDataObject",), Step(status="UNAVAILABLE")
        assert await store.take_turn() == ""
        renewal = store._get_opened()[1]._renewal
        assert renewal is not None
        await renewal
        with pytest.raises(SourceError, match=r"may be filled by another process now.*not reachable now"):
            await store.upsert([version("mine", 1)])


async def test_a_turn_is_renewed_while_it_lasts_and_given_back_at_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingest_lock, "RENEWED_AFTER", 0.01)
    async with processes(1) as ((store,), server, _):
        assert await store.take_turn() == ""
        states = {server.objects[TURN].etag}
        while len(states) < 3:
            await asyncio.sleep(0.01)
            states.add(server.objects[TURN].etag)
        await store.aclose()
        assert TURN not in server.objects


async def test_the_service_refuses_to_change_an_object_with_an_old_etag():
    async with processes(1) as ((store,), server, _):
        await leave_turn(server, 0.0)
        collection = store._get_collection()
        present = await collection.get("turn")
        assert present is not None
        await leave_turn(server, 1.0)
        await collection.delete_unchanged(present)
        assert TURN in server.objects
        request = types.UpdateDataObjectRequest(data_object=types.DataObject(name=TURN, etag=present.etag))
        with pytest.raises(SourceError, match="has another etag"):
            await collection.connection.call(collection.objects.update_data_object, request)


async def test_two_processes_that_fill_an_index_take_turns_at_the_store_of_its_texts(tmp_path: Path):
    def documents(name: str, parts: int) -> Sequence[Entry]:
        chunks = [Document(id=f"d#{name}{n}", parent="d", content=f"{name} {n}") for n in range(parts)]
        vectors = {"vector": [[1.0, 0.0]] * parts}
        whole = Document(id="d", content=name)
        return [Entry(document=whole, chunks=chunks, vectors=vectors, fingerprint=name)]

    server = IndexServer()
    async with listening(server) as (endpoint, script), AsyncExitStack() as stack:
        keys = {"index_endpoint": "1", "deployed_index": "example", "index": "2", "project": "p"}
        filled = []
        for _ in range(2):
            store = await stack.enter_async_context(
                opened(Sqlite(path=str(tmp_path / "texts.db"), embedder=""))
            )
            one = VertexIndex(texts=store, endpoint=endpoint, **keys)  # type: ignore[arg-type]  # plain texts
            filled.append(await stack.enter_async_context(opened(one)))
        script.always = Step(delay=0.002)
        first, second = filled
        await asyncio.gather(first.upsert(documents("a", 3)), second.upsert(documents("b", 2)))
        ((_, name),) = (await first.fingerprints()).items()
        assert sorted(server.points) == [f"d#{name}{n}" for n in range(3 if name == "a" else 2)]
        assert await first.take_turn() == ""
        assert re.match(r"process \d+ since", await second.take_turn())
        await first.upsert(documents("c", 1))
        await first.end_turn()
        assert await second.take_turn() == ""
        await second.end_turn()
        assert sorted(server.points) == ["d#c0"]


async def test_closing_that_is_given_up_closes_the_connection_all_the_same():
    """Amid a run, whose turn is given back first; here that takes a minute."""
    async with processes(1) as ((store,), _, script):
        assert await store.take_turn() == ""
        script.always = Step(delay=60.0)
        closing = asyncio.create_task(store.aclose())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not store._connection.is_open
        script.always = None
