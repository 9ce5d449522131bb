"""`contextrouter forget` removes documents from stores, facts and caches, and says what it removed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine
from support.postgres_server import open_store

from contextrouter import ContextRouter, Document, Request
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.ingest import forget_documents, run

SETTINGS = """
[providers.lib]
use = "sqlite"
path = "lib.db"
embedder = ""
[facts.graph]
use = "sqlite"
store = "lib"
[cache]
tier = "disk"
path = "cache"
[ingest.notes]
from = "texts"
to = "lib"
transforms = ["entities"]
[transforms.entities.known]
"Anna Beispiel" = { kind = "person" }
"Otto" = { kind = "person" }
"""
TEXTS = {
    "anna.md": "---\nauthor: Anna\nperson: 4711\n---\nAnna Beispiel keeps an unmistakable heron.\n",
    "otto.md": "---\nauthor: Otto\n---\nOtto keeps a heron.\n",
    "both.md": "Otto wrote to Anna Beispiel of a heron.\n",
}


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def project(at: Path, texts: dict[str, str] = TEXTS, settings: str = SETTINGS) -> Path:
    (at / "texts").mkdir()
    for name, text in texts.items():
        (at / "texts" / name).write_text(text)
    (at / "settings.toml").write_text(settings)
    return at / "settings.toml"


async def facts(path: Path, name: str) -> list[str]:
    async with ContextRouter.from_toml(path) as router:
        context = await router.route(Request(question=f"Who is {name}?", sources=("graph",)))
    return [fact.object for fact in context.facts if fact.subject == name]


async def ids(path: Path) -> list[str]:
    store = Sqlite(path=str(path.parent / "lib.db"), embedder=None)
    await store.open()
    stored = sorted(await store.fingerprints())
    await store.aclose()
    return stored


def test_a_document_goes_with_its_facts_its_bytes_and_the_cached_answers(
    cli: CommandLine, tmp_path: Path
) -> None:
    project(tmp_path)
    assert cli("ingest", cwd=tmp_path).code == 0
    assert "unmistakable" in cli("route", "heron").out
    ran = cli("forget", "--document", "notes:anna.md", "--json")
    removal = json.loads(ran.out)
    assert (ran.code, [each["id"] for each in removal["documents"]]) == (0, ["notes:anna.md"])
    assert removal["counts"]["lib"]["documents"] == removal["counts"]["lib"]["chunks"] == 1
    assert removal["counts"]["lib"]["facts"] >= 1
    assert removal["cache_entries"] >= 1
    assert "Job 'notes' stores them again if its source still has them" in ran.err
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "texts" not in path.parts]
    assert [path.name for path in files if b"unmistakable" in path.read_bytes()] == []
    assert "unmistakable" not in cli("route", "heron").out


def test_a_name_that_no_document_has_is_said_beside_those_that_go(cli: CommandLine, tmp_path: Path) -> None:
    project(tmp_path)
    cli("ingest", cwd=tmp_path)
    ran = cli("forget", "--document", "anna.md", "--document", "ana.md", "--json")
    removal = json.loads(ran.out)
    assert (ran.code, [each["id"] for each in removal["documents"]]) == (1, ["notes:anna.md"])
    assert removal["not_found"] == ["ana.md"]
    assert "No document has the id or the URL 'ana.md'." in ran.err


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (["--match", "author=Anna"], ["anna.md"]),
        (["--match", "person=4711"], ["anna.md"]),
        (["--match", "entities=Anna Beispiel"], ["anna.md", "both.md"]),
        (["--match", "author=Anna", "--match", "kind=book"], []),
        (["--document", "otto.md"], ["otto.md"]),
        (["--document", "otto.md", "--match", "author=Anna"], ["anna.md", "otto.md"]),
    ],
)
def test_a_person_s_documents_are_matched_by_field_metadata_or_entity(
    cli: CommandLine, tmp_path: Path, options: list[str], gone: list[str]
) -> None:
    project(tmp_path)
    cli("ingest", cwd=tmp_path)
    ran = cli("forget", *options, "--json")
    assert ran.code == (0 if gone else 1)
    assert sorted(each["id"] for each in json.loads(ran.out)["documents"]) == [
        f"notes:{name}" for name in gone
    ]


async def test_facts_of_what_remains_stay_and_facts_of_what_went_are_gone(tmp_path: Path) -> None:
    path = project(tmp_path)
    await run(path)
    assert await facts(path, "Anna Beispiel") == ["person"]
    await forget_documents(path, match={"entities": "Anna Beispiel"})
    assert (await facts(path, "Anna Beispiel"), await facts(path, "Otto")) == ([], ["person"])


async def test_the_vectors_of_entities_go_with_their_facts_and_come_again_for_others(tmp_path: Path) -> None:
    settings = SETTINGS.replace('embedder = ""\n', "") + '[embedders.default]\nuse = "static"\n'
    path = project(tmp_path, settings=settings)

    def entities() -> set[str]:
        with closing(sqlite3.connect(tmp_path / "lib.db")) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM entities")}

    await run(path)
    assert {"Anna Beispiel", "Otto"} <= entities()
    await forget_documents(path, match={"entities": "Anna Beispiel"})
    assert "Anna Beispiel" not in entities()
    await run(path, remove=True)
    assert {"Anna Beispiel", "Otto"} <= entities()
    for name in ("anna.md", "both.md"):
        (tmp_path / "texts" / name).unlink()
    await forget_documents(path, ["anna.md", "both.md"])
    await run(path, remove=True)
    assert "Otto" in entities()
    assert "Anna Beispiel" not in entities()


async def test_jobs_are_named_by_the_settings_whatever_their_origin(tmp_path: Path) -> None:
    path = project(tmp_path, settings=SETTINGS.replace('to = "lib"', 'to = "lib"\norigin = "shelf"'))
    await run(path)
    removal = await forget_documents(path, ["shelf:anna.md"])
    assert removal.jobs == ("notes",)
    for name in TEXTS:
        (tmp_path / "texts" / name).unlink()
    ((_, reason),) = (await run(path))["notes"].skipped
    assert "run `contextrouter ingest notes --remove`" in reason


async def test_a_dry_run_removes_nothing(tmp_path: Path) -> None:
    path = project(tmp_path)
    await run(path)
    removal = await forget_documents(path, ["anna.md"], dry_run=True)
    assert ([each.id for each in removal.documents], removal.counts) == (["notes:anna.md"], {})
    assert len(await ids(path)) == 3


async def test_a_document_goes_under_every_tenant(tmp_path: Path) -> None:
    texts = {
        f"{name}/note.md": f"---\ntenant: {name}\nurl: http://site/note\n---\nA heron of {name}.\n"
        for name in ("acme", "globex")
    }
    for name in ("acme", "globex"):
        (tmp_path / "texts" / name).mkdir(parents=True)
        (tmp_path / "texts" / name / "note.md").write_text(texts[f"{name}/note.md"])
    (tmp_path / "settings.toml").write_text(SETTINGS)
    path = tmp_path / "settings.toml"
    await run(path)
    removal = await forget_documents(path, match={"tenant": "acme"})
    assert [(each.tenant, each.url) for each in removal.documents] == [("acme", "http://site/note")]
    removal = await forget_documents(path, ["http://site/note"])
    assert [each.tenant for each in removal.documents] == ["globex"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Say which documents to forget: --document ID, or --match with a key and a value."),
        (["--match", "author"], "--match 'author' has no key and value"),
        (["--match", "=Anna"], "--match '=Anna' has no key and value"),
    ],
)
def test_without_a_document_or_a_match_nothing_is_forgotten(
    cli: CommandLine, tmp_path: Path, options: list[str], message: str
) -> None:
    project(tmp_path)
    cli("ingest", cwd=tmp_path)
    ran = cli("forget", *options)
    assert (ran.code, message in " ".join(ran.err.split())) == (2, True)


async def test_a_store_in_memory_forgets_too() -> None:
    documents: list[dict[str, Any]] = [
        {"id": "a", "content": "heron", "metadata": {"author": "Anna"}},
        {"id": "b", "content": "heron"},
    ]
    settings = {"providers": {"m": {"use": "memory", "documents": documents}}}
    async with ContextRouter(settings) as router:
        removal = await forget_documents(router, match={"author": "Anna"})
        assert [each.id for each in removal.documents] == ["a"]
        assert [e.document.id for e in (await router.route("heron")).envelopes] == ["b"]


async def test_a_store_in_postgres_forgets_documents_by_what_only_their_chunks_say() -> None:
    parent = Document(id="notes:a", content="Anna keeps a heron.", metadata={"author": "Otto"})
    chunk = parent.replace(id="notes:a#0", parent="notes:a", metadata={"entities": ["Anna"]})
    other = Document(id="notes:b", content="Anna is not an entity here.")
    async with open_store(embedder=None) as store:
        await store.upsert([Entry(document=parent, chunks=[chunk]), Entry(document=other, chunks=[other])])
        async with ContextRouter({}, providers={"store": store}) as router:
            removal = await forget_documents(router, match={"entities": ["Anna"]})
            assert [each.id for each in removal.documents] == ["notes:a"]
            assert removal.counts["store"] == {"documents": 1, "chunks": 1}
            assert sorted(await store.fingerprints()) == ["notes:b"]
