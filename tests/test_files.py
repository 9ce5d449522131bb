"""The files connector: what it finds, how it ranks, and that it never leaves its folder."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.connectors.files.folder import Folder
from contextrouter.builtin.connectors.markup import front_matter, markdown_passages, pieces
from contextrouter.contracts import SupportsCrawl, SupportsFetch, SupportsVersion
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Period, Query
from contextrouter.scope import Scope
from contextrouter.text.bm25 import PassageIndex
from contextrouter.text.languages import language_terms

EXAMPLES = Path(__file__).parents[1] / "examples"
QUESTION = "What books talk about machine learning for beginners?"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
async def files(root: Path) -> AsyncIterator[Files]:
    source = Files(path=str(root), max_bytes=10_000)
    await source.open()
    yield source
    await source.aclose()


async def ids(source: Files, text: str, **more: object) -> list[str]:
    return [hit.document.id for hit in await source.search(Query(text=text, **more))]  # type: ignore[arg-type]  # fields of many types


async def crawled(source: Files) -> dict[str, str]:
    return {document.id: document.content async for document in source.crawl()}


# BM25


def test_bm25_scores_are_those_of_the_formula() -> None:
    """Two passages of 2 and 3 terms ("a" is none that counts), "cat" once in the first only:
    idf ln(1 + 1.5 / 1.5), length norm 0.9 (0.6 + 0.4 · 2 / 2.5).
    """
    index = PassageIndex([[("black cat", 1.0)], [("a dog sees dogs", 1.0)]])
    norm = 0.9 * (0.6 + 0.4 * 2 / 2.5)
    assert index.search(language_terms("cat"), 5) == [(0, pytest.approx(math.log(2) * 1.9 / (1 + norm)))]


def test_a_rare_term_outweighs_a_common_one() -> None:
    index = PassageIndex(
        [[("red apple", 1.0)], [("red pear", 1.0)], [("red plum", 1.0)], [("green kiwi", 1.0)]]
    )
    assert [n for n, _ in index.search(language_terms("red kiwi"), 4)] == [3, 0, 1, 2]


def test_equal_scores_keep_the_order_of_the_passages_and_the_limit_holds() -> None:
    index = PassageIndex([[("same words", 1.0)]] * 3)
    assert [n for n, _ in index.search(language_terms("words"), 2)] == [0, 1]
    assert index.search(language_terms("words"), 0) == []


def test_scripts_without_spaces_are_found_by_pairs_and_by_one_character() -> None:
    index = PassageIndex([[("日本語の機械学習", 1.0)], [("料理の本", 1.0)]])
    assert [n for n, _ in index.search(language_terms("機械"), 5)] == [0]
    assert [n for n, _ in index.search(language_terms("本"), 5)] == [1, 0]


def test_a_leading_minus_excludes_words_and_phrases() -> None:
    index = PassageIndex(
        [[("deep neural network", 1.0)], [("deep network, not neural", 1.0)], [("deep learning", 1.0)]]
    )
    assert {n for n, _ in index.search(language_terms('deep -"neural network"'), 5)} == {1, 2}
    assert {n for n, _ in index.search(language_terms("deep -learning"), 5)} == {0, 1}
    assert index.search(language_terms("-learning"), 5) == []


def test_a_phrase_is_required_in_one_field() -> None:
    index = PassageIndex([[("machine", 3.0), ("learning", 1.0)], [("", 3.0), ("Learning machines", 1.0)]])
    assert index.search(language_terms('"machine learning"'), 5) == []
    assert [n for n, _ in index.search(language_terms('"learning machine"'), 5)] == [1]


def test_each_passage_has_the_stems_of_its_language() -> None:
    texts = {"die alten Häuser": "de-AT", "New York": None, "news": "fr"}
    index = PassageIndex([[(text, 1.0)] for text in texts], list(texts.values()))
    assert index.languages == {"de", "en", "fr"}
    for text, found in [
        ("Haus", [0]),
        ("news", [2]),
        ("new", [1, 2]),
        ('"alte Haus"', [0]),
        ("Häuser York -Haus", [1]),
        ("York new -news", [1]),
    ]:
        assert sorted(n for n, _ in index.search(language_terms(text, index.languages), 5)) == found, text
    alone = PassageIndex([[("New York", 1.0)]]).search(language_terms("York news"), 5)
    shown = index.search(language_terms("York news", index.languages), 5, among={1})
    assert shown == [(1, score) for _, score in alone]


def test_passages_out_of_sight_are_neither_found_nor_counted() -> None:
    texts = ["sun", "sun sun", "moon", "moon sun"]
    index = PassageIndex([[(text, 1.0)] for text in texts])
    alone = PassageIndex([[(text, 1.0)] for text in texts[:2]])
    assert index.search(language_terms("sun"), 5, among={0, 1}) == alone.search(language_terms("sun"), 5)


@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=60), st.integers(0, 8))
def test_any_text_is_a_question(texts: list[str], question: str, limit: int) -> None:
    """Scores are positive and fall, no passage comes twice, the limit holds; asking again gives the same."""
    index = PassageIndex([[(text, 1.0)] for text in texts])
    found = index.search(language_terms(question), limit)
    scores = [score for _, score in found]
    assert len(found) <= limit
    assert len({n for n, _ in found}) == len(found)
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    assert index.search(language_terms(question), limit) == found


# Markdown and front matter


def test_front_matter_gives_texts_and_lists_and_is_cut_off() -> None:
    values, rest, unread = front_matter(
        '---\ntitle: "A: b"\nlabels: [x, y z]\nkeywords:\n  - one\n  - two\n# no\n???\n---\nBody\n'
    )
    assert values == {"title": "A: b", "labels": ["x", "y z"], "keywords": ["one", "two"]}
    assert (rest, unread) == ("Body\n", ["???"])


@pytest.mark.parametrize(
    "text", ["---\ntitle: x\nno end", "---\njust words\n---\nrest", " ---\na: b\n---\n", "text", ""]
)
def test_what_is_no_front_matter_stays_in_the_text(text: str) -> None:
    assert front_matter(text) == ({}, text, [])


@given(st.text(alphabet="-\n #:ab[]`~", max_size=80))
def test_no_text_breaks_the_markdown_reader(text: str) -> None:
    front_matter(text)
    markdown_passages(text, "t")


def test_passages_carry_their_heading_path_and_fences_hide_headings() -> None:
    text = "intro\n# A\none\n## B ##\n```sh\n# comment\n```\n### C\ntwo\n## D\n## E\nthree"
    cuts = markdown_passages(text, "t")
    assert [(cut.path, cut.text) for cut in cuts] == [
        ((), "intro"),
        (("A",), "one"),
        (("A", "B"), "```sh\n# comment\n```"),
        (("A", "B", "C"), "two"),
        (("A", "E"), "three"),
    ]


@given(st.text(alphabet="ab \n", max_size=300), st.integers(5, 50))
def test_pieces_lose_nothing_but_blank_space_and_are_no_longer_than_asked(text: str, size: int) -> None:
    cut = pieces(text, size)
    assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(0 < len(piece) <= size for piece in cut)


# Searching


def test_it_has_the_abilities_of_a_source_that_can_be_listed_fetched_and_watched() -> None:
    source = Files.example()
    assert isinstance(source, SupportsCrawl)
    assert isinstance(source, SupportsFetch)
    assert isinstance(source, SupportsVersion)


async def test_title_outranks_heading_outranks_body(files: Files, root: Path) -> None:
    (root / "body.md").write_text("---\ntitle: one\n---\n# two\nzebra four\n")
    (root / "heading.md").write_text("---\ntitle: one\n---\n# zebra\nthree four\n")
    (root / "title.md").write_text("---\ntitle: zebra\n---\n# two\nthree four\n")
    assert await ids(files, "zebra") == ["title.md#0", "heading.md#0", "body.md#0"]


async def test_a_hit_is_a_passage_with_path_parent_and_snippet(files: Files, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "a.md").write_text("# Top\n## Inner\n" + "zebra " * 60)
    (hit,) = await files.search(Query(text="zebra"))
    document = hit.document
    assert (document.id, document.parent, document.path) == ("sub/a.md#0", "sub/a.md", ("Top", "Inner"))
    assert document.snippet == ("zebra " * 60)[:200]
    assert (document.title, document.url, document.media_type) == ("Top", "sub/a.md", "text/markdown")
    assert hit.score is not None


async def test_a_change_a_new_file_and_a_removal_are_seen_at_the_next_question(
    files: Files, root: Path
) -> None:
    page = root / "a.txt"
    page.write_text("zebra")
    first = await files.version()
    assert await ids(files, "zebra") == ["a.txt#0"]
    page.write_text("giraffe")
    (root / "b.txt").write_text("zebra too")
    assert await ids(files, "zebra") == ["b.txt#0"]
    assert await files.version() != first
    page.unlink()
    assert await ids(files, "giraffe") == []


async def test_unchanged_files_are_not_read_again(files: Files, root: Path) -> None:
    (root / "a.txt").write_text("zebra")
    await files.search(Query(text="zebra"))
    index = files._snapshot.ranking  # type: ignore[union-attr]  # a search has read the folder
    read, taken = files._folder.read, []
    files._folder.read = lambda listed: (taken.append(listed.path), read(listed))[1]  # type: ignore[method-assign]  # counts what is read
    (root / "b.txt").write_text("lion")
    await files.search(Query(text="zebra"))
    assert taken == [str(root / "b.txt")]
    assert files._snapshot.ranking is not index  # type: ignore[union-attr]  # a search has read the folder


async def test_questions_asked_at_once_share_the_readings_of_the_folder(files: Files, root: Path) -> None:
    """A reading serves everybody who asked before it began: the first one, and one more for those who came
    during it.
    """
    (root / "a.txt").write_text("zebra")
    look, looks = files._folder.list, []
    files._folder.list = lambda: (looks.append(1), time.sleep(0.05), look())[2]  # type: ignore[method-assign]  # slow, and counted
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ids(files, "zebra")) for _ in range(6)]
    assert [task.result() for task in tasks] == [["a.txt#0"]] * 6
    assert len(looks) <= 2


async def test_scope_period_and_filters_come_before_the_limit(files: Files, root: Path) -> None:
    for number in range(5):
        (root / f"a{number}.md").write_text(
            f"---\ncompartment: secret\nsensitivity: internal\n---\nzebra {'x ' * number}"
        )
    (root / "open.md").write_text(
        "---\nkind: book\ndate: 2026-03-01\nlevel: easy\n---\nzebra and many other words, so it is last"
    )
    assert (await ids(files, "zebra"))[-1] == "open.md#0"
    assert await ids(files, "zebra", limit=1, scope=Scope()) == ["open.md#0"]
    day = Period(start=date(2026, 3, 1), end=date(2026, 3, 1))
    assert await ids(files, "zebra", limit=1, period=day) == ["open.md#0"]
    assert await ids(files, "zebra", limit=1, filters={"level": ["hard", "easy"]}) == ["open.md#0"]
    assert await ids(files, "zebra", limit=1, filters={"kind": "book"}) == ["open.md#0"]
    assert await ids(files, "zebra", filters={"level": "hard"}) == []
    assert (
        len(await ids(files, "zebra", scope=Scope(compartments=frozenset({"secret"}), ceiling="internal")))
        == 6
    )


async def test_a_tenant_sees_its_own_files_and_the_unlabelled_ones(files: Files, root: Path) -> None:
    (root / "a.md").write_text("---\ntenant: acme\n---\nzebra")
    (root / "b.md").write_text("zebra")
    assert await ids(files, "zebra", scope=Scope(tenant="acme")) == ["a.md#0", "b.md#0"]
    assert await ids(files, "zebra", scope=Scope(tenant="other")) == ["b.md#0"]
    assert await ids(files, "zebra", scope=Scope()) == ["b.md#0"]
    assert [d.id for d in await files.fetch(["a.md", "b.md"], Scope(tenant="other"))] == ["b.md"]


async def test_an_unknown_sensitivity_is_above_every_ceiling_and_reported(files: Files, root: Path) -> None:
    (root / "a.md").write_text("---\nsensitivity: secret\n---\nzebra")
    assert await ids(files, "zebra", scope=Scope(ceiling="restricted")) == []
    assert any("'secret'" in problem for problem in files.problems)


async def test_json_lines_are_searched_record_by_record(files: Files, root: Path) -> None:
    (root / "a.jsonl").write_text('{"title": "T", "content": "zebra"}\n{"x": "giraffe"}\nno json, lion\n')
    (hit,) = await files.search(Query(text="zebra"))
    assert (hit.document.title, hit.document.content) == ("T", "zebra")
    assert await ids(files, "giraffe") == ["a.jsonl#1"]
    assert await ids(files, "lion") == ["a.jsonl#2"]


async def test_the_example_question_finds_the_notes_about_books_for_beginners() -> None:
    source = Files(path=str(EXAMPLES / "notes"))
    await source.open()
    parents = [hit.document.parent for hit in await source.search(Query(text=QUESTION, limit=3))]
    assert "reading-group.md" in parents
    assert source.problems == []
    await source.aclose()


# Crawling and fetching


async def test_a_crawl_yields_whole_documents_without_their_front_matter(files: Files, root: Path) -> None:
    (root / "a.md").write_text(
        "---\ntitle: T\nkind: book\nurl: https://example.org/\ndate: 2026-01-02\nlabels: a, b\ntrust:"
        " reference\nlanguage: en\nauthor: Somebody\n---\n# H\nText\n"
    )
    (root / "b.txt").write_text("plain")
    os.utime(root / "b.txt", (86_400, 86_400))
    first, second = [document async for document in files.crawl()]
    assert (first.id, first.title, first.kind, first.content) == ("a.md", "T", "book", "# H\nText")
    assert first.url == "https://example.org/"
    assert (first.labels, first.trust, first.language) == (("a", "b"), "reference", "en")
    assert first.updated_at == datetime(2026, 1, 2, tzinfo=UTC)
    dated = {"date": "2026-01-02", "author": "Somebody", "dated_by": "document"}
    assert first.metadata == {**dated, "first_line": 11}
    assert (second.title, second.kind, second.url, second.media_type) == (
        "b",
        "document",
        "b.txt",
        "text/plain",
    )
    assert second.updated_at == datetime(1970, 1, 2, tzinfo=UTC)


async def test_document_kind_overrides_the_front_matter(root: Path) -> None:
    (root / "a.md").write_text("---\nkind: book\n---\n# Heading one\nzebra")
    source = Files(path=str(root / "a.md"), document_kind="note")
    await source.open()
    (document,) = [document async for document in source.crawl()]
    assert (document.id, document.kind, document.title) == ("a.md", "note", "Heading one")
    await source.aclose()


async def test_fetch_returns_files_and_passages_in_the_order_asked_and_nothing_outside(
    files: Files, root: Path
) -> None:
    (root.parent / "secret.md").write_text("zebra")
    (root / "a.md").write_text("# A\none\n# B\ntwo")
    found = await files.fetch(["a.md#1", "../secret.md", "/etc/passwd", "a.md", "none"])
    assert [(document.id, document.content) for document in found] == [
        ("a.md#1", "two"),
        ("a.md", "# A\none\n# B\ntwo"),
    ]


# What is not read


async def test_links_out_of_the_folder_are_refused_and_reported(files: Files, root: Path) -> None:
    (root.parent / "secret.md").write_text("zebra")
    (root.parent / "folder").mkdir()
    (root.parent / "folder" / "x.md").write_text("zebra")
    (root / "link.md").symlink_to(root.parent / "secret.md")
    (root / "inside").symlink_to(root.parent / "folder")
    (root / "a.md").write_text("zebra")
    (root / "same.md").symlink_to(root / "a.md")
    assert await ids(files, "zebra") == ["a.md#0", "same.md#0"]
    assert sorted(problem.split(":")[0] for problem in files.problems) == ["inside", "link.md"]


async def test_a_file_that_becomes_a_link_between_listing_and_reading_is_not_followed(
    files: Files, root: Path
) -> None:
    (root.parent / "secret.md").write_text("secret")
    (root / "a.md").write_text("harmless")
    listed = files._folder.list().files["a.md"]
    (root / "a.md").unlink()
    (root / "a.md").symlink_to(root.parent / "secret.md")
    with pytest.raises(OSError, match="symbolic link"):
        files._folder.read(listed)


async def test_a_folder_that_becomes_a_link_between_listing_and_reading_is_not_followed(
    files: Files, root: Path
) -> None:
    for folder in (root / "sub", root.parent / "other"):
        folder.mkdir()
        (folder / "a.md").write_text(folder.name)
    listed = files._folder.list().files["sub/a.md"]
    (root / "sub" / "a.md").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(root.parent / "other")
    with pytest.raises(OSError, match="symbolic link"):
        files._folder.read(listed)


def test_an_unreadable_folder_below_is_unread_as_a_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not bind every user, so the refusal is made here."""
    (root / "sub").mkdir()
    (root / "sub" / "a.md").write_text("zebra")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("/sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    listing = Folder(root, ["*"], 100, 100).list()
    assert (listing.files, listing.unread) == ({}, ["sub/"])
    assert "Permission denied" in listing.problems[0]


async def test_hidden_binary_large_and_special_files_are_left_out_with_a_reason(
    files: Files, root: Path
) -> None:
    (root / ".hidden.md").write_text("zebra")
    (root / ".git").mkdir()
    (root / ".git" / "x.md").write_text("zebra")
    (root / "binary.txt").write_bytes(b"zebra\0\1\2")
    (root / "large.txt").write_text("zebra " * 2_000)
    (root / "gone.txt").symlink_to(root / "nowhere")
    os.mkfifo(root / "pipe.txt")
    (root / "other.bin").write_text("zebra")
    assert await ids(files, "zebra") == []
    assert sorted(problem.split(":")[0] for problem in files.problems) == [
        "binary.txt",
        "gone.txt",
        "large.txt",
        "pipe.txt",
    ]
    assert sorted(files.unread) == ["binary.txt", "gone.txt", "large.txt"]
    assert await crawled(files) == {}
    assert sorted(files.unread) == ["binary.txt", "gone.txt", "large.txt"]


async def test_a_file_whose_name_is_no_text_is_left_out_with_a_reason(files: Files, root: Path) -> None:
    with open(os.fsencode(root) + b"/\xff.txt", "w") as file:  # noqa: ASYNC230 - a file of the test, written before anything else runs
        file.write("zebra")
    assert await ids(files, "zebra") == []
    assert files.problems == ["'\\udcff.txt': a name that is no text; rename it."]


async def test_undecodable_bytes_of_a_named_encoding_are_replaced_and_reported(root: Path) -> None:
    (root / "a.txt").write_bytes(b"zebra \xff end")
    files = Files(path=str(root), encoding="utf-8")
    await files.open()
    assert await crawled(files) == {"a.txt": "zebra \ufffd end"}
    assert files.problems == ["a.txt: byte 6 is no utf-8; undecodable bytes were replaced."]
    await files.aclose()


async def test_too_many_files_end_a_crawl_with_an_error(root: Path) -> None:
    """They end a search with a problem."""
    for name in "abc":
        (root / f"{name}.txt").write_text("zebra")
    source = Files(path=str(root), max_files=2)
    await source.open()
    assert await ids(source, "zebra") == ["a.txt#0", "b.txt#0"]
    assert "more than 2 files" in source.problems[0]
    crawl = source.crawl()
    assert [(await anext(crawl)).id, (await anext(crawl)).id] == ["a.txt", "b.txt"]
    with pytest.raises(SourceError, match="max_files"):
        await anext(crawl)
    await source.aclose()


# Lifecycle, errors, time


async def test_a_missing_folder_is_a_source_error_that_says_how_to_mend_it(tmp_path: Path) -> None:
    source = Files(path=str(tmp_path / "none"))
    with pytest.raises(SourceError, match="not open"):
        await source.search(Query(text="x"))
    await source.open()
    for ask in (source.search(Query(text="x")), source.ping(), source.version(), source.fetch(["a"])):
        with pytest.raises(SourceError, match="give a folder or a file that exists"):
            await ask
    await source.aclose()


async def test_it_opens_again_after_it_was_closed_and_closes_twice(files: Files, root: Path) -> None:
    (root / "a.txt").write_text("zebra")
    await files.aclose()
    await files.aclose()
    await files.open()
    await files.open()
    assert await ids(files, "zebra") == ["a.txt#0"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"path": ""}, "path is empty"),
        ({"path": "x", "patterns": "*.md"}, "list of file name patterns"),
        ({"path": "x", "patterns": [""]}, "list of file name patterns"),
        ({"path": "x", "parse_seconds": 0}, "parse_seconds"),
        ({"path": "x", "max_bytes": 0}, "max_bytes"),
        ({"path": "x", "max_files": -1}, "max_files"),
        ({"path": "x", "encoding": "klingon"}, "'klingon'"),
    ],
)
def test_values_that_make_no_sense_are_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Files(**keywords)  # type: ignore[arg-type]  # a wrong type on purpose


async def test_when_reading_is_too_slow_the_last_reading_answers_and_the_first_has_none(
    files: Files, root: Path
) -> None:
    (root / "a.txt").write_text("zebra")
    with files._reading, pytest.raises(SourceTimeout):  # as if another reading took its time
        await files.search(Query(text="zebra", deadline=time.monotonic() + 0.05))
    assert await ids(files, "zebra") == ["a.txt#0"]
    with files._reading:
        assert await ids(files, "zebra", deadline=time.monotonic() + 0.5) == ["a.txt#0"]


async def test_one_cancelled_question_does_not_fail_the_others(files: Files, root: Path) -> None:
    (root / "a.txt").write_text("zebra")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ids(files, "zebra")) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
    assert [task.result() for task in tasks[1:]] == [["a.txt#0"], ["a.txt#0"]]


def test_it_can_be_used_in_one_event_loop_after_another() -> None:
    source = Files.example()

    async def once() -> int:
        await source.open()
        hits = await source.search(Query(text="machine learning"))
        await source.aclose()
        return len(hits)

    assert [asyncio.run(once()), asyncio.run(once())] == [1, 1]
