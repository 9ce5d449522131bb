"""Tables as text: the separator and the header are found, and a mapping that matches nothing says what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter.builtin.shared.delimited import layout, rows
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.builtin.transforms.triples import Triples
from contextrouter.ingest import run
from contextrouter.model import Document
from contextrouter.router import ContextRouter

FIXTURES = Path(__file__).parent / "fixtures" / "documents"
LIVES = {"subject": "Name", "predicate": "lives in", "object": "City"}


async def facts(mapping: dict[str, str], text: str, **more: str) -> tuple[list[tuple[str, str]], list[str]]:
    document = Document(id="d", content=text, **{"media_type": "text/csv", **more})
    (made,) = await Triples(mapping=[mapping]).transform(document)
    found = [(fact.subject, fact.object) for fact in made.metadata["facts"]]
    return found, list(made.metadata.get("problems", ()))


@pytest.mark.case("NEW-07")
@pytest.mark.parametrize(
    ("text", "separator", "header"),
    [
        ("a,b\n1,2\n", ",", "a,b"),
        ("a;b\n1;2,5\n3;4,5\n", ";", "a;b"),
        ("a\tb\n1\t2\n", "\t", "a\tb"),
        ("a|b\n1|2\n", "|", "a|b"),
        ('a;b\n"x, y, z";"1\n2"\n', ";", "a;b"),
        ("sep=;\na;b\n1;2\n", ";", "a;b"),
        ("\ufeffsep=|\r\na|b\r\n", "|", "a|b"),
        ("\ufeffa;b\n1;2\n", ";", "a;b"),
        ("Report, of March\n\na;b;c\n1;2;3\n4;5;6\n", ";", "a;b;c"),
        ("only\none\ncolumn\n", ",", "only"),
        ("", ",", ""),
    ],
)
def test_the_separator_and_the_header_of_a_table_are_found(text: str, separator: str, header: str) -> None:
    made = layout(text, "text/csv")
    assert (made.separator, text[made.header :].partition("\n")[0].strip()) == (separator, header)


@given(st.text(alphabet='ab";,\t|\n\r\ufeff', max_size=60))
def test_any_text_has_a_layout_and_rows_that_lose_nothing(text: str) -> None:
    made = layout(text, "text/csv")
    parts = list(rows(text, made.separator, made.header))
    assert "".join(text[row.start : row.end] for row in parts) == text[made.header :]


@pytest.mark.case("NEW-07")
async def test_facts_are_read_with_the_separator_of_the_file() -> None:
    assert await facts(LIVES, (FIXTURES / "semi.csv").read_text("utf-8")) == (
        [("Anna Beispiel", "Köln"), ("Berta", "Bonn")],
        [],
    )
    found, problems = await facts(LIVES, (FIXTURES / "sep.csv").read_text("utf-8"))
    assert found == []
    assert problems == [
        "mapping 1 matches no record: 'Name' and 'City' are not there. The columns are id, colour."
    ]


@pytest.mark.case("NEW-07")
def test_a_declared_separator_and_a_title_stand_above_the_first_piece_only() -> None:
    for name, first in (("sep.csv", "sep=;"), ("pre.csv", "Report generated 2026-03-01")):
        text = (FIXTURES / name).read_text("utf-8") + "3;a,b\n" * 19
        document = Document(id="d", content=text, media_type="text/csv")
        chunks = Chunk(target=20, maximum=24, overlap=0).cut(document)
        assert len(chunks) > 2
        assert [first in chunk.content for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
        assert all("colour" in chunk.content for chunk in chunks[1:])


@pytest.mark.case("USE-06")
async def test_a_column_that_is_not_there_is_a_problem_that_names_those_there_are() -> None:
    text = "Name,D.O.B,City\n" + "Ada,1815,London\nAlan,1912,London\n"
    assert (await facts({**LIVES, "object": "Citty"}, text))[1] == [
        "mapping 1 matches no record: 'Citty' is not there. The columns are Name, D.O.B, City."
    ]
    for key in ("D.O.B", '"D.O.B"'):
        assert await facts({**LIVES, "object": key}, text) == ([("Ada", "1815"), ("Alan", "1912")], [])
    document = Document(id="d", content=text + "Grace,1906,New York\n" * 20, media_type="text/csv")
    chunks = Chunk(target=40, maximum=60, overlap=0).cut(document)
    assert len(chunks) > 2
    made = [await Triples(mapping=[{**LIVES, "object": "Citty"}]).transform(chunk) for chunk in chunks]
    assert [len(chunk.metadata.get("problems", ())) for (chunk,) in made] == [1] + [0] * (len(chunks) - 1)


@pytest.mark.case("USE-06")
async def test_names_with_dots_are_quoted_inside_objects() -> None:
    text = '[{"who": {"D.O.B": 1815, "name": "Ada"}}, {"who": {"name": "Alan"}}]'
    rule = {"subject": "who.name", "predicate": "born", "object": 'who."D.O.B"'}
    assert await facts(rule, text, media_type="application/json") == ([("Ada", "1815")], [])
    assert await facts({**rule, "object": "who.born"}, text, media_type="application/json") == (
        [],
        ["mapping 1 matches no record: no record has both. The keys are who."],
    )


@pytest.mark.case("USE-20")
async def test_a_table_is_cut_also_by_a_job_that_cuts_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    text = "name,height\n" + "".join(f"player {n},{n}\n" for n in range(736))
    (tmp_path / "in" / "players.csv").write_text(text)
    (tmp_path / "in" / "notes.md").write_text("# Notes\n\n" + "All about players. " * 900)
    (tmp_path / "s.toml").write_text(
        "[rag]\nmerge_neighbours = false\n"
        '[providers.store]\nuse = "memory"\n[ingest.all]\nfrom = "in"\nto = "store"\n'
        'transforms = ["facts"]\n[transforms.facts]\nuse = "triples"\n'
        'mapping = [{ subject = "name", predicate = "is tall", object = "height" }]\n'
    )
    async with ContextRouter.from_toml(tmp_path / "s.toml") as router:
        report = (await run(router))["all"]
        assert report.facts == 736
        context = await router.route("player 731")
    tops = [envelope.document for envelope in context.envelopes]
    assert "player 731,731" in tops[0].content
    assert tops[0].content.startswith("name,height\n")
    assert len(tops[0].content) < 8_000
