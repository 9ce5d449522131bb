"""How each kind of text is cut: code at functions, data at records, tables by rows with their header; the
laws hold for all.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextrouter.builtin.transforms.chunking.strategies import BY_MEDIA_TYPE, STRATEGIES, Chunk
from contextrouter.model import Document
from contextrouter.text import tokens

MEDIA_TYPES = sorted({*BY_MEDIA_TYPE, "text/plain", "text/tab-separated-values"})


def cut(text: str, media_type: str, **options: object) -> list[Document]:
    """The chunks of `text`."""
    return Chunk(**options).cut(Document(id="d", content=text, media_type=media_type))  # type: ignore[arg-type]  # keywords of many types


def check_laws(text: str, chunks: list[Document], maximum: int, between: str = "") -> None:
    """Slices with their repeated header, not blank, not too long, ids distinct; nothing lost but blank space
    and `between`.
    """
    covered = 0
    for chunk in chunks:
        start, end, header = (chunk.metadata.get(name) for name in ("start", "end", "header"))
        assert chunk.content == (text[slice(*header)] if header else "") + text[start:end]
        assert chunk.content.strip()
        assert tokens.count(chunk.content) <= maximum
        assert not text[covered:start].strip().strip(between).strip()
        covered = max(covered, end)
    assert not text[covered:].strip().strip(between).strip()
    assert len({chunk.id for chunk in chunks}) == len(chunks)


PIECES = ["\n\n", "\r\n", "|", "| a | b |\n|---|---|\n", '"', *"{}[],", "def f():\n"]
FAR = ["e\u0301", "\U0001f468\u200d\U0001f467", "漢字。", "\ud800"]
ODD = st.sampled_from(PIECES + FAR)
TEXT = st.lists(st.one_of(ODD, st.text(max_size=20)), max_size=60).map("".join)


@settings(max_examples=150, deadline=None)
@given(TEXT, st.integers(4, 40), st.integers(0, 40), st.data(), st.sampled_from(MEDIA_TYPES))
def test_the_laws_hold_for_any_text_of_any_media_type(
    text: str, target: int, more: int, data: st.DataObject, kind: str
) -> None:
    overlap = data.draw(st.integers(0, target - 1))
    chunks = cut(text, kind, target=target, maximum=target + more, overlap=overlap)
    check_laws(text, chunks, target + more, "," if "json" in kind or "ndjson" in kind else "")


@settings(max_examples=100, deadline=None)
@given(TEXT, st.sampled_from(sorted(STRATEGIES)))
def test_each_strategy_is_a_transform_of_its_own_that_cuts_anything(text: str, name: str) -> None:
    chunker = STRATEGIES[name](target=8, maximum=16, overlap=2)
    check_laws(text, chunker.cut(Document(id="d", content=text)), 16, ",")


VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=12)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=6), inner, max_size=6)
    ),
    max_leaves=40,
)


@settings(max_examples=200, deadline=None)
@given(VALUE, st.booleans(), st.sampled_from([None, 2]), st.integers(4, 30))
def test_json_of_any_shape_is_cut_without_losing_a_value(
    value: object, ascii_only: bool, indent: int | None, target: int
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    check_laws(
        text, cut(text, "application/json", target=target, maximum=target * 2, overlap=0), target * 2, ","
    )


ROWS = st.lists(
    st.lists(st.text("ab \"',\n\r|ü。", max_size=8), min_size=2, max_size=3), min_size=1, max_size=30
)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.integers(6, 30))
def test_csv_with_quotes_and_line_ends_in_its_fields_is_cut_between_rows(
    rows: list[list[str]], target: int
) -> None:
    import csv
    import io

    out = io.StringIO()
    csv.writer(out).writerows(rows)
    check_laws(out.getvalue(), cut(out.getvalue(), "text/csv", target=target, maximum=60, overlap=0), 60)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_line_of_megabytes_is_no_obstacle_to_any_strategy(name: str) -> None:
    text = "lorem ipsum, " * 150_000
    chunks = STRATEGIES[name]().cut(
        Document(id="d", content=text, media_type="text/x-python" if name == "code" else "text/csv")
    )
    assert max(tokens.count(chunk.content) for chunk in chunks[::100]) <= 1024
    assert chunks[-1].content.endswith("ipsum,")


@pytest.mark.case("CHK-14")
def test_a_mark_of_several_bytes_is_one_character() -> None:
    text = "第一句话在这里。第二句话在这里。" * 20
    chunks = cut(text, "text/plain", target=16, maximum=24, overlap=0)
    check_laws(text, chunks, 24)
    assert all(chunk.content.endswith("。") for chunk in chunks)


# Tables


@pytest.mark.case("CHK-18")
def test_the_header_and_separator_stand_in_every_piece_of_a_table() -> None:
    head = "| port | metres |\n|---|---|\n"
    text = "# Tides\n\n" + head + "".join(f"| port{n} | {n} |\n" for n in range(40))
    chunks = cut(text, "text/markdown", target=60, maximum=80, overlap=0)
    assert len(chunks) > 3
    assert all(head in chunk.content for chunk in chunks)
    assert chunks[1].metadata["header"] == [text.index(head), text.index(head) + len(head)]
    assert [chunk.path for chunk in chunks] == [("Tides",)] * len(chunks)
    check_laws(text, chunks, 80)


@pytest.mark.case("CHK-18")
def test_a_table_of_two_rows_and_columns_stays_with_its_header() -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n"
    assert [chunk.content for chunk in cut(text, "text/markdown")] == [text.strip()]


@pytest.mark.case("C33")
def test_a_table_is_whole_when_it_fits_though_its_section_does_not() -> None:
    table = "| a | b |\n|---|---|\n" + "| x | y |\n" * 6
    text = "# A\n\n" + "Some words here. " * 20 + "\n\n" + table + "\n" + "More words follow. " * 20
    chunks = cut(text, "text/markdown", target=40, maximum=60, overlap=0)
    assert sum(table.strip() in chunk.content for chunk in chunks) == 1
    check_laws(text, chunks, 60)


def test_a_header_that_takes_half_of_the_chunk_is_not_repeated() -> None:
    text = (
        "| "
        + " | ".join(["column"] * 20)
        + " |\n|"
        + "---|" * 20
        + "\n"
        + ("| " + " | ".join("x" * 20) + " |\n") * 5
    )
    chunks = cut(text, "text/markdown", target=60, maximum=70, overlap=0)
    assert all("header" not in chunk.metadata for chunk in chunks)
    check_laws(text, chunks, 70)


def test_csv_has_its_first_row_above_each_piece_and_no_row_is_parted() -> None:
    text = "name;note\n" + "".join(f'"n{i}";"two\nlines"\n' for i in range(30))
    chunks = cut(text, "text/csv", target=40, maximum=60, overlap=0)
    assert len(chunks) > 3
    assert all(chunk.content.startswith("name;note\n") for chunk in chunks)
    assert all(chunk.content.count('"') % 4 == 0 for chunk in chunks)
    check_laws(text, chunks, 60)


# Records


@pytest.mark.case("CHK-19")
def test_every_leaf_is_in_exactly_one_chunk_also_an_empty_object_at_the_limit() -> None:
    for size in range(1, 30):
        data = {"a": "w " * size, "k": {}, "b": {"c": "v " * size, "e": [], "f": {"g": {}}}, "z": 1}
        text = json.dumps(data)
        chunks = cut(text, "application/json", target=10, maximum=20, overlap=0)
        check_laws(text, chunks, 20, ",")
        whole = "".join(chunk.content for chunk in chunks)
        assert [whole.count(leaf) for leaf in ('"k": {}', '"e": []', '"g": {}', '"z": 1')] == [1, 1, 1, 1], (
            size
        )


@pytest.mark.case("CHK-20")
def test_the_items_of_a_list_at_the_top_are_records() -> None:
    assert [chunk.content.strip("[]") for chunk in cut("[1, 2, 3]", "application/json")] == ["1", "2", "3"]
    chunks = cut('[{"title": "A", "x": 1}, {"x": 2}]', "application/json")
    assert [(chunk.title, chunk.content) for chunk in chunks] == [
        ("A", '[{"title": "A", "x": 1}'),
        ("", '{"x": 2}]'),
    ]
    assert cut("[]", "application/json")[0].content == "[]"


@pytest.mark.case("C32")
def test_an_object_is_whole_or_cut_into_its_members_whose_keys_are_the_path() -> None:
    assert [chunk.content for chunk in cut('{"a": {"b": 1}, "c": 2}', "application/json")] == [
        '{"a": {"b": 1}, "c": 2}'
    ]
    text = json.dumps({"first": {"t": "one two three four"}, "second": {"u": "five six seven eight"}})
    chunks = cut(text, "application/json", target=12, maximum=24, overlap=0)
    assert [chunk.path for chunk in chunks] == [("first",), ("second",)]


def test_each_line_of_json_lines_is_a_record_and_a_bad_one_is_reported() -> None:
    chunks = cut('\ufeff{"a": 1}\r\n\r\nno json\n{"title": "T"}', "application/jsonl")
    contents = [(chunk.title, chunk.content.strip("\ufeff")) for chunk in chunks]
    assert contents == [("", '{"a": 1}'), ("", "no json"), ("T", '{"title": "T"}')]
    assert chunks[0].metadata["problems"][0].startswith("line 3 is not JSON")


@pytest.mark.parametrize(
    "text", ["{broken", "[1, 2] more", "[" * 100_000, '{"a": ' * 5_000], ids=["cut", "more", "deep", "keys"]
)
def test_what_is_no_json_is_cut_as_text_and_reported(text: str) -> None:
    chunks = cut(text, "application/json")
    assert "is not JSON" in chunks[0].metadata["problems"][0]
    check_laws(text, chunks, 1024)


# Code

PYTHON = '''"""About ports."""
import os
from sys import path

LIMIT = 3


# How high the water is.
@cached
def height(port):
    return port.metres


class Port:
    """A port."""

    def __init__(self, name):
        self.name = name

    def rise(self):
        return self.name + "rises"
'''


@pytest.mark.case("C28")
def test_code_is_cut_at_functions_and_classes_and_imports_stay_with_the_first() -> None:
    chunks = cut(PYTHON, "text/x-python")
    assert [chunk.path for chunk in chunks] == [("height",), ("Port",)]
    assert chunks[0].content.startswith('"""About ports."""\nimport os')
    assert "# How high" in chunks[0].content
    check_laws(PYTHON, chunks, 1024)


@pytest.mark.case("C28")
def test_a_class_that_is_too_long_is_cut_at_its_methods() -> None:
    chunks = cut(PYTHON, "text/x-python", target=25, maximum=60, overlap=0)
    assert [chunk.path for chunk in chunks] == [
        (),
        ("height",),
        ("Port",),
        ("Port", "__init__"),
        ("Port", "rise"),
    ]
    check_laws(PYTHON, chunks, 60)


@pytest.mark.case("C28")
def test_a_long_body_is_cut_between_statements() -> None:
    text = "def long():\n" + "".join(f"    value_{n} = compute({n}, 'text')\n" for n in range(60))
    chunks = cut(text, "text/x-python", target=60, maximum=80, overlap=0)
    assert len(chunks) > 5
    assert all(chunk.path == ("long",) and chunk.content.endswith(")") for chunk in chunks)
    check_laws(text, chunks, 80)


@pytest.mark.parametrize(
    ("media_type", "text", "paths"),
    [
        (
            "text/javascript",
            "import x from 'x'\nexport function a() { return 1 }\nclass B { c() { return 2 } }",
            ["a", "B"],
        ),
        (
            "text/x-typescript",
            "interface A { x: 1 }\nexport class B<T> { y: T }\nnamespace N { const z = 1 }",
            ["A", "B", "N"],
        ),
        ("text/x-tsx", "export function View() { return <p>hi</p> }\ntype P = { a: 1 }", ["View", "P"]),
        (
            "text/x-go",
            'package m\n\nimport "fmt"\nfunc A() { fmt.P() }\nfunc (p *P) B() {}\ntype P struct{}',
            ["A", "B", ""],
        ),
        (
            "text/x-rust",
            "use std::fmt;\nfn a() {}\n#[derive(Debug)]\nstruct B {}\nimpl B { fn c(&self) {} }",
            ["a", "B", "B"],
        ),
        ("text/x-java", "import java.util.*;\npublic class A { void b() {} }\ninterface C {}", ["A", "C"]),
        ("text/x-c", "#include <stdio.h>\nint *a(void) { return 0; }\nstruct b { int x; };", ["a", "b"]),
        (
            "text/x-c++",
            "namespace n { class A { void b(); }; }\ntemplate <class T> T c(T x) { return x; }",
            ["n", "c"],
        ),
    ],
)
@pytest.mark.case("C28")
def test_every_language_is_cut_at_its_definitions(media_type: str, text: str, paths: list[str]) -> None:
    chunks = cut(text, media_type)
    assert [" ".join(chunk.path) for chunk in chunks] == paths
    check_laws(text, chunks, 1024)


def test_code_that_is_one_expression_is_cut_inside_it() -> None:
    body = "".join(f"  function f{n}(a) {{ return a + {n}; }}\n" for n in range(30))
    chunks = cut(f"(function () {{\n{body}}})();", "text/javascript", target=40, maximum=60, overlap=0)
    assert {chunk.path for chunk in chunks} >= {("f1",), ("f28",)}


def test_names_that_are_not_ascii_are_read_where_they_stand() -> None:
    text = "# Прилив 🌊\ndef прилив():\n    return '🌊'\n\ndef отлив():\n    pass\n"
    assert [chunk.path for chunk in cut(text, "text/x-python")] == [("прилив",), ("отлив",)]


def test_a_language_that_is_not_known_is_cut_by_length() -> None:
    chunks = STRATEGIES["code"]().cut(Document(id="d", content="10 PRINT 1", media_type="text/x-basic"))
    assert [chunk.content for chunk in chunks] == ["10 PRINT 1"]


# Paragraphs, and the choice


def test_paragraphs_stay_whole_and_the_last_short_one_is_repeated() -> None:
    text = "one two three four five six\n\nseven eight\n\nnine ten eleven twelve thirteen fourteen"
    chunks = cut(text, "text/x-rst", target=9, maximum=12, overlap=3)
    assert [chunk.content for chunk in chunks] == [
        "one two three four five six\n\nseven eight",
        "seven eight\n\nnine ten eleven twelve thirteen fourteen",
    ]


def test_another_strategy_can_be_chosen_and_a_default() -> None:
    text = "| a |\n|---|\n" + "| word |\n" * 30
    by_default = cut(text, "text/markdown", target=20, maximum=40, overlap=0)
    by_length = cut(
        text,
        "Text/Markdown; charset=utf-8",
        target=20,
        maximum=40,
        overlap=0,
        strategies={"text/markdown": "fixed"},
    )
    assert "header" in by_default[1].metadata
    assert "header" not in by_length[1].metadata
    by_rows = cut("a,b\n" + "1,2\n" * 30, "x/y", target=20, maximum=40, overlap=0, strategies={"*": "tables"})
    assert by_rows[1].content.startswith("a,b\n")
    with pytest.raises(ValueError, match="'sentences'"):
        Chunk(strategies={"text/plain": "sentences"})


def test_an_edit_elsewhere_leaves_the_ids_of_chunks() -> None:
    before = cut("# A\none\n# B\ntwo\n# C\nthree", "text/markdown")
    after = cut("# A\none, edited\n# B\ntwo\n# C\nthree", "text/markdown")
    assert [a.id == b.id for a, b in zip(before, after, strict=True)] == [False, True, True]
