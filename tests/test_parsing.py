"""Files of all forms: what is in them is kept with its structure, and what cannot be read is said without
harm to the rest.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pdfminer import layout
from support.pdf_files import pdf

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.connectors.files.parsing import media, process, readers, worker
from contextrouter.builtin.connectors.files.parsing import pdf as pdf_parser
from contextrouter.builtin.connectors.files.parsing.parsed import (
    Parsed,
    Unreadable,
    markdown_line,
    markdown_table,
)
from contextrouter.builtin.connectors.files.parsing.text import decode
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.model import Document

PAGE = """<!doctype html><html lang="en-GB"><head><title>Tides</title></head><body>
<nav><a href="https://sea.example/home">Home</a> <a href="https://sea.example/x">Shop</a></nav>
<main><h1>Tides</h1><p>The moon pulls at the sea, and the sea follows it around the earth every day.</p><h2>Spring tides</h2>
<p>When sun and moon stand in line the water rises higher than on all the other days of the month.</p>
<table><tr><th>port</th><th>metres</th></tr><tr><td>Brest</td><td>6.1</td></tr></table></main>
<footer>All rights reserved. Cookie settings.</footer></body></html>"""
FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>Sea news</title><item><title>High water</title>
<link>https://sea.example/1</link><description>At noon.</description></item></channel></rss>"""


def saved(book: object) -> bytes:
    out = io.BytesIO()
    book.save(out)  # type: ignore[attr-defined]  # documents of three packages, each with save()
    return out.getvalue()


def parsed(media_type: str, data: bytes) -> Parsed:
    return readers.reader(media_type)(data)


# Formats


def test_a_page_becomes_markdown_with_its_structure_and_without_its_frame() -> None:
    page = parsed(media.HTML, PAGE.encode())
    assert (page.title, page.language, page.media_type) == ("Tides", "en", "text/markdown")
    assert "# Tides" in page.text
    assert "## Spring tides" in page.text
    assert "| Brest | 6.1 |" in page.text
    assert "Cookie" not in page.text
    assert "Shop" not in page.text
    assert list(page.links) == ["https://sea.example/home", "https://sea.example/x"]


@pytest.mark.case("C29")
def test_a_page_is_cut_at_its_headings() -> None:
    page = parsed(media.HTML, PAGE.encode())
    chunks = Chunk().cut(Document(id="p", content=page.text, media_type=page.media_type))
    assert [chunk.path for chunk in chunks] == [("Tides",), ("Tides", "Spring tides")]


@pytest.mark.case("C30")
def test_a_pdf_keeps_its_paragraphs_and_chunks_know_their_page() -> None:
    made = parsed(media.PDF, pdf([["First paragraph.", "Second paragraph."], ["On the other page."]]))
    assert made.text == "First paragraph.\n\nSecond paragraph.\n\nOn the other page."
    assert made.metadata["page_starts"] == [0, 37]
    document = Document(id="p", content=made.text, media_type=made.media_type, metadata=made.metadata)
    chunks = Chunk(target=4, maximum=8, overlap=0).cut(document)
    assert [(chunk.content, chunk.metadata["page"]) for chunk in chunks] == [
        ("First paragraph.", 1),
        ("Second paragraph.", 1),
        ("On the other page.", 2),
    ]
    assert all("page_starts" not in chunk.metadata for chunk in chunks)


def test_word_files_keep_headings_lists_and_tables_and_no_text_becomes_a_heading() -> None:
    document = docx.Document()
    document.core_properties.title = "Handbook"
    document.add_heading("Pumps", 1)
    document.add_paragraph("# 1 priority")
    document.add_paragraph("Check oil", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), ("part", "a|b", "seal", "2"), strict=True
    ):
        cell.text = text
    made = parsed(media.DOCX, saved(document))
    assert (
        made.text
        == "# Pumps\n\n\\# 1 priority\n\n- Check oil\n\n| part | a\\|b |\n| --- | --- |\n| seal | 2 |"
    )
    assert made.title == "Handbook"


def test_slides_have_headings_tables_notes_and_page_numbers() -> None:
    deck = pptx.Presentation()
    for title, body in (("Aims", "Less waste"), ("", "More light")):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = body
    deck.slides[0].notes_slide.notes_text_frame.text = "Say it slowly"
    made = parsed(media.PPTX, saved(deck))
    assert made.text == "## Aims\n\nLess waste\n\nSay it slowly\n\n## Slide 2\n\nMore light"
    assert made.metadata["page_starts"] == [0, made.text.index("## Slide 2")]


def test_each_run_of_rows_of_a_sheet_is_a_table_without_its_empty_columns() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Ports"
    for row in ((None, "port", "metres"), (None, "Brest", 6.1), (), (None, "ship"), (None, "Ada")):
        sheet.append(row)
    book.create_sheet("Empty")
    made = parsed(media.XLSX, saved(book))
    assert (
        made.text
        == "## Ports\n\n| port | metres |\n| --- | --- |\n| Brest | 6.1 |\n\n| ship |\n| --- |\n| Ada |"
    )


def test_a_feed_has_a_heading_for_each_item() -> None:
    made = parsed(media.FEED, FEED.encode())
    assert made.text == "# Sea news\n\n## High water\n\nAt noon."
    assert list(made.links) == ["https://sea.example/1"]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.PDF", b"", media.PDF),
        ("a", b"%PDF-1.7", media.PDF),
        ("a", b"\xef\xbb\xbf <!DOCTYPE html>", media.HTML),
        ("a.xml", FEED.encode(), media.FEED),
        ("a.xml", b"<?xml version='1.0'?><note/>", media.XML),
        ("a", FEED.encode(), media.FEED),
        ("a.tsx", b"", "text/x-tsx"),
        ("README", b"# A", media.PLAIN),
    ],
)
def test_a_media_type_is_known_by_suffix_or_beginning(name: str, data: bytes, expected: str) -> None:
    assert media.media_type(name, data) == expected


@given(st.text())
def test_a_line_of_text_stays_one_paragraph_of_markdown(text: str) -> None:
    line = markdown_line(text)
    assert "\n" not in line
    assert line.removeprefix("\\") == " ".join(text.split()) or line == " ".join(text.split())


def test_rows_of_different_lengths_make_a_table() -> None:
    assert markdown_table([("a", "b"), ("c",)]) == "| a | b |\n| --- | --- |\n| c |  |"
    assert markdown_table([]) == ""


# What cannot be read


@pytest.mark.parametrize(
    ("media_type", "data", "said"),
    [
        (media.PDF, pdf([["x"]], encrypted=True), "encrypted"),
        (media.PDF, pdf([[]]), "no text on its 1 pages"),
        (media.DOCX, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted"),
        (media.HTML, b"<html><body></body></html>", "no text"),
        (media.FEED, b"<rss/>", "feed"),
    ],
)
def test_what_holds_nothing_to_read_says_why(media_type: str, data: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        parsed(media_type, data)


@pytest.mark.parametrize("media_type", readers.READERS)
@settings(max_examples=20, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes_have_an_answer(media_type: str, data: bytes) -> None:
    assert worker.answer(media_type, data)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    source = Files(path=str(tmp_path))
    await source.open()
    yield source
    await source.aclose()


async def test_a_broken_file_is_reported_and_all_others_are_read(files: Files, tmp_path: Path) -> None:
    whole = pdf([["Still here."]])
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4 broken")
    (tmp_path / "b.docx").write_bytes(b"PK\3\4 broken")
    (tmp_path / "c.pdf").write_bytes(whole)
    (tmp_path / "d.xlsx").write_bytes(b"")
    (tmp_path / "e.pdf").write_bytes(pdf([["x"]], encrypted=True))
    assert [document.content async for document in files.crawl()] == ["Still here."]
    assert [problem.partition(":")[0] for problem in files.problems] == ["a.pdf", "b.docx", "d.xlsx", "e.pdf"]
    assert files.unread == ["a.pdf", "b.docx", "d.xlsx", "e.pdf"]


def test_a_parser_that_takes_too_long_is_killed_and_the_next_file_is_read() -> None:
    parser = process.Parser(1e-6)
    with pytest.raises(Unreadable, match=r"more than 1e-06 seconds"):
        parser.parse(pdf([["x"]]), media.PDF)
    parser.seconds = 60
    assert parser.parse(pdf([["again"]]), media.PDF).text == "again"
    parser.close()
    parser.close()


def test_a_process_that_dies_is_replaced() -> None:
    parser = process.Parser(60)
    assert parser.parse(pdf([["one"]]), media.PDF).text == "one"
    assert parser._process is not None
    parser._process.kill()
    with pytest.raises(Unreadable, match="ended the process"):
        parser.parse(pdf([["two"]]), media.PDF)
    assert parser.parse(pdf([["three"]]), media.PDF).text == "three"
    parser.close()


async def test_a_question_finds_what_a_pdf_says(files: Files, tmp_path: Path) -> None:
    from contextrouter.model import Query

    (tmp_path / "a.pdf").write_bytes(pdf([["Penguins dive."]]))
    assert [hit.document.content for hit in await files.search(Query(text="penguins"))] == ["Penguins dive."]


# Encodings

RUSSIAN = (
    "Приливы и отливы вызваны притяжением Луны. Вода поднимается дважды в сутки и дважды опускается. " * 3
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1251", "koi8-r"])
def test_an_encoding_is_found_out(encoding: str) -> None:
    assert decode(RUSSIAN.encode(encoding), "") == (RUSSIAN, "")


def test_an_encoding_that_is_named_is_kept_to() -> None:
    assert decode("é".encode("latin-1"), "latin-1") == ("é", "")
    assert decode(b"a\xffb", "utf-8") == ("a\ufffdb", "byte 1 is no utf-8; undecodable bytes were replaced.")
    assert decode(b"a\0b", "")[0] is None


def test_equally_distant_boxes_of_a_pdf_are_grouped_by_order() -> None:
    """A paper whose lines stood on a grid said something else in each process, and was ingested again each
    time.
    """
    pdf_parser.read(pdf([["one", "two"]]))
    first, second = sorted((object(), object()), key=id, reverse=True)
    number = layout.id(first)
    assert [layout.id(each) for each in (first, second, first)] == [number, number + 1, number]
