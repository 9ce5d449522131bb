"""Which files are taken: globs over their paths, kinds that are not read, and files without a suffix."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.connectors.files.patterns import Patterns
from contextrouter.builtin.providers.memory import Memory
from contextrouter.errors import IngestError
from contextrouter.ingest import ingest

FIXTURES = Path(__file__).parent / "fixtures" / "documents"


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a.md", "sub/b.md", "sub/deep/c.md", "sub/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"moon {name}")
    return tmp_path


@pytest.mark.case("USE-01")
@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.md", {"a.md", "s/b.md", "s/t/c.md"}),
        ("**/*.md", {"a.md", "s/b.md", "s/t/c.md"}),
        ("s/*.md", {"s/b.md"}),
        ("./s/**/*.md", {"s/b.md", "s/t/c.md"}),
        ("s/**", {"s/b.md", "s/t/c.md", "s/d.txt"}),
        ("s/", {"s/b.md", "s/t/c.md", "s/d.txt"}),
        ("?.md", {"a.md", "s/b.md", "s/t/c.md"}),
        ("s/?/c.md", {"s/t/c.md"}),
        ("[!a-b].*", {"s/t/c.md", "s/d.txt"}),
        ("*/b.md", {"s/b.md"}),
        ("*.pdf", set()),
    ],
)
def test_patterns_are_globs_over_the_relative_path(pattern: str, paths: set[str]) -> None:
    patterns = Patterns([pattern])
    assert {path for path in ("a.md", "s/b.md", "s/t/c.md", "s/d.txt") if patterns.match(path)} == paths
    assert patterns.unmatched == ([] if paths else [pattern])


async def run(root: Path, store: Memory, *patterns: str) -> tuple[list[str], list[str]]:
    """The ids in the store after a run, and its problems."""
    source = Files(path=str(root), patterns=patterns)
    await source.open()
    try:
        report = await ingest(source, store, [], None, origin="x")
    finally:
        await source.aclose()
    return sorted(await store.fingerprints()), [reason for _, reason in report.skipped]


@pytest.mark.case("USE-01")
async def test_a_pattern_that_matches_nothing_is_a_problem_and_removes_nothing(root: Path) -> None:
    store = Memory()
    everything = ["x:a.md", "x:sub/b.md", "x:sub/d.txt", "x:sub/deep/c.md"]
    assert await run(root, store, "**/*.md", "*.txt") == (everything, [])
    (root / "sub" / "d.txt").unlink()
    ids, problems = await run(root, store, "**/*.md", "*.txt")
    assert ids == everything
    assert [problem.partition(": ")[2] for problem in problems] == [
        "pattern '*.txt' matches no file; there are .md 3. `*` stops at a `/`, `**/` goes through folders."
    ]
    with pytest.raises(IngestError, match=r"nothing was removed: .*pattern 'docs/\*\.md' matches no file"):
        await run(root, store, "docs/*.md")
    assert sorted(await store.fingerprints()) == everything
    assert (await run(root, store, "**/*.md"))[0] == ["x:a.md", "x:sub/b.md", "x:sub/deep/c.md"]


@pytest.mark.case("NEW-06")
async def test_kinds_that_are_not_read_are_counted_and_files_without_suffix_judged(tmp_path: Path) -> None:
    files = {
        "README": b"The tannery opens in June.",
        "page": b"<!doctype html><p>The weir of the mill was built by the monks of the abbey.</p>",
        "program": b"\x7fELF\0\0\0",
        "film.mp4": b"\0\0",
        "song.MP4": b"\0\0",
        "app.log.1": b"started\n",
        "tool.1": b".TH TOOL 1\n.SH NAME\ntool",
        "empty.txt": b" \n",
        "utf16.txt": "The sluice code is green heron.".encode("utf-16"),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    source, store = Files(path=str(tmp_path)), Memory()
    await source.open()
    report = await ingest(source, store, [], None, origin="x")
    await source.aclose()
    assert sorted(await store.fingerprints()) == ["x:README", "x:page", "x:tool.1", "x:utf16.txt"]
    assert report.not_read == {".mp4": 2, "no suffix": 1, ".1": 1, "empty": 1}
    assert report.skipped == []


@pytest.mark.case("NEW-06")
def test_the_command_says_which_kinds_it_did_not_read(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.md").write_text("moon")
    (tmp_path / "texts" / "b.mp4").write_bytes(b"\0")
    (tmp_path / "texts" / "c.zip").write_bytes(b"\0")
    (tmp_path / "s.toml").write_text(
        '[providers.s]\nuse = "memory"\n[ingest.all]\nfrom = "texts"\nto = "s"\ntransforms = []\n'
    )
    result = command_line("ingest", "--settings", str(tmp_path / "s.toml"))
    assert "2 files of other kinds not read: .mp4 1, .zip 1" in result.out
    assert result.code == 0


@pytest.mark.case("NEW-06")
async def test_every_fixture_is_read_or_named() -> None:
    source = Files(path=str(FIXTURES))
    await source.open()
    ids = [document.id async for document in source.crawl() if document.content.strip()]
    await source.aclose()
    names = {path.name for path in FIXTURES.iterdir()}
    assert names - {id.partition("/")[0] for id in ids} == {"scan.pdf"}
    assert (source.unread, source.not_read) == (["scan.pdf"], {})
