"""The preset `evidence`: how documents of each type are cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.presets import system

from contextrouter import Document
from contextrouter.ingest import run
from contextrouter.text import tokens

ALL = "[rag]\nstages = []\ncandidates = 900\ngeneral_retrieval_final_count = 900\ntoken_budget = 0\n"


async def chunks(folder: Path, name: str, content: str | bytes, toml: str = "") -> list[Document]:
    """The pieces of one file, in their order."""
    for job in ("engineering", "people"):
        (folder / job).mkdir(parents=True, exist_ok=True)
    path = folder / "engineering" / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    async with system(folder, "evidence", ALL + toml, embedders={}) as router:
        reports = await run(router, ["engineering"])
        assert not reports["engineering"].skipped
        found = [envelope.document for envelope in (await router.route("What is it?")).envelopes]
    return sorted(found, key=lambda document: int(document.metadata.get("start", 0)))


def words(count: int, name: str = "word") -> str:
    return " ".join(f"{name}{n}" for n in range(count))


@pytest.mark.case("C27")
@pytest.mark.without(transforms__chunk__strategies={"text/markdown": "fixed"})
async def test_markdown_is_cut_at_its_first_three_headings_and_keeps_their_path(tmp_path: Path):
    text = "# One\n\nfirst text here\n\n## Two\n\nsecond text here\n\n### Three\n\nthird text\n\n#### Four\n\nfourth text\n"
    found = await chunks(tmp_path, "a.md", text)
    assert [document.path for document in found] == [("One",), ("One", "Two"), ("One", "Two", "Three")]
    assert "fourth text" in found[2].content


CODE = """import os
import sys


def first():
    return {0}


class Second:
    def method(self):
        return {0}
"""


@pytest.mark.case("C28")
@pytest.mark.without(transforms__chunk__strategies={"text/x-python": "fixed"})
async def test_code_is_cut_at_functions_and_classes_and_imports_stay_with_the_first(tmp_path: Path):
    body = "[" + ", ".join(f'"value {n}"' for n in range(90)) + "]"
    found = await chunks(tmp_path, "a.py", CODE.format(body))
    assert [document.path[-1] if document.path else "" for document in found][:2] == ["first", "Second"]
    assert "import os" in found[0].content
    assert "import" not in found[1].content


@pytest.mark.case("C29")
@pytest.mark.without(transforms__chunk__strategies={"text/markdown": "fixed"})
async def test_html_is_cut_at_its_headings(tmp_path: Path):
    page = (
        f"<html><head><title>Guide</title></head><body><main><h1>Guide</h1><p>{words(40)}.</p>"
        f"<h2>Setup</h2><p>{words(40, 'step')}.</p></main></body></html>"
    )
    found = await chunks(tmp_path, "a.html", page)
    assert [document.path[-1] for document in found] == ["Guide", "Setup"]
    assert all("<" not in document.content for document in found)


def pdf(*paragraphs: str) -> bytes:
    """A PDF of one page, a line for each paragraph, far apart."""
    lines = b"".join(
        b"1 0 0 1 40 %d Tm (%b) Tj\n" % (760 - 60 * n, text.encode()) for n, text in enumerate(paragraphs)
    )
    stream = b"BT /F1 9 Tf\n" + lines + b"ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 2000 800] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer << /Root 1 0 R /Size 6 >>\nstartxref\n%d\n%%%%EOF" % len(body)
    return body + b"xref\n0 6\n0000000000 65535 f \n" + table + end


@pytest.mark.case("C30")
@pytest.mark.without(transforms__chunk__target=512)
async def test_a_pdf_is_cut_between_paragraphs(tmp_path: Path):
    texts = [words(30, name) for name in ("alpha", "beta", "gamma")]
    toml = "[transforms.chunk]\ntarget = 100\noverlap = 0\n"
    found = await chunks(tmp_path, "a.pdf", pdf(*texts), toml)
    assert [document.content.split()[0] for document in found] == ["alpha0", "beta0", "gamma0"]
    assert [document.metadata["page"] for document in found] == [1, 1, 1]


@pytest.mark.case("C31")
@pytest.mark.without(transforms__chunk__overlap=0)
async def test_plain_text_is_cut_at_a_fixed_size_with_an_overlap(tmp_path: Path):
    found = await chunks(tmp_path, "a.txt", words(900))
    assert len(found) > 2
    assert all(tokens.count(document.content) <= 512 for document in found)
    ends, begins = found[0].content.split(), found[1].content.split()
    shared = ends[ends.index(begins[0]) :]
    assert begins[: len(shared)] == shared
    assert 40 <= tokens.count(" ".join(shared)) <= 50


@pytest.mark.case("C32")
@pytest.mark.without(transforms__chunk__strategies={"application/json": "fixed"})
async def test_each_record_of_a_json_list_is_a_piece(tmp_path: Path):
    records = [{"name": f"place {n}", "text": "tides rise and fall"} for n in range(3)]
    found = await chunks(tmp_path, "a.json", json.dumps(records))
    assert len(found) == 3
    assert [f'"place {n}"' in document.content for n, document in enumerate(found)] == [True] * 3


@pytest.mark.case("C33")
@pytest.mark.without(transforms__chunk__strategies={"text/csv": "fixed"})
async def test_a_table_stays_whole_where_it_fits_and_otherwise_repeats_its_header(tmp_path: Path):
    rows = [f"place {n},high water of the day,{n}" for n in range(200)]
    short = await chunks(tmp_path / "short", "a.csv", "\n".join(["name,text,number", *rows[:20]]))
    assert len(short) == 1
    long = await chunks(tmp_path / "long", "a.csv", "\n".join(["name,text,number", *rows]))
    assert len(long) > 1
    assert all(document.content.startswith("name,text,number") for document in long)


@pytest.mark.case("C34")
@pytest.mark.without(transforms__chunk__maximum=2048, transforms__chunk__target=1500)
async def test_pieces_have_512_tokens_and_never_more_than_1024(tmp_path: Path):
    chunk = system(tmp_path, "evidence").settings.transforms["chunk"].options
    found = await chunks(
        tmp_path, "a.md", "# Long\n\n" + " ".join(f"Sentence {n} ends." for n in range(1500))
    )
    sizes = [tokens.count(document.content) for document in found]
    assert max(sizes) <= 1024
    assert all(400 <= size <= 520 for size in sizes[:-1])
    assert chunk == {"target": 512, "maximum": 1024, "overlap": 50}
