"""A run may happen every night: it removes nothing that it is not sure of, one bad document harms no other,
and it says what it did not read.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.example import CommandLine
from support.postgres_server import open_store

from contextrouter import Connector, ContextRouter, Document, Hit, IngestError, Query, SettingsError
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.contracts import Entry
from contextrouter.ingest import ingest, run

SETTINGS = """
[providers.lib]
use = "sqlite"
path = "lib.db"
embedder = ""
[ingest.j]
from = "texts"
to = "lib"
transforms = []
"""


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


class Src(Connector):
    """Lists the documents it was made with, and what it passed over."""

    def __init__(self, *documents: Document) -> None:
        self.documents = documents
        self.problems: Sequence[str] = ()
        self.unread: Sequence[str] = ()
        self.not_read = {".ipynb": 1, ".eml": 2}

    async def search(self, query: Query) -> Sequence[Hit]:
        return []

    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            yield document


class Choosy(Sqlite):
    """A store whose server refuses one document, and does not say that it is the document's fault."""

    async def upsert(self, entries: Sequence[Entry]) -> None:
        if any("poison" in entry.document.content for entry in entries):
            raise OSError("index row size 5024 exceeds maximum 2704")
        await super().upsert(entries)


def folder(at: Path, count: int, settings: str = SETTINGS) -> Path:
    (at / "texts").mkdir()
    for number in range(count):
        (at / "texts" / f"{number}.md").write_text(f"# Page {number}\n\nThe otter number {number}.\n")
    (at / "settings.toml").write_text(settings)
    return at / "settings.toml"


def empty(at: Path, keep: int = 0) -> None:
    for path in sorted((at / "texts").iterdir())[keep:]:
        path.unlink()


async def stored(path: Path) -> list[str]:
    store = Sqlite(path=str(path.parent / "lib.db"), embedder=None)
    await store.open()
    ids = sorted(await store.fingerprints())
    await store.aclose()
    return ids


@pytest.mark.case("USE-02")
def test_an_empty_folder_is_not_believed_until_it_is_confirmed(cli: CommandLine, tmp_path: Path) -> None:
    path = folder(tmp_path, 23)
    assert cli("ingest", cwd=tmp_path).code == 0
    empty(tmp_path)
    ran = cli("ingest", "--json")
    report = json.loads(ran.out)["j"]
    assert (ran.code, report["deleted"], report["in_doubt"]) == (4, 0, 23)
    assert report["skipped"] == [
        [
            "j",
            "the source lists no document, and the store has 23; nothing was removed. If they are really"
            " gone, run `contextrouter ingest j --remove`.",
        ]
    ]
    assert cli("ingest", "--rebuild").code == 4
    confirmed = cli("ingest", "--remove", "--json")
    assert (confirmed.code, json.loads(confirmed.out)["j"]["deleted"]) == (0, 23)
    assert path.exists()


def test_a_folder_inside_that_is_empty_keeps_its_documents_until_it_goes_too(
    cli: CommandLine, tmp_path: Path
) -> None:
    folder(tmp_path, 8)
    (tmp_path / "texts" / "share").mkdir()
    page = tmp_path / "texts" / "share" / "page.md"
    page.write_text("A page about a heron.")
    assert cli("ingest", cwd=tmp_path).code == 0
    page.unlink()
    for _ in range(2):
        ran = cli("ingest", "--json")
        report = json.loads(ran.out)["j"]
        assert (ran.code, report["deleted"], report["in_doubt"]) == (4, 0, 1)
        assert report["skipped"] == [
            [
                "j",
                "share/ is empty now and had 1 documents; they stay. If they are really gone, delete the folder,"
                " or run `contextrouter ingest j --remove`.",
            ]
        ]
    page.parent.rmdir()
    assert json.loads(cli("ingest", "--json").out)["j"]["deleted"] == 1


async def test_a_run_removes_at_most_half_of_its_documents_unless_the_settings_allow_more(
    tmp_path: Path,
) -> None:
    path = folder(tmp_path, 10)
    await run(path)
    empty(tmp_path, keep=4)
    (tmp_path / "texts" / "new.md").write_text("A new otter.")
    report = (await run(path))["j"]
    assert (report.added, report.deleted, report.in_doubt) == (1, 0, 6)
    assert "6 of 11 documents would go" in report.skipped[0][1]  # more than half
    path.write_text(SETTINGS + "[ingest]\nremove_at_most = 0.6\n")
    report = (await run(path))["j"]
    assert (report.deleted, report.in_doubt, report.skipped) == (6, 0, [])
    assert await stored(path) == ["j:0.md", "j:1.md", "j:2.md", "j:3.md", "j:new.md"]


async def test_a_folder_that_was_renamed_moves_its_documents(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    await run(path)
    (tmp_path / "texts" / "sub").mkdir()
    for number in (0, 1):
        (tmp_path / "texts" / f"{number}.md").rename(tmp_path / "texts" / "sub" / f"{number}.md")
    report = (await run(path))["j"]
    assert (report.added, report.deleted, report.skipped) == (2, 2, [])  # 2 of 5
    assert await stored(path) == ["j:2.md", "j:sub/0.md", "j:sub/1.md"]


async def test_half_of_the_documents_go_unasked_and_a_dry_run_lists_the_rest(tmp_path: Path) -> None:
    path = folder(tmp_path, 4)
    await run(path)
    empty(tmp_path, keep=2)
    assert (await run(path))["j"].deleted == 2
    empty(tmp_path)
    dry = (await run(path, dry_run=True))["j"]
    assert (dry.deleted, dry.in_doubt) == (0, 2)
    assert dry.changes == [("removed", "j:0.md"), ("removed", "j:1.md")]


async def test_a_rebuild_does_not_empty_a_store_whose_folder_is_empty(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    await run(path)
    empty(tmp_path)
    with pytest.raises(IngestError, match="Source 'j' lists no document, and the store has 3 of it"):
        await run(path, rebuild=True)
    assert await stored(path) == ["j:0.md", "j:1.md", "j:2.md"]
    await run(path, rebuild=True, remove=True)
    assert await stored(path) == []


async def test_a_source_that_never_lists_all_removes_nothing(tmp_path: Path) -> None:
    """`unread` with an empty id stands for every document."""
    store = Sqlite(path=str(tmp_path / "lib.db"), embedder=None)
    await store.open()
    await ingest(
        Src(Document(id="a", content="a"), Document(id="b", content="b")), store, [], None, origin="j"
    )
    source = Src(Document(id="c", content="c"))
    source.unread = ("",)
    report = await ingest(source, store, [], None, origin="j")
    assert (report.deleted, report.in_doubt, report.skipped) == (0, 0, [])
    assert sorted(await store.fingerprints()) == ["j:a", "j:b", "j:c"]
    await store.aclose()


@pytest.mark.case("SPA-02")
def test_a_document_with_half_a_character_is_skipped_and_the_rest_is_stored(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "settings.toml").write_text(
        '[plugins]\npaths = ["plugins"]\n[connectors.src]\n[providers.lib]\nuse = "sqlite"\npath = "lib.db"\n'
        '[ingest.j]\nfrom = "src"\nto = "lib"\n'
    )
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "src.py").write_text(
        "from contextrouter import Connector, Document\n"
        "class Src(Connector):\n"
        "    'Lists two documents.'\n"
        "    async def search(self, query):\n"
        "        return []\n"
        "    async def crawl(self):\n"
        "        yield Document(id='a', content='otter \\ud800 lone')\n"
        "        yield Document(id='b', content='otter b')\n"
    )
    ran = cli("ingest", "--json", cwd=tmp_path)
    report = json.loads(ran.out)["j"]
    assert (ran.code, report["documents"]) == (4, 1)
    assert report["skipped"] == [
        ["j:a", "content holds a lone surrogate, which is no character; decode it with errors='replace'"]
    ]
    assert json.loads(cli("route", "otter", "--json").out)["envelopes"][0]["document"]["content"] == "otter b"


async def test_a_document_that_a_transform_spoils_is_left_out_and_its_batch_is_stored(tmp_path: Path) -> None:
    """Metadata that no store takes: a key that is half a character."""
    store = Choosy(path=str(tmp_path / "lib.db"), embedder=None)
    await store.open()
    documents = [
        Document(id=name, content=text) for name, text in (("a", "ok"), ("b", "poison"), ("c", "ok"))
    ]
    report = await ingest(Src(*documents), store, [], None, origin="j")
    assert sorted(await store.fingerprints()) == ["j:a", "j:c"]
    assert report.documents == 2
    assert report.skipped == [("j:b", "the store refused it: index row size 5024 exceeds maximum 2704")]
    await store.aclose()


async def test_a_store_that_takes_nothing_ends_the_run(tmp_path: Path) -> None:
    store = Choosy(path=str(tmp_path / "lib.db"), embedder=None)
    await store.open()
    documents = [Document(id=name, content="poison") for name in "ab"]
    with pytest.raises(IngestError, match="The store refused 'j:a' to 'j:b'"):
        await ingest(Src(*documents), store, [], None, origin="j")
    await store.aclose()


@pytest.mark.case("SPA-02")
async def test_an_id_that_postgres_cannot_index_is_left_out_wherever_it_stands() -> None:
    """Each document is a batch of its own; so is the bad one at the end, whom no good one follows."""
    long = "".join(chr(0x4E00 + number % 20_000) for number in range(0, 700_000, 71))
    documents = [Document(id=name, content="otter") for name in ("a", long, "b", long + "b")]
    async with open_store(embedder=None) as store:
        report = await ingest(Src(*documents), store, [], None, origin="j", batch=1)
        assert sorted(await store.fingerprints()) == ["j:a", "j:b"]
    assert (report.documents, len(report.skipped)) == (2, 2)
    assert all(reason.startswith("the store refused it: ") for _, reason in report.skipped)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            "remove_at_mots = 0.3",
            "settings.toml:11: ingest.remove_at_mots: unknown key. Did you mean `remove_at_most`?",
        ),
        ("remove_at_most = 2", "settings.toml:11: ingest.remove_at_most: expected `float` <= 1.0"),
    ],
)
def test_keys_of_all_jobs_are_checked(tmp_path: Path, table: str, message: str) -> None:
    path = folder(tmp_path, 0, SETTINGS + f"[ingest]\n{table}\n")
    with pytest.raises(SettingsError) as error:
        ContextRouter.from_toml(path)
    assert str(error.value).startswith(message)


async def test_a_document_that_shows_no_text_is_named_and_not_stored() -> None:
    """What was stored of it stays: nobody can tell whether it is empty or came without its text."""
    store = Memory()
    await ingest(
        Src(Document(id="a", content="otter"), Document(id="b", content="b")), store, [], None, origin="x"
    )
    source = Src(
        Document(id="a", content=" \n"), Document(id="b", content="b"), Document(id="c", content="\u200b")
    )
    for _ in range(2):
        report = await ingest(source, store, [], None, origin="x")
        assert (report.documents, report.deleted) == (0, 0)
        assert report.skipped == [(f"x:{id}", "holds no text and was left out.") for id in "ac"]
    found = await store.fetch(["x:a", "x:b", "x:c"])
    assert [document.content for document in found] == ["otter", "b"]


async def test_what_was_not_read_is_counted_by_kind_and_is_no_problem() -> None:
    settings = {"providers": {"memory": {}}, "ingest": {"j": {"from": "src", "to": "memory"}}}
    async with ContextRouter(settings, connectors={"src": Src(Document(id="a", content="otter"))}) as router:
        report = (await run(router))["j"]
    assert (report.not_read, report.skipped) == ({".ipynb": 1, ".eml": 2}, [])


def test_the_command_names_the_kinds_that_were_not_read(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        '[plugins]\npaths = ["plugins"]\n[connectors.src]\n[providers.lib]\nuse = "sqlite"\npath = "lib.db"\n'
        '[ingest.j]\nfrom = "src"\nto = "lib"\n'
    )
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "src.py").write_text(
        "from contextrouter import Connector, Document\n"
        "class Src(Connector):\n"
        "    'Passes over three files.'\n"
        "    not_read = {'.eml': 1, '.ipynb': 2}\n"
        "    async def search(self, query):\n"
        "        return []\n"
        "    async def crawl(self):\n"
        "        yield Document(id='b', content='otter b')\n"
    )
    ran = cli("ingest", cwd=tmp_path)
    assert ran.code == 0
    assert "3 files of other kinds not read: .ipynb 2, .eml 1" in ran.out
    assert json.loads(cli("ingest", "--json").out)["j"]["not_read"] == {".eml": 1, ".ipynb": 2}
