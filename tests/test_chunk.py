"""Chunking: it ends, loses nothing, makes nothing blank and nothing too long; Markdown is read as CommonMark
reads it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextrouter.builtin.shared.places import Places
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.model import Document, Fact
from contextrouter.text import tokens

MARKDOWN = "text/markdown"


def cut(text: str, media_type: str = MARKDOWN, **options: int) -> list[Document]:
    """The chunks of `text`."""
    return Chunk(**options).cut(Document(id="d", content=text, media_type=media_type))


def test_the_line_of_a_piece_is_right_wherever_the_last_one_was() -> None:
    """Chunks overlap, so that one may begin before the end of the last one, or on its line."""
    document = Document(content="a\nb\n\nc d\ne", metadata={"first_line": 10, "page_starts": [0, 5, 9]})
    places = Places(document)
    assert [places.at(start, start + 1)["line"] for start in (0, 5, 7, 2, 9, 0)] == [10, 13, 13, 11, 14, 10]
    assert places.at(0, 10) == {"page": 1, "next_pages": [[2, 5], [3, 9]], "line": 10}
    assert places.at(0, 9) == {"page": 1, "next_pages": [[2, 5]], "line": 10}


def outline(text: str) -> list[tuple[tuple[str, ...], str]]:
    """Path and content of each chunk of a Markdown text."""
    return [(chunk.path, chunk.content) for chunk in cut(text)]


def check_laws(text: str, chunks: list[Document], maximum: int) -> None:
    """Each chunk is a slice, not blank, not above the maximum; together they hold all that is not blank, in
    order.
    """
    covered = 0
    for chunk in chunks:
        start, end = chunk.metadata["start"], chunk.metadata["end"]
        assert chunk.content == text[start:end]
        assert chunk.content.strip()
        assert tokens.count(chunk.content) <= maximum
        assert not text[covered:start].strip()
        covered = max(covered, end)
    assert not text[covered:].strip()
    assert len({chunk.id for chunk in chunks}) == len(chunks)


def test_sections_carry_their_heading_path() -> None:
    text = "# Guide\nintro\n## Install\npip\n### Linux\napt\n## Use\nrun\n"
    assert outline(text) == [
        (("Guide",), "# Guide\nintro"),
        (("Guide", "Install"), "## Install\npip"),
        (("Guide", "Install", "Linux"), "### Linux\napt"),
        (("Guide", "Use"), "## Use\nrun"),
    ]


def test_a_deeper_heading_without_its_parent_and_h4_do_not_confuse_the_path() -> None:
    assert outline("### Deep\nx\n#### Deeper\ny\n# Top\nz") == [
        (("Deep",), "### Deep\nx\n#### Deeper\ny"),
        (("Top",), "# Top\nz"),
    ]


@pytest.mark.case("CHK-01")
def test_a_hash_in_fenced_code_is_no_heading() -> None:
    assert outline("# A\n```\n# comment\n```\n") == [(("A",), "# A\n```\n# comment\n```")]


@pytest.mark.case("CHK-02")
def test_tilde_fences_are_fences() -> None:
    assert outline("~~~py\n# comment\n~~~\n") == [((), "~~~py\n# comment\n~~~")]


@pytest.mark.parametrize(
    "text",
    [
        "````\n```\n# x\n`````",
        "   ```\n# x\n   ```",
        "```\n# x",
        "    # indented code",
        "> # quoted",
        "- # in a list",
    ],
    ids=["longer closing", "indented fence", "unclosed", "indented code", "quote", "list"],
)
@pytest.mark.case("CHK-03")
def test_headings_stand_outside_code_quotes_and_lists(text: str) -> None:
    assert outline(text) == [((), text.strip("\n"))]


@pytest.mark.case("CHK-05")
def test_crlf_stays_out_of_paths_and_offsets_are_those_of_the_text() -> None:
    text = "# Title\r\n\r\nfirst\r\n\r\nSecond\r\n---\r\nbody\r\n"
    chunks = cut(text)
    assert [c.path for c in chunks] == [("Title",), ("Title", "Second")]
    assert [c.content for c in chunks] == ["# Title\r\n\r\nfirst", "Second\r\n---\r\nbody"]
    check_laws(text, chunks, 1024)
    assert [c.path for c in cut("# A\rx\r# B\ry")] == [("A",), ("B",)]


@pytest.mark.case("CHK-06")
def test_setext_headings_take_their_whole_paragraph() -> None:
    assert outline("two\nlines\n===\nbody") == [(("two lines",), "two\nlines\n===\nbody")]
    assert outline("text\n-\nbody") == [(("text",), "text\n-\nbody")]


@pytest.mark.case("CHK-07")
def test_front_matter_is_only_at_the_start_and_no_heading() -> None:
    assert outline("---\ntitle: x\n# no\n---\n# H\nbody") == [(("H",), "---\ntitle: x\n# no\n---\n# H\nbody")]
    assert outline("text\n\nTitle\n---\nbody") == [((), "text"), (("Title",), "Title\n---\nbody")]
    assert outline("\n---\na: b\n---\nc")[0][0] == ()
    assert outline("---\nunclosed\n\n# H\nx") == [((), "---\nunclosed"), (("H",), "# H\nx")]


@pytest.mark.case("CHK-24")
def test_headings_with_nothing_under_them_go_with_the_next_section() -> None:
    assert outline("# T\n\n## A\n\n## B\ntext") == [(("T", "B"), "# T\n\n## A\n\n## B\ntext")]
    assert outline("## A\n\n## B\n") == [(("B",), "## A\n\n## B")]
    assert outline("# A\nx\n\n## B\n") == [(("A",), "# A\nx\n\n## B")]


def test_markup_stays_out_of_the_path() -> None:
    assert cut("## The *big* `code` [link](http://x) ![pic](y) \\# #\nx")[0].path == (
        "The big code link pic #",
    )


def test_plain_text_has_no_headings() -> None:
    assert outline("# A\nx") != []
    assert [c.path for c in cut("# A\nx\n# B\ny", "text/plain")] == [()]


def test_blank_documents_have_no_chunks() -> None:
    assert cut("") == cut(" \n\t\n") == cut("\n\n", "text/plain") == []


def test_chunks_inherit_the_documents_fields() -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    fact = Fact(subject="a", predicate="b", object="c")
    document = Document(
        id="doc",
        url="u",
        kind="book",
        path=("Shelf",),
        media_type=MARKDOWN,
        language="en",
        tenant="t",
        compartment="c",
        sensitivity="internal",
        trust="reference",
        updated_at=now,
        labels=("l",),
        links=("k",),
        metadata={"x": 1, "facts": (fact,)},
        content="# Title\na\n## Two\nb",
    )
    first, second = Chunk().cut(document)
    assert (first.title, second.title) == ("Title", "Title")  # the first H1, as the document has none
    assert (first.path, second.path) == (("Shelf", "Title"), ("Shelf", "Title", "Two"))
    assert first.metadata == {"x": 1, "facts": (fact,), "start": 0, "end": 9}
    assert second.metadata == {"x": 1, "start": 10, "end": 18}
    for chunk in (first, second):
        same = {"id": "", "content": "", "title": "", "path": (), "parent": None, "metadata": {}}
        assert chunk.replace(**same) == document.replace(**same)
        assert chunk.parent == "doc"


def test_a_blank_document_with_facts_stays_so_that_they_are_not_lost() -> None:
    document = Document(
        id="f", content="", metadata={"facts": (Fact(subject="a", predicate="b", object="c"),)}
    )
    assert Chunk().cut(document) == [document]


def test_ids_are_stable_and_equal_texts_of_one_document_differ() -> None:
    text = "# A\nsame\n# A\nsame\n# B\nother"
    ids = [c.id for c in cut(text)]
    assert ids == [c.id for c in cut(text)]
    assert len(set(ids)) == 3
    # An insertion elsewhere changes no other chunk's id.
    assert [c.id for c in cut("# New\nfirst\n" + text)][1:] == ids
    assert Chunk().cut(Document(id="other", content=text, media_type=MARKDOWN))[0].id != ids[0]


@pytest.mark.case("CHK-21")
def test_one_document_leaves_nothing_behind_for_the_next() -> None:
    chunk = Chunk()
    first = chunk.cut(Document(id="a", content="one"))
    second = chunk.cut(Document(id="a", content="one"))
    assert first == second
    assert len(second) == 1


def test_long_sections_are_cut_at_paragraphs_before_sentences() -> None:
    paragraph = "One sentence here. " * 4  # 4 tokens each, 16 in all
    text = "\n\n".join([paragraph.strip()] * 4)
    contents = [c.content for c in cut(text, "text/plain", target=40, maximum=60, overlap=0)]
    assert contents == ["\n\n".join([paragraph.strip()] * 2)] * 2


def test_sentences_are_kept_whole_up_to_the_maximum() -> None:
    long = "word " * 50 + "end. "
    contents = [c.content for c in cut(long * 3, "text/plain", target=30, maximum=60, overlap=0)]
    assert contents == [long.strip()] * 3


def test_slices_overlap_from_the_start_of_a_sentence() -> None:
    text = "".join(f"This is sentence number {n}. " for n in range(100, 160))  # 6 tokens each
    first, second, *_ = cut(text, "text/plain", target=60, maximum=60, overlap=15)
    assert first.metadata["start"] < second.metadata["start"] < first.metadata["end"]
    shared = text[second.metadata["start"] : first.metadata["end"]]
    assert shared == "This is sentence number 108. This is sentence number 109."


@pytest.mark.parametrize(
    ("target", "maximum", "overlap"), [(10, 20, 10), (10, 5, 1), (10, 20, -1), (2, 20, 1)]
)
@pytest.mark.case("CHK-11")
def test_impossible_sizes_are_refused(target: int, maximum: int, overlap: int) -> None:
    with pytest.raises(ValueError, match=r"Give (overlap < target <= maximum|0 or more|4 or more)"):
        Chunk(target=target, maximum=maximum, overlap=overlap)


@pytest.mark.case("CHK-10")
def test_work_is_bounded_when_the_overlap_is_nearly_the_target() -> None:
    text = "机器学习是一个领域" * 60
    chunks = cut(text, "text/plain", target=64, maximum=64, overlap=63)
    check_laws(text, chunks, 64)
    assert len(chunks) <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        "word " * 3000,
        "x" * 30_000,
        "学" * 5000,
        "😀" * 3000,
        "e\u0301\u0302" * 3000,
        "각" * 2000,
        "ไทย" * 999,
        "\n" * 5000 + "a",
    ],
    ids=["words", "run", "cjk", "emoji", "marks", "hangul", "thai", "lines"],
)
@pytest.mark.parametrize(("target", "maximum", "overlap"), [(512, 1024, 50), (64, 64, 0), (20, 25, 19)])
@pytest.mark.case("CHK-12")
def test_the_maximum_holds_for_any_script(text: str, target: int, maximum: int, overlap: int) -> None:
    text = text[:1500] if target == 20 else text
    chunks = cut(text, "text/plain", target=target, maximum=maximum, overlap=overlap)
    check_laws(text, chunks, maximum)


@pytest.mark.case("CHK-13")
def test_chinese_is_cut_at_its_own_full_stops() -> None:
    sentence = "这是一个关于机器学习的句子。"  # 14 characters, 14 tokens
    chunks = cut(sentence * 400, "text/plain", target=100, maximum=200, overlap=0)
    assert all(c.content.endswith("。") and c.content.startswith("这") for c in chunks)
    assert {len(c.content) for c in chunks[:-1]} == {98}


@pytest.mark.case("CHK-22")
def test_special_token_text_is_chunked() -> None:
    text = "<|endoftext|> docs [CLS] " * 200
    check_laws(text, cut(text), 1024)


@settings(max_examples=150, deadline=None)
@given(
    st.text(st.one_of(st.sampled_from("ab .\n\r#`~->=*[]。\t學각é"), st.characters()), max_size=400),
    st.integers(4, 30),
    st.integers(0, 30),
    st.data(),
    st.sampled_from([MARKDOWN, "text/plain"]),
)
def test_chunking_ends_and_loses_nothing(
    text: str, target: int, more: int, data: st.DataObject, media_type: str
) -> None:
    overlap = data.draw(st.integers(0, target - 1))
    chunks = cut(text, media_type, target=target, maximum=target + more, overlap=overlap)
    check_laws(text, chunks, target + more)


@pytest.mark.parametrize(("media_type", "megabytes"), [("text/plain", 10), (MARKDOWN, 3)])
def test_ten_megabytes_on_one_line_take_seconds(media_type: str, megabytes: int) -> None:
    text = "The quick brown fox jumps over lazy dogs, again. " * (20_000 * megabytes)
    began = time.process_time()
    chunks = cut(text, media_type)
    assert time.process_time() - began < 2.5 * megabytes
    # 11 tokens a sentence, 46 sentences in 512 tokens, of which the next chunk repeats 4.
    assert len(chunks) == pytest.approx(20_000 * megabytes / 42, abs=2)


async def test_long_documents_are_cut_off_the_event_loop_with_the_same_result() -> None:
    document = Document(id="d", content="One sentence here. " * 5000)
    chunk = Chunk()
    expected = chunk.cut(document)
    await chunk.open()
    assert await chunk.transform(document) == expected
    await chunk.aclose()
    assert await chunk.transform(document) == expected
