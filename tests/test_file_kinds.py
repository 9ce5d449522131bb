"""Documents of every kind, as people make them: what they say is kept once, and what is left out is named."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pptx
import pytest
from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.connectors.files.parsing import media, readers
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable
from contextrouter.builtin.connectors.files.parsing.process import Parser
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.ingest import ingest
from contextrouter.model import Document

FIXTURES = Path(__file__).parent / "fixtures" / "documents"


def read(name: str) -> Parsed:
    """What the reader of a fixture makes of it."""
    data = (FIXTURES / name).read_bytes()
    return readers.reader(media.media_type(name, data))(data)


async def crawled(path: Path) -> dict[str, Document]:
    source = Files(path=str(path))
    await source.open()
    documents = {document.id: document async for document in source.crawl()}
    await source.aclose()
    return documents


# Word, PowerPoint, Excel, PDF


@pytest.mark.case("NEW-01")
def test_a_word_file_is_read_in_its_final_view() -> None:
    made = read("a.docx")
    assert made.text == (
        "# Contract\n\nThe fee is INSERTED 1200 euros.\n\nSDTBLOCK party is Heron Ltd.\n\n"
        "Inline SDTINLINE Lisbon end.\n\nSee HYPERLINK terms[^2]\n\n"
        "[^2]: FOOTNOTE warranty ends after ninety days\n\nTEXTBOX keep dry\n\nSMARTTAG Porto\n\n"
        "softhyphen-x tab line\n\n| K | V\\|pipe |\n| --- | --- |\n| row1 | NESTED INNER 77 |"
    )
    assert made.problems == ["left out of the final view: deletions 1, hidden texts 1."]
    assert made.links == ["https://example.org/x"]


@pytest.mark.case("NEW-01")
def test_a_word_file_whose_body_stands_in_a_control_is_not_empty() -> None:
    made = read("allsdt.docx")
    assert made.text == (
        "Title of the whole report on eels\n\nEvery word of this report stands inside a control."
    )
    assert made.problems == []


def test_a_paragraph_whose_end_was_deleted_goes_on_in_the_next() -> None:
    xml = zipfile.ZipFile(FIXTURES / "allsdt.docx").read("word/document.xml").decode()
    start = xml.partition("<w:body>")[0]
    body = (
        "<w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr><w:r><w:t xml:space='preserve'>Eels are </w:t></w:r></w:p>"
        "<w:p><w:r><w:t>long.</w:t></w:r></w:p>"
    )
    out = io.BytesIO()
    with zipfile.ZipFile(FIXTURES / "allsdt.docx") as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            text = f"{start}<w:body>{body}</w:body></w:document>".encode()
            new.writestr(name, text if name == "word/document.xml" else old.read(name))
    assert readers.reader(media.DOCX)(out.getvalue()).text == "Eels are long."


def test_a_chart_of_a_slide_is_a_table() -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Catch"
    data = CategoryChartData()
    data.categories = ["2024", "2025"]
    data.add_series("Eels", (3, 4))
    data.add_series("Pike", (1, None))
    place = (Inches(1), Inches(1), Inches(4), Inches(3))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Fish"
    out = io.BytesIO()
    deck.save(out)
    assert readers.reader(media.PPTX)(out.getvalue()).text == (
        "## Catch\n\nChart: Fish\n\n|  | Eels | Pike |\n| --- | --- | --- |\n| 2024 | 3 | 1 |\n| 2025 | 4 |  |"
    )


def test_a_chart_of_a_sheet_is_named_and_days_have_no_time() -> None:
    import datetime

    book = Workbook()
    sheet = book.active
    for row in (("day", "eels"), (datetime.date(2026, 3, 1), 3), (datetime.date(2026, 3, 2), 4.5)):
        sheet.append(row)
    chart = BarChart()
    chart.title = "Catch"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    sheet.add_chart(chart, "K9")
    out = io.BytesIO()
    book.save(out)
    assert readers.reader(media.XLSX)(out.getvalue()).text == (
        "## Sheet\n\n| day | eels |\n| --- | --- |\n| 2026-03-01 | 3 |\n| 2026-03-02 | 4.5 |\n\nChart: Catch"
    )


@pytest.mark.case("NEW-36")
@pytest.mark.parametrize(
    ("name", "pages", "said"),
    [
        ("mixed.pdf", [2, 3], "pages 2-3 of 4 hold images"),
        ("stamp.pdf", [1, 2, 3], "pages 1-3 of 3 hold images"),
    ],
)
def test_pages_of_a_pdf_that_are_images_are_named(name: str, pages: list[int], said: str) -> None:
    made = read(name)
    assert made.metadata["pages_without_text"] == pages
    assert [problem.startswith(said + " and no text") for problem in made.problems] == [True]
    assert made.text.strip()


def test_a_pdf_without_any_text_is_not_read() -> None:
    with pytest.raises(Unreadable, match="no text on its 2 pages"):
        read("scan.pdf")


# Web pages in files


@pytest.mark.case("NEW-03")
def test_code_of_a_page_is_fenced_and_makes_no_heading() -> None:
    page = read("pre_heading.html")
    code = (
        "# stop everything first\npumpctl stop --all\n\n# then start\npumpctl restart --orbit\n* star\n1. one"
    )
    assert f"\n\n```\n{code}\n```\n\nThen wait" in page.text
    chunks = Chunk().cut(Document(id="p", content=page.text, title=page.title, media_type=page.media_type))
    assert [chunk.path for chunk in chunks] == [()]


@pytest.mark.case("NEW-03")
def test_every_kind_of_code_block_keeps_its_lines_and_its_language() -> None:
    text = read("pre_blocks.html").text
    for block in (
        "```\npumpctl stop --all\n  sleep 5\npumpctl restart --orbit\n```",
        "```python\ndef f(x):\n    if x:\n        return 1\n```",
        "```bash\nline one\n    line two\n```",
        "```\ndef g():\n    pass\n```",
    ):
        assert f"\n\n{block}\n\n" in text
    assert "4471" not in text


@pytest.mark.case("NEW-03")
def test_an_export_of_a_wiki_has_its_code_and_its_title_without_the_space() -> None:
    page = read("confluence.html")
    assert page.title == "Runbook of the orbit pump"
    assert "```bash\npumpctl restart --orbit\n```" in page.text
    assert "| E7 | intake blocked |" in page.text
    assert "Document generated" not in page.text


# More kinds


@pytest.mark.case("NEW-40")
def test_a_notebook_has_texts_code_and_output_and_no_images() -> None:
    assert read("orchard.ipynb").text == (
        "# Orchard yield model\nPear trees in plot Vesper give the most fruit.\n\n```python\nimport pandas as"
        " pd\nframe = pd.DataFrame({'plot':['vesper']})\n```\n\n```\nmedian yield 41 kg\n```"
    )


@pytest.mark.case("NEW-40")
def test_a_mail_is_decoded_and_its_text_stands_once() -> None:
    mail = read("coldroom.eml")
    assert (mail.title, mail.date) == ("Kühlraum defekt", "2026-03-02T08:15:00+01:00")
    assert mail.metadata["from"] == "Jürgen Beispiel <one@example.org>"
    assert mail.text.endswith(
        "The cold room compressor für fish broke at night; the spare part is in locker 17 near the ramp.\n\n>"
        " On Sunday Two wrote:\n> is the cold room fine?"
    )
    assert mail.text.count("compressor") == 1


@pytest.mark.case("NEW-40")
async def test_each_message_of_a_mailbox_is_a_document() -> None:
    documents = await crawled(FIXTURES / "ferry.mbox")
    assert [(each.title, each.updated_at.isoformat()) for each in documents.values()] == [
        ("Ferry times", "2026-03-02T08:15:00+01:00"),
        ("Re: Ferry times", "2026-03-03T09:00:00+01:00"),
    ]
    first, second = (each.content for each in documents.values())
    assert first.endswith("The ferry Amaranth leaves at 6:40.\n\nFrom the pier it is five minutes.")
    assert second.endswith("On Sundays the ferry Amaranth leaves at 8:10.")
    assert all(id.startswith("ferry.mbox/") for id in documents)


@pytest.mark.case("NEW-40")
def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    book = read("lighthouse.epub")
    assert book.title == "The Tin Lighthouse"
    assert book.text == (
        "# Chapter one\n\nThe keeper Ottoline polished the tin lighthouse each dawn.\n\n# Chapter two\n\nThe storm"
        " took the lamp."
    )


@pytest.mark.case("NEW-40")
def test_subtitles_are_joined_without_repeats_and_chunks_know_when() -> None:
    lecture, talk = read("lecture.srt"), read("talk.vtt")
    assert lecture.text == "Welcome to the lecture on peat bogs. A peat bog grows one millimetre a year."
    assert talk.text == "Mira: Glass eels arrive in April at the weir."
    document = Document(
        id="l", content=lecture.text, media_type=lecture.media_type, metadata=lecture.metadata
    )
    chunks = Chunk(target=8, maximum=10, overlap=0).cut(document)
    assert [chunk.metadata["start_seconds"] for chunk in chunks] == [1.0, 4.5, 4.5]
    assert all("cue_starts" not in chunk.metadata for chunk in chunks)


@pytest.mark.case("NEW-40")
def test_rich_text_is_decoded() -> None:
    assert read("lease.rtf").text == (
        "Lease of the boathouse\n\nThe rent of the boathouse is 340 euros a month; the deposit is paid in Münster."
    )


@pytest.mark.case("NEW-40")
async def test_markups_become_markdown_with_their_headings() -> None:
    documents = await crawled(FIXTURES)
    assert documents["intro.mdx"].content == (
        "# Kiln\n\nFire the kiln at cone six.\n\n## Cooling\n\nCool for nine hours."
    )
    assert documents["intro.mdx"].title == "Kiln intro"
    assert documents["guide.adoc"].content == (
        "# Loom guide\n\n## Threading\n\nThread the loom from heddle twelve.\n\n```python\n== not a"
        " heading\n```\n\n## Weaving\n\nBeat twice."
    )
    assert documents["usage.rst"].content == (
        "# Bellows usage\n\n## Start\n\nPump the bellows slowly.\n\n```python\nNot a heading\n-------------\n```"
        "\n\n> **Warning:**\n>\n> Never pump above four bar.\n\n## End\n\nRelease the valve."
    )
    assert documents["setup.org"].content == "# Furnace\n## Lighting\nUse birch bark."
    assert documents["gadgetctl.1"].title == "GADGETCTL(1)"
    assert "## OPTIONS\n\n--purge-stale Removes gadgets" in documents["gadgetctl.1"].content
    assert documents["paper.tex"].content == "## Anvil\n\nThe anvil weighs 90 kg."
    assert documents["meet.ics"].content == (
        "## Tide meeting at the quay\n\nStart: 2026-03-29 02:00 (Europe/Berlin)"
    )
    assert {each.media_type for id, each in documents.items() if id.endswith(("rst", "adoc", "mdx"))} == {
        "text/markdown"
    }


async def test_a_block_quote_of_restructuredtext_is_a_quote_in_markdown(tmp_path: Path) -> None:
    text = "The keeper wrote:\n\n    Polish the lamp.\n\n    At dawn.\n\nThen he left.\n"
    (tmp_path / "log.rst").write_text(text, "utf-8")
    documents = await crawled(tmp_path)
    assert documents["log.rst"].content == (
        "The keeper wrote:\n\n> Polish the lamp.\n>\n> At dawn.\n\nThen he left."
    )


@pytest.mark.case("NEW-40")
async def test_pages_of_a_wiki_dump_and_operations_of_an_api_are_documents() -> None:
    documents = await crawled(FIXTURES)
    page = documents["dump.xml/Copper kettle"]
    assert page.content == (
        "Copper kettle is a vessel.\n\n## Care\n\nPolish it with lemon.\n\n| Year | Price |\n| --- | --- |\n|"
        " 2020 | 30 |"
    )
    assert page.updated_at is not None
    assert page.updated_at.isoformat() == "2026-02-01T10:00:00+00:00"
    assert not any("Vessel" in id for id in documents)
    operation = documents["api.yaml/rerouteParcel"]
    assert operation.title == "POST /parcels/{id}/reroute — Sends a parcel to another depot"
    assert "- 409: The parcel is already on a van and cannot be rerouted." in operation.content


def test_an_opendocument_text_has_headings_notes_and_tables_without_its_deletions() -> None:
    ns = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name if name != "draw" else "drawing"}:1.0"'
        for name in ("office", "text", "table", "draw")
    )
    body = (
        "<text:tracked-changes><text:p>GONE</text:p></text:tracked-changes>"
        '<text:h text:outline-level="2">Nets</text:h><text:p>Dry<text:s/>them<text:note><text:note-citation>1'
        "</text:note-citation><text:note-body><text:p>in shade</text:p></text:note-body></text:note>.</text:p>"
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell>"
        "<text:p>b</text:p></table:table-cell></table:table-row></table:table>"
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        xml = f"<office:document-content {ns}><office:body><office:text>{body}</office:text></office:body></office:document-content>"
        file.writestr("content.xml", xml)
    assert readers.reader(media.ODT)(out.getvalue()).text == (
        "## Nets\n\nDry them[^1].\n\n[^1]: in shade\n\n| a | b |\n| --- | --- |"
    )


# Notes


@pytest.mark.case("NEW-39")
async def test_comments_of_notes_are_no_content_and_tags_are_labels() -> None:
    note = (await crawled(FIXTURES))["obsidian.md"]
    assert note.content == (
        "# Hive log\n\n> **Warning:** Swarm risk\n> The west hive swarms in May.\n\nSee [[Queen rearing#Cups|cups]]"
        " and .\n\n\n\n#garden/bees important"
    )
    assert note.labels == ("garden/bees", "spring")
    assert note.metadata["aliases"] == ["Hive log", "Log: hive"]


@pytest.mark.case("NEW-39")
async def test_a_comment_in_code_stays_and_one_in_the_text_goes(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "Tides <!-- secret -->turn. Write `<!-- x -->`.\n\n```html\n<!-- y -->\n```\n\n100 %% sure %% of it"
        "\n\n![map](data:image/png;base64,AAAA)\n"
    )
    assert (await crawled(tmp_path))["a.md"].content == (
        "Tides turn. Write `<!-- x -->`.\n\n```html\n<!-- y -->\n```\n\n100 %% sure %% of it\n\nmap"
    )


async def test_properties_of_an_exported_note_are_metadata_and_its_number_no_title() -> None:
    note = next(each for id, each in (await crawled(FIXTURES)).items() if id.startswith("Team notes"))
    assert note.title == "Team notes"
    assert note.metadata["owner"] == "Somebody"
    assert "<aside>" not in note.content
    assert "Callout: order clay early." in note.content


# Files of several documents


async def test_an_unchanged_mailbox_is_not_parsed_again_and_a_lost_message_is_stored_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "ferry.mbox").write_bytes((FIXTURES / "ferry.mbox").read_bytes())
    source, store = Files(path=str(tmp_path)), Memory()
    await source.open()
    report = await ingest(source, store, [], None, origin="m")
    assert (report.added, report.deleted) == (2, 0)
    versions = {id: version async for id, version, _ in source.crawl_since({})}
    assert [document async for _, _, document in source.crawl_since(versions)] == [None, None]
    versions.popitem()  # a run that was interrupted had stored one of them
    assert all([document async for _, _, document in source.crawl_since(versions)])
    report = await ingest(source, store, [], None, origin="m")
    assert (report.unchanged, report.added, report.deleted) == (2, 0, 0)
    (tmp_path / "ferry.mbox").write_bytes(b"From nobody\n\n")
    report = await ingest(source, store, [], None, origin="m")
    assert (report.deleted, [reason for _, reason in report.skipped]) == (
        0,
        ["ferry.mbox: holds no message that can be read."],
    )
    await source.aclose()


@pytest.mark.parametrize("name", ["usage.rst", "guide.adoc", "talk.vtt", "api.yaml"])
def test_texts_are_parsed_in_a_process_of_their_own_too(name: str) -> None:
    parser = Parser(60)
    data = (FIXTURES / name).read_bytes()
    made, own = parser.parse(data, media.media_type(name, data)), read(name)
    parser.close()
    assert (made.text, [part.text for part in made.parts]) == (own.text, [part.text for part in own.parts])
    assert made.text or made.parts
