"""Folders as people leave them: stray links, hidden text, empty files, wrong suffixes. All is read or named."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

import docx
import pptx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import OxmlElement
from openpyxl import Workbook

from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.connectors.files.parsing import media, readers
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable
from contextrouter.builtin.providers.memory import Memory
from contextrouter.ingest import Report, ingest

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
"""A picture of one point, as PNG."""


async def stored(folder: Path, store: Memory | None = None) -> tuple[dict[str, str], Report]:
    """The texts of a store that a run over the folder filled, and the report."""
    store, source = store or Memory(), Files(path=str(folder))
    await source.open()
    report = await ingest(source, store, [], None, origin="x")
    await source.aclose()
    found = await store.fetch(list(await store.fingerprints()))
    return {document.id.removeprefix("x:"): document.content for document in found}, report


def problems(report: Report) -> list[str]:
    return sorted(why for _, why in report.skipped)


def word(document: object) -> Parsed:
    out = io.BytesIO()
    document.save(out)  # type: ignore[attr-defined]  # a document of python-docx, which has no types
    return readers.reader(media.DOCX)(out.getvalue())


# The folder


async def test_a_link_to_itself_is_named_and_all_else_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("The weir holds.")
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "loop").symlink_to("loop")
    texts, report = await stored(tmp_path)
    assert texts == {"a.md": "The weir holds."}
    assert (len(report.skipped), "loop.md: cannot be read" in problems(report)[0]) == (1, True)
    assert report.not_read == {"no suffix": 1}


async def test_hidden_files_and_folders_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("The weir holds.")
    (tmp_path / ".draft.md").write_text("Nothing yet.")
    (tmp_path / ".obsidian").mkdir()
    (tmp_path / ".obsidian" / "app.json").write_text('{"a": 1}')
    texts, report = await stored(tmp_path)
    assert (list(texts), report.not_read, report.skipped) == (["a.md"], {"hidden": 2}, [])


async def test_what_shows_nothing_is_empty_and_an_empty_office_file_keeps_what_was_stored(
    tmp_path: Path,
) -> None:
    """A document of 0 bytes is no document: its upload broke off."""
    store = Memory()
    document = docx.Document()
    document.add_paragraph("The lease ends in May.")
    document.save(str(tmp_path / "lease.docx"))
    (tmp_path / "a.md").write_text("The weir holds.")
    await stored(tmp_path, store)
    (tmp_path / "lease.docx").write_bytes(b"")
    (tmp_path / "marks.md").write_text("\u200b\ufeff\n", "utf-8")
    (tmp_path / "mails.mbox").write_bytes(b"")
    for name, text in (("a.json", "{}"), ("b.json", "[]"), ("c.json", " null\n")):
        (tmp_path / name).write_text(text)
    texts, report = await stored(tmp_path, store)
    assert texts == {"a.md": "The weir holds.", "lease.docx": "The lease ends in May."}
    assert report.not_read == {"empty": 5}
    assert problems(report) == ["lease.docx: is empty: it has 0 bytes."]


async def test_a_file_of_another_kind_than_its_suffix_says_is_named_with_its_kind(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("The lease ends in May.")
    document.save(str(tmp_path / "lease.pdf"))
    document.save(str(tmp_path / "lease.md"))
    (tmp_path / "export.xls").write_text("name\ttown\nAnna\tRome\n")
    (tmp_path / "subs.vtt").write_text("WEBVTT\n")
    _, report = await stored(tmp_path)
    likely = "It begins like .docx; if it is that, rename it."
    text = "It begins like a text; if it is that, give it a suffix such as .txt or .csv."
    ends = [text, likely, likely, "holds no cue."]
    assert all(why.endswith(end) for why, end in zip(problems(report), ends, strict=True)), report.skipped


async def test_a_text_of_two_encodings_is_read_in_both_and_named(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes("Köln is open\n".encode() + "Zürich is shut\n".encode("cp1252"))
    (tmp_path / "old.txt").write_bytes("Grüße aus Zürich, schöne Tage\n".encode("cp1252") * 9)
    texts, report = await stored(tmp_path)
    assert texts["log.txt"] == "Köln is open\nZürich is shut"
    assert "Grüße aus Zürich" in texts["old.txt"]
    assert problems(report) == [
        "log.txt: mixes UTF-8 with another encoding, which was read as Windows-1252; save it as UTF-8."
    ]


# Word, PowerPoint, Excel, PDF


def test_text_that_the_style_of_its_paragraph_hides_is_left_out() -> None:
    document = docx.Document()
    style = document.styles.add_style("Note to self", WD_STYLE_TYPE.PARAGRAPH)
    style.font.hidden = True
    document.add_paragraph("Kept.")
    document.add_paragraph("Secret.", style=style)
    shown = document.add_paragraph("", style=style).add_run("Shown.")
    shown.font.hidden = False
    made = word(document)
    assert (made.text, made.problems) == ("Kept.\n\nShown.", ["left out of the final view: hidden texts 1."])


def test_hidden_rows_go_and_a_deleted_end_before_a_table_loses_nothing() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Fees:")
    properties = paragraph._p.get_or_add_pPr()
    mark = OxmlElement("w:rPr")
    mark.append(OxmlElement("w:del"))
    properties.append(mark)
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(1, 0).text = "rent", "SECRET"
    row = OxmlElement("w:trPr")
    row.append(OxmlElement("w:hidden"))
    table.rows[1]._tr.insert(0, row)
    last = document.add_paragraph("The end")
    last._p.get_or_add_pPr().append(OxmlElement("w:rPr"))
    last._p.pPr[-1].append(OxmlElement("w:del"))
    made = word(document)
    assert made.text == "Fees:\n\n| rent |  |\n| --- | --- |\n\nThe end"
    assert made.problems == ["left out of the final view: hidden texts 1."]


def test_slides_of_images_are_named_and_have_no_heading() -> None:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "Catch"
    deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    out = io.BytesIO()
    deck.save(out)
    made = readers.reader(media.PPTX)(out.getvalue())
    assert (made.text, made.metadata["pages_without_text"]) == ("## Catch", [2])
    assert made.problems == ["slide 2 of 2 holds images and no text."]


async def test_a_deck_of_images_is_not_stored(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    deck.save(str(tmp_path / "photos.pptx"))
    texts, report = await stored(tmp_path)
    assert (texts, problems(report)) == ({}, ["photos.pptx: holds no text on its 1 slides."])


async def test_a_sheet_with_a_cell_far_away_is_named_before_it_takes_the_memory(tmp_path: Path) -> None:
    book = Workbook()
    book.active["A1"], book.active["XFD1048576"] = "near", "far"
    book.save(tmp_path / "far.xlsx")
    texts, report = await stored(tmp_path)
    assert (texts, len(report.skipped)) == ({}, 1)
    assert "spans 1,048,576 rows and 16,384 columns" in problems(report)[0]


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("/Subtype/Widget/FT/Tx/T(tenant)/V(Anna Beispiel)", "tenant: Anna Beispiel"),
        ("/Subtype/Widget/FT/Btn/T(paid)/V/Off", ""),
        ("/Subtype/Widget/FT/Btn/T(paid)/V/Yes", "paid: Yes"),
        ("/Subtype/FreeText/Contents(Received in May)", "Received in May"),
        ("/Subtype/Text/Contents(a comment)", ""),
    ],
)
def test_what_people_filled_into_a_form_is_read(mark: str, text: str) -> None:
    stream = "BT /F 12 Tf 50 700 Td (Form) Tj ET"
    page = "/Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Annots[5 0 R]/Contents 4 0 R"
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        f"<<{page}/Resources<</Font<</F 6 0 R>>>>>>",
        f"<</Length {len(stream)}>>stream\n{stream}\nendstream",
        f"<</Type/Annot{mark}/Rect[0 0 100 20]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    start = len(out)
    out += "xref\n0 7\n0000000000 65535 f \n" + "".join(f"{place:010} 00000 n \n" for place in places)
    out += f"trailer<</Size 7/Root 1 0 R>>\nstartxref\n{start}\n%%EOF"
    made = readers.reader(media.PDF)(out.encode())
    assert made.text == "\n\n".join(filter(None, ("Form", text)))


# OpenDocument, books, RTF, subtitles, address cards


def opendocument(kind: str, body: str, styles: str = "") -> bytes:
    names = ("office", "text", "style", "table", "draw:drawing", "presentation")
    spaces = " ".join(
        f'xmlns:{name.partition(":")[0]}="urn:oasis:names:tc:opendocument:xmlns:{name.split(":")[-1]}:1.0"'
        for name in names
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        package.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>",
        )
    return out.getvalue()


def test_hidden_text_of_an_opendocument_text_is_left_out() -> None:
    styles = (
        '<style:style style:name="H"><style:text-properties text:display="none"/></style:style>'
        '<style:style style:name="S" style:parent-style-name="H"/>'
        '<style:style style:name="B"><style:text-properties/></style:style>'
    )
    body = (
        '<text:p text:style-name="S">secret</text:p><text:p text:style-name="B">Kept <text:span'
        ' text:style-name="H">secret</text:span>here.</text:p><text:section text:display="none">'
        "<text:p>secret</text:p></text:section><text:section><text:p>Kept too.</text:p></text:section>"
    )
    made = readers.reader(media.ODT)(opendocument("text", body, styles))
    assert made.text == "Kept here.\n\nKept too."
    assert made.problems == ["left out of the final view: hidden texts 3."]


def test_opendocument_slides_of_images_are_named() -> None:
    image = "<draw:frame><draw:image/></draw:frame>"
    text = "<draw:frame><draw:text-box><text:p>Eels</text:p></draw:text-box></draw:frame>"
    body = f"<draw:page>{image}</draw:page><draw:page>{text}</draw:page><draw:page>{image}</draw:page>"
    made = readers.reader(media.ODP)(opendocument("presentation", body))
    assert (made.text, made.problems) == ("## Slide 2\n\nEels", ["slides 1, 3 of 3 hold images and no text."])


def book(*encrypted: str) -> bytes:
    """A book of two chapters, and the parts of it that are encrypted."""
    container = "urn:oasis:names:tc:opendocument:xmlns:container"
    references = "".join(f'<x:CipherReference URI="{name}"/>' for name in encrypted)
    parts = {
        "META-INF/container.xml": f'<container xmlns="{container}"><rootfile full-path="b.opf"/></container>',
        "META-INF/encryption.xml": f'<e xmlns:x="http://www.w3.org/2001/04/xmlenc#">{references}</e>',
        "b.opf": '<package xmlns="http://www.idpf.org/2007/opf"><item id="1" href="1.html"/><item id="2"'
        ' href="2.html"/><spine><itemref idref="1"/><itemref idref="2"/></spine></package>',
        "1.html": "<p>Eels are long.</p>",
        "2.html": "<p>Eels are old.</p>",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name, text in parts.items():
            package.writestr(name, text)
    return out.getvalue()


def test_encrypted_chapters_are_left_out_and_encrypted_fonts_are_no_problem() -> None:
    read = readers.reader(media.EPUB)
    assert (read(book("font.otf")).text, read(book("font.otf")).problems) == (
        "Eels are long.\n\nEels are old.",
        [],
    )
    assert read(book("1.html")).text == "Eels are old."
    assert read(book("1.html")).problems == ["1 of 2 chapters are encrypted and were left out."]
    with pytest.raises(Unreadable, match="is encrypted"):
        read(book("1.html", "2.html"))


def test_hidden_and_deleted_text_of_rtf_is_left_out() -> None:
    source = rb"{\rtf1\ansi Kept {\fs20 \v secret}{\b\deleted gone}{\v0 shown}{\viewkind4 }.\par}"
    made = readers.reader(media.RTF)(source)
    assert (made.text, made.problems) == (
        "Kept shown.",
        ["left out of the final view: hidden texts and deletions 2."],
    )


def test_the_number_of_a_cue_without_a_blank_line_before_it_is_no_speech() -> None:
    cues = "1\n00:00:01,000 --> 00:00:02,000\nOne of\n2\n00:00:02,000 --> 00:00:03,000\n42\n\n"
    cues += "3\n00:00:03,000 --> 00:00:04,000\neels."
    assert readers.reader(media.SRT)(cues.encode()).text == "One of 42 eels."


def test_an_old_address_card_is_decoded() -> None:
    card = "BEGIN:VCARD\nVERSION:2.1\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;An=\nna\n"
    card += "NOTE;ENCODING=QUOTED-PRINTABLE:likes=20=\neels=\n and=0D=0Apike\nEND:VCARD\n"
    assert readers.reader(media.CARDS)(card.encode()).text == "## Anna Müller\n\nlikes eels and pike"
