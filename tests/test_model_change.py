"""A change of the embedding model loses no answer: the store has the vectors of both models meanwhile."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine
from support.postgres_server import open_store, run, schema, uri
from support.stores import OpenEmpty, entry, ids, open_sqlite

from contextrouter import ContextRouter, Request
from contextrouter.builtin.embedders.onnx_example import write_model
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.providers.sqlite.file import Stop, begin_snapshot
from contextrouter.builtin.providers.sqlite.schema import StoreConnection
from contextrouter.builtin.providers.sqlite.search_batches import Answers
from contextrouter.contracts import Embedder, Entry
from contextrouter.errors import IngestError, SettingsError, SourceError
from contextrouter.ingest import drop_model, embed, ingest, stored_models
from contextrouter.ingest import run as run_jobs
from contextrouter.model import Document, Fact, Query, Vector

ANIMALS = ("otter", "heron", "badger", "salmon", "kestrel", "beaver", "newt", "vole")


class Store:
    """A folder with texts, a job that fills a store with them, and routers with one or the other embedder."""

    def __init__(self, folder: Path, provider: dict[str, Any]) -> None:
        self.folder, self.provider = folder, provider
        (folder / "texts").mkdir()
        (folder / "model").mkdir()
        write_model(folder / "model")
        for animal in ANIMALS:
            self.write(animal)

    def write(self, animal: str, text: str = "lives by the river") -> None:
        (self.folder / "texts" / f"{animal}.txt").write_text(f"The {animal} {text}.\n")

    def settings(self, embedder: str) -> dict[str, Any]:
        return {
            "providers": {"docs": {**self.provider, "embedder": embedder}},
            "embedders": {"new": {"use": "onnx", "path": str(self.folder / "model")}},
            "ingest": {"texts": {"from": str(self.folder / "texts"), "to": "docs"}},
            "rag": {"cache_enabled": False},
        }

    def router(self, embedder: str = "default") -> ContextRouter:
        return ContextRouter(self.settings(embedder))

    def broken(self, embedder: Embedder) -> ContextRouter:
        """A router whose embedder "new" is this one."""
        settings = {name: table for name, table in self.settings("default").items() if name != "embedders"}
        return ContextRouter(settings, embedders={"new": embedder})

    async def fill(self, embedder: str = "default") -> Any:
        """Run the job; its report."""
        async with self.router(embedder) as router:
            return (await run_jobs(router))["texts"]


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        yield Store(tmp_path, {"use": "sqlite", "path": str(tmp_path / "docs.db")})
        return
    name = schema()
    dsn = await asyncio.to_thread(uri)
    yield Store(tmp_path, {"use": "postgres", "dsn": dsn, "schema": name, "pool_size": 3, "exact_below": 0})
    await run(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


async def found(router: ContextRouter, animal: str = "otter") -> list[str]:
    """The documents that the vector leg finds, all of which there are, the best first."""
    request = Request(question=f"The {animal} lives by the river.", legs=("vector",), limit=50)
    context = await router.route(request)
    assert not context.degraded, context.coverage
    return [Path(envelope.document.url or envelope.document.id).stem for envelope in context.envelopes]


async def models(router: ContextRouter) -> list[tuple[str, bool, int, int]]:
    """Of each model: the embedder's name, whether it answers, chunks with its vectors and without."""
    stored = (await stored_models(router))["docs"]
    return [(model.embedder, model.ready, model.chunks, model.missing) for model in stored]


@pytest.mark.case("NEW-49")
async def test_both_models_answer_from_the_moment_that_nothing_is_missing(store: Store) -> None:
    await store.fill()
    async with store.router() as old, store.router("new") as new:
        before = await found(old)
        assert sorted(before) == sorted(ANIMALS)
        filling = old.instances.sources["docs"].vector_models()
        embedder: Any = new.instances.embedders["new"]
        await old.open()
        await filling.begin(embedder.model, embedder.dimensions, "new")
        chunks = await filling.missing(embedder.model, 100)
        assert len(chunks) == len(ANIMALS)
        for number, chunk in enumerate(chunks):
            assert await found(old) == before
            with pytest.raises(SourceError, match="only a part of the vectors of"):
                await new.instances.sources["docs"].search(Query(text="x", leg="vector", vector=[1.0] * 8))
            assert await filling.finish(embedder.model) == len(ANIMALS) - number
            (vector,) = await embedder.embed([chunk.document.content])
            assert await filling.add(embedder.model, {chunk.key: {"vector": vector}}) == 1
        assert await filling.finish(embedder.model) == 0
        assert await found(old) == before  # its own vectors are still there
        after = await found(new)  # without a new start: each search looks whose vectors there are
        assert sorted(after) == sorted(ANIMALS)
        assert after[0] == "otter"


async def test_questions_are_answered_all_the_time_and_the_command_says_what_comes_next(store: Store) -> None:
    await store.fill()
    asked = 0

    async def ask(router: ContextRouter) -> None:
        nonlocal asked
        while True:
            assert len(await found(router)) == len(ANIMALS)
            asked += 1

    async with store.router() as router, store.router() as other:
        asking = asyncio.create_task(ask(other))
        report = (await embed(router, "new", batch=1))["docs"]
        while asked < 3:
            await asyncio.sleep(0.01)
            assert not asking.done()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (report.chunks, report.total) == (len(ANIMALS), len(ANIMALS))
        assert await models(router) == [("default", True, 8, 0), ("new", True, 8, 0)]
    async with store.router("new") as router:
        assert (await found(router))[0] == "otter"


async def test_an_ingestion_after_the_change_finds_nothing_changed(store: Store) -> None:
    await store.fill()
    async with store.router() as router:
        await embed(router, "new")
    for embedder in ("default", "new"):
        report = await store.fill(embedder)
        assert (report.unchanged, report.documents, report.embedded) == (len(ANIMALS), 0, 0)


@pytest.mark.parametrize("embedder", ["default", "new"])
async def test_ingestion_stores_the_vectors_of_both_models(store: Store, embedder: str) -> None:
    await store.fill()
    async with store.router() as router:
        await embed(router, "new")
    store.write("lynx")
    store.write("otter", "sleeps")
    (store.folder / "texts" / "newt.txt").unlink()
    report = await store.fill(embedder)
    assert (report.added, report.changed, report.deleted) == (1, 1, 1)
    assert report.embedded == 8  # two documents on two legs for two models
    for name in ("default", "new"):
        async with store.router(name) as router:
            assert sorted(await found(router, "lynx")) == sorted({*ANIMALS, "lynx"} - {"newt"})
            assert (await found(router, "lynx"))[0] == "lynx"


async def test_an_ingestion_during_the_filling_stores_both_and_the_filling_goes_on(store: Store) -> None:
    await store.fill()
    async with store.router() as router, store.router("new") as other:
        filling = router.instances.sources["docs"].vector_models()
        embedder: Any = other.instances.embedders["new"]
        for name in ("default", "new"):
            plugin = {"default": router, "new": other}[name].instances.embedders[name]
            await filling.begin(plugin.model, plugin.dimensions, name)
        chunks = await filling.missing(embedder.model, 100)
        store.write("lynx")
        store.write("otter", "sleeps")
        await run_jobs(router)
        assert await models(router) == [("default", True, 9, 0), ("new", False, 2, 7)]
        vectors = await embedder.embed([chunk.document.content for chunk in chunks])
        late = {chunk.key: {"vector": vector} for chunk, vector in zip(chunks, vectors, strict=True)}
        assert await filling.add(embedder.model, late) == 7  # the text of the otter is another one by now
        assert await filling.finish(embedder.model) == 0
        assert sorted(await found(other, "lynx")) == sorted({*ANIMALS, "lynx"})


class Failing(Embedder):
    """Fails after some texts."""

    def __init__(self, inner: Embedder, most: int) -> None:
        self.inner, self.most = inner, most
        self.model, self.dimensions = inner.model, inner.dimensions

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        self.most -= len(texts)
        if self.most < 0:
            raise RuntimeError("out of order")
        return await self.inner.embed(texts, query=query)


async def test_what_an_interruption_leaves_out_the_next_call_does(store: Store) -> None:
    await store.fill()
    async with store.router() as router, store.router("new") as other:
        inner = other.instances.embedders["new"]
        async with store.broken(Failing(inner, 10)) as broken:  # five chunks have two texts each
            with pytest.raises(IngestError, match=r"failed after 5 chunks.*again to go on: out of order"):
                await embed(broken, "new", batch=1)
            assert await models(broken) == [("default", True, 8, 0), ("new", False, 5, 3)]
        report = (await embed(router, "new", batch=1))["docs"]
        assert (report.chunks, report.embedded) == (3, 6)
        assert sorted(await found(other)) == sorted(ANIMALS)
        assert (await embed(router, "new"))["docs"].chunks == 0  # nothing is left to do


async def test_former_vectors_go_when_the_settings_name_the_new_ones(store: Store) -> None:
    await store.fill()
    async with store.router() as router:
        (only,) = (await stored_models(router))["docs"]
        with pytest.raises(IngestError, match="answers with no other vectors than those of"):
            await drop_model(router, only.model)
        await embed(router, "new")
        with pytest.raises(
            IngestError, match=r"Store 'docs' is searched by .*set `embedder` in \[providers\.docs\] to 'new'"
        ):
            await drop_model(router, "default")
        with pytest.raises(SettingsError, match="No store has vectors of 'nwe'"):
            await drop_model(router, "nwe")
    async with store.router("new") as router:
        assert await drop_model(router, "default") == ["docs"]
        assert await models(router) == [("new", True, 8, 0)]
        assert (await found(router))[0] == "otter"
        (only,) = (await stored_models(router))["docs"]
        stats = await router.instances.sources["docs"].stats()
        assert (stats["vectors"], stats["dimensions"], stats["model"]) == (8, only.dimensions, only.model)
        store.write("lynx")
        report = (await run_jobs(router))["texts"]
        assert (report.added, report.unchanged, report.embedded) == (1, 8, 2)
    async with store.router() as router:
        query = Query(text="x", leg="vector", vector=[1.0] * 256)
        with pytest.raises(SourceError, match=r"filled by the embedding model 'model@.*contextrouter embed"):
            await router.instances.sources["docs"].search(query)


async def test_what_the_words_find_has_vectors_of_the_place_that_answers(store: Store) -> None:
    """Also in a process that began before the change."""
    await store.fill()
    async with store.router() as old, store.router("new") as new:
        await new.open()
        await embed(old, "new")
        for router, name in ((old, "default"), (new, "new")):
            (hit,) = await router.instances.sources["docs"].search(Query(text="otter", leg="text"))
            assert len(hit.vector) == router.instances.embedders[name].dimensions
            (model,) = [model for model in (await stored_models(router))["docs"] if model.embedder == name]
            stats = await router.instances.sources["docs"].stats()
            assert (stats["vectors"], stats["model"]) == (8, model.model)


async def test_the_next_change_takes_the_place_that_was_left(store: Store) -> None:
    """Also in a process that has searched that place before: what it remembers of it is void."""
    await store.fill()
    async with store.router() as router, store.router("new") as new:
        before = await found(router)
        await embed(router, "new")
        await drop_model(new, "default")
        store.write("lynx")
        await run_jobs(new)
        assert (await embed(new, "default"))["docs"].chunks == 9
        assert sorted(await found(router)) == sorted([*before, "lynx"])
        assert [name for name, *_ in await models(new)] == ["default", "new"]


async def test_of_two_who_drop_at_once_one_finds_that_the_last_model_is_left(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Both have waited for a run that fills the store; the settings of each name the model of the other."""
    await store.fill()
    async with store.router() as old, store.router("new") as new:
        await embed(old, "new")
        source: Any = old.instances.sources["docs"]
        assert await source.take_turn() == ""
        dropping = [
            asyncio.create_task(drop_model(router, name)) for router, name in ((old, "new"), (new, "default"))
        ]
        while caplog.text.count("is being filled by") < 2:  # noqa: ASYNC110 - of the log
            await asyncio.sleep(0.01)
        await source.end_turn()
        done = await asyncio.gather(*dropping, return_exceptions=True)
        assert sorted(map(str, done))[1] == "['docs']"
        assert "answers with no other vectors than those of" in sorted(map(str, done))[0]
        assert len(await models(old)) == 1


async def test_a_filling_that_is_given_up_leaves_the_former_model(store: Store) -> None:
    await store.fill()
    async with store.router() as router, store.router("new") as other:
        inner = other.instances.embedders["new"]
        async with store.broken(Failing(inner, 2)) as broken:
            with pytest.raises(IngestError):
                await embed(broken, "new", batch=1)
        assert await drop_model(router, "new") == ["docs"]
        assert await models(router) == [("default", True, 8, 0)]
        assert len(await found(router)) == 8


async def test_a_third_model_and_one_without_its_embedder_are_refused(store: Store) -> None:
    await store.fill()
    async with store.router() as router:
        await embed(router, "new")
        settings = store.settings("default")
        settings["embedders"]["third"] = {**settings["embedders"]["new"], "pooling": "cls"}
        async with ContextRouter(settings) as third:
            with pytest.raises(IngestError, match=r"vectors of two models.*--drop"):
                await embed(third, "third")
    del settings["embedders"]["new"]
    async with ContextRouter(settings) as without:
        with pytest.raises(IngestError, match=r"and their embedder 'new' is not there.*--drop model@"):
            await run_jobs(without)


async def test_an_embedder_that_the_store_does_not_note_is_told_how_to_note(store: Store) -> None:
    """The settings named the new one before the change began."""
    await store.fill()
    async with store.router("new") as router:
        await embed(router, "new")
        with pytest.raises(
            IngestError, match="their embedder is not there: the store does not note its name"
        ):
            await run_jobs(router)
        await embed(router, "default")
        assert (await run_jobs(router))["texts"].unchanged == len(ANIMALS)


async def test_a_rebuild_begins_with_the_model_of_the_settings_alone(store: Store) -> None:
    await store.fill()
    async with store.router() as router:
        await embed(router, "new")
    async with store.router("new") as router:
        await run_jobs(router, rebuild=True)
        assert [ready for _, ready, *_ in await models(router)] == [True]
        assert sorted(await found(router)) == sorted(ANIMALS)


class Texts:
    """A source of one document with facts about two people."""

    async def crawl(self) -> AsyncIterator[Document]:
        fact = Fact(subject="Ada", predicate="role", object="wife of the founder")
        yield Document(id="a", content="Ada is his wife.", metadata={"facts": [fact]})


async def test_entities_get_vectors_of_the_new_model_too(store: Store) -> None:
    await store.fill()
    async with store.router() as router, store.router("new") as new:
        source: Any = router.instances.sources["docs"]
        embedder = router.instances.embedders["default"]
        await ingest(Texts(), source, [], embedder, origin="people")
        report = (await embed(router, "new"))["docs"]
        assert report.entities == 2
        hint = (await new.instances.embedders["new"].embed(["Ada"]))[0]
        near = await new.instances.sources["docs"].nearest_entities(hint, Query(text=""), threshold=0.99)
        assert [match.name for match in near] == ["Ada"]
        with pytest.raises(IngestError, match="none of `others` makes vectors of 'model@"):
            await ingest(Texts(), source, [], embedder, origin="people")


async def test_stores_that_cannot_have_two_models_are_refused_by_name(tmp_path: Path) -> None:
    settings = {
        "providers": {
            "notes": {"use": "memory", "embedder": "default"},
            "texts": {"use": "sqlite", "path": str(tmp_path / "t.db"), "embedder": ""},
        }
    }
    async with ContextRouter(settings) as router:
        with pytest.raises(SettingsError, match=r"'notes' \(memory\) cannot have the vectors of two models"):
            await embed(router, "default", ["notes"])
        with pytest.raises(SettingsError, match="Store 'texts' has no embedder"):
            await embed(router, "default", ["texts"])
        with pytest.raises(SettingsError, match="No store has vectors of a model that can be changed"):
            await embed(router, "default")
        with pytest.raises(SettingsError, match="Store 'noets' is not defined"):
            await embed(router, "default", ["noets"])
        with pytest.raises(SettingsError, match="Embedder 'none' is not defined"):
            await embed(router, "none")


async def test_acl_vectors_of_a_second_model_stay_behind_the_same_walls(tmp_path: Path) -> None:
    """In Postgres the role of a reader sees of the new table of entities what its scope allows."""
    async with open_store() as store:
        await store.embedded_by("one", 2)
        secret = Document(id="s", content="secret", tenant="acme")
        fact = Fact(subject="Eve", predicate="is", object="spy")
        await store.upsert(
            [Entry(document=secret, chunks=[secret], vectors={"vector": [[1, 0]]}, facts=[fact])]
        )
        models = store.vector_models()
        await models.begin("two", 3, "second")
        (chunk,) = await models.missing("two", 9)
        await models.add("two", {chunk.key: {"vector": [0, 0, 1]}})
        texts = await models.entity_texts("two")
        await models.embed_entities("two", {text: [0, 0, 1] for text in texts})
        assert await models.finish("two") == 0
        rows = await run(
            "SELECT relrowsecurity AND relforcerowsecurity AS walled FROM pg_class WHERE oid ="
            f" '\"{store.pool.schema}\".entities_2'::regclass"
        )
        assert [row["walled"] for row in rows] == [True]


async def test_an_older_program_refuses_a_file_with_two_models(tmp_path: Path) -> None:
    """It would store chunks without the second vectors, or look for the only ones in the wrong place."""
    store = Sqlite(path=str(tmp_path / "s.db"))
    await store.open()
    document = Document(id="a", content="a")
    await store.upsert([Entry(document=document, chunks=[document], vectors={"vector": [[1.0]]})])
    version = "PRAGMA user_version"
    with sqlite3.connect(store.path) as file:
        assert file.execute(version).fetchone() == (4,)
    await store.vector_models().begin("two", 2, "second")
    with sqlite3.connect(store.path) as file:
        assert file.execute(version).fetchone() == (5,)
    await store.vector_models().drop("two")
    with sqlite3.connect(store.path) as file:
        assert file.execute(version).fetchone() == (5,)
    await store.aclose()


def test_the_command_fills_shows_and_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(monkeypatch, capsys)
    place = Store(tmp_path, {"use": "sqlite", "path": str(tmp_path / "docs.db")})
    asyncio.run(place.fill())
    settings = (
        '[providers.docs]\nuse = "sqlite"\npath = "docs.db"\nembedder = "{}"\n[embedders.new]\nuse = "onnx"\n'
        'path = "model"\n'
    )
    (tmp_path / "settings.toml").write_text(settings.format("default"))
    filled = cli("embed", "--model", "new", cwd=tmp_path)
    assert filled.code == 0
    assert filled.out.startswith("docs: 8 chunks embedded in ")
    assert 'Set embedder = "new" in [providers.docs], and reload the servers' in filled.err
    shown = cli("embed").out
    assert [line.split()[0] for line in shown.splitlines()[2:]] == ["docs", "docs"]
    assert "new" in shown
    assert cli("embed", "--drop", "default").code != 0
    job = '[ingest.texts]\nfrom = "texts"\nto = "docs"\n'
    (tmp_path / "settings.toml").write_text(settings.format("default").split("[embedders")[0] + job)
    checked = cli("check")
    assert checked.code != 0
    assert "their embedder 'new' is not there" in " ".join(checked.out.split())
    (tmp_path / "settings.toml").write_text(settings.format("new"))
    assert cli("embed", "--drop", "default").out == "The vectors of 'default' were removed from 'docs'.\n"
    (model,) = json.loads(cli("embed", "--json").out)["docs"]
    assert (model["embedder"], model["ready"], model["chunks"], model["missing"]) == ("new", True, 8, 0)
    assert cli("embed", "--model", "a", "--drop", "b").code != 0
    assert "--model is empty" in cli("embed", "--model", "").err
    assert "--drop is empty" in cli("embed", "--drop", " ").err


@pytest.mark.parametrize("opened", [open_sqlite, open_store])
async def test_a_gap_is_closed_also_for_who_has_searched_before(opened: OpenEmpty) -> None:
    """Somebody stored `b` without a vector between two documents that have one."""
    async with opened() as store:
        await store.embedded_by("one", 2)
        for id, vector in (("a", [1.0, 0.0]), ("b", None), ("c", [0.0, 1.0])):
            await store.upsert([entry(id, id, vector=vector)])
        assert await ids(store, "", "vector", vector=[1.0, 0.0]) == ["a", "c"]
        models = store.vector_models()
        await models.begin("one", 2, "first")
        (chunk,) = await models.missing("one", 9)
        before = await store.version()
        assert await models.add("one", {chunk.key: {"vector": [1.0, 1.0]}}) == 1
        assert await models.finish("one") == 0
        assert await store.version() != before
        assert await ids(store, "", "vector", vector=[1.0, 0.0]) == ["a", "b", "c"]
        with pytest.raises(SourceError, match=r"gave a vector of 3 dimensions|no place for the vectors of"):
            await models.add("none", {chunk.key: {"vector": [1.0, 1.0, 1.0]}})


@pytest.mark.parametrize("opened", [open_sqlite, open_store])
async def test_vectors_of_entities_of_a_model_that_answers_change_the_version(opened: OpenEmpty) -> None:
    async with opened() as store:
        await store.embedded_by("one", 2)
        document = Document(id="a", content="a")
        fact = Fact(subject="Ada", predicate="is", object="here")
        vectors = {"vector": [[1.0, 0.0]], "keywords": [None]}
        await store.upsert([Entry(document=document, chunks=[document], vectors=vectors, facts=[fact])])
        models, before = store.vector_models(), await store.version()
        texts = await models.entity_texts("one")
        assert await models.embed_entities("one", {text: [1.0, 0.0] for text in texts}) == 2
        assert await store.version() != before


async def test_a_search_that_begins_again_looks_anew_where_its_vectors_are(tmp_path: Path) -> None:
    """Its snapshot is older than what the store remembers, and the model has another place in the next one."""
    store = Sqlite(path=str(tmp_path / "s.db"))
    await store.open()
    await store.embedded_by("one", 2)
    await store.upsert([entry("a", "a", vector=[1.0, 0.0])])
    models = store.vector_models()

    async def move(model: str) -> None:
        await models.begin(model, 2, model)
        chunks = await models.missing(model, 9)
        await models.add(model, {chunk.key: {"vector": [1.0, 0.0]} for chunk in chunks})
        assert await models.finish(model) == 0

    await move("two")
    await store.embedded_by("two", 2)
    with closing(sqlite3.connect(store.path, factory=StoreConnection, isolation_level=None)) as connection:
        begin_snapshot(connection)
        snapshot = store._snapshot(connection, Stop())
        await store.delete(["none"])
        await store.upsert([entry("b", "b", vector=[0.0, 1.0])])
        await move("two")  # of `b`, whose writer knew of one model only
        assert await ids(store, "", "vector", vector=[1.0, 0.0]) == ["a", "b"]
        await models.drop("two")
        await models.drop("one")
        await move("two")
        answers: Answers = []
        snapshot.answer([Query(text="", leg="vector", vector=[1.0, 0.0])], answers)
        assert [[hit.document.id for hit in hits] for hits in answers] == [["a", "b"]]
    await store.aclose()


@pytest.mark.parametrize("opened", [open_sqlite, open_store])
async def test_the_vector_of_a_text_that_changed_meanwhile_is_left_out(opened: OpenEmpty) -> None:
    async with opened() as store:
        await store.embedded_by("one", 2)
        await store.upsert([entry("a", "old", vector=[1.0, 0.0])])
        models = store.vector_models()
        await models.begin("two", 3, "second")
        (chunk,) = await models.missing("two", 9)
        await store.upsert([entry("a", "new", vector=[1.0, 0.0])])  # by a program that knows one model only
        assert await models.add("two", {chunk.key: {"vector": [0.0, 0.0, 1.0]}}) == 0
        assert await models.finish("two") == 1
        assert [found.document.content for found in await models.missing("two", 9)] == ["new"]
