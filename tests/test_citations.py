"""Citation markers in an answer as it is written."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from contextrouter.answering.citation_markers import Markers


def shown(text: str, count: int = 3, pieces: list[int] | None = None) -> tuple[str, tuple[int, ...]]:
    markers = Markers(count)
    out, at = "", 0
    for length in pieces or []:
        out += markers.feed(text[at : at + length])
        at += length
    out += markers.feed(text[at:]) + markers.end()
    return out, markers.used


CASES = [
    ("Yes [1].", "Yes [1].", (1,)),
    ("Yes [1][2].", "Yes [1][2].", (1, 2)),
    ("Yes [1, 2].", "Yes [1][2].", (1, 2)),
    ("Yes [ 2 ; 1 ].", "Yes [2][1].", (2, 1)),
    ("Yes [1-3].", "Yes [1][2][3].", (1, 2, 3)),
    ("Yes [1–2, 3].", "Yes [1][2][3].", (1, 2, 3)),
    ("Yes [1, 1].", "Yes [1].", (1,)),
    ("Yes [4].", "Yes.", ()),
    ("Yes [0] and [00].", "Yes and.", ()),
    ("Yes [2, 9].", "Yes [2].", (2,)),
    ("Yes [2-99999999].", "Yes [2][3].", (2, 3)),
    ("Yes [3-1].", "Yes.", ()),
    ("Yes [1000000000000].", "Yes.", ()),
    (
        "See [here](https://example.org) and [^1] and [x1].",
        "See [here](https://example.org) and [^1] and [x1].",
        (),
    ),
    (r"A \[9\] and \\[9] b", r"A \[9\] and \\ b", ()),
    ("open [1", "open [1", ()),
    ("open [1, ", "open [1, ", ()),
    ("[[1]]", "[[1]]", (1,)),
    ("tail \t ", "tail \t ", ()),
]


@pytest.mark.parametrize(("text", "out", "used"), CASES, ids=[text for text, _, _ in CASES])
def test_markers_are_understood_checked_and_written_alike(text: str, out: str, used: tuple[int, ...]):
    assert shown(text) == (out, used)


@pytest.mark.case("CIT-03")
def test_a_marker_is_held_back_until_it_is_complete_and_consecutive_ones_are_split():
    markers = Markers(2)
    assert [markers.feed(piece) for piece in ("So", " [1", "][", "2", "]", ".")] == [
        "So",
        "",
        " [1]",
        "",
        "",
        "[2].",
    ]
    assert markers.end() == ""
    assert markers.used == (1, 2)


@pytest.mark.parametrize(
    "code",
    [
        "`arr[9]`",
        "``a ` [9]``",
        "```\narr[9]\n```",
        "~~~python\narr[9]\n~~~",
        "  ```\n``\n[9]\n  ````",
        "```\nnever closed [9]\n\n[9]",
    ],
)
@pytest.mark.case("CIT-06")
def test_code_spans_and_fences_are_left_alone(code: str):
    assert shown(code) == (code, ())
    assert shown(f"Before [9] [1]\n{code}") == (f"Before [1]\n{code}", (1,))


def test_code_ends_where_it_ends():
    assert shown("`a[9]` then [9] [2]") == ("`a[9]` then [2]", (2,))
    assert shown("```\na[9]\n```\nthen [9] [2]") == ("```\na[9]\n```\nthen [2]", (2,))
    assert shown("a lone ` tick [9]\n\nthen [9] [2]") == ("a lone ` tick\n\nthen [2]", (2,))


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("**fact [1]**", "**fact [1]**"),
        ("*[9]* [2](x)", "** [2]"),
        ("[text [1]](u)", "text [1]"),
        ("- [1]\n- [9]", "- [1]\n- "),
    ],
)
@pytest.mark.case("CIT-09")
def test_markers_inside_inline_markup_are_found(text: str, out: str):
    assert shown(text)[0] == out


@given(
    text=st.text(alphabet="[]0123, -–`~\n\\ab", max_size=60),
    pieces=st.lists(st.integers(1, 5), max_size=40),
    count=st.integers(0, 3),
)
def test_however_the_text_is_cut_the_same_comes_out(text: str, pieces: list[int], count: int):
    assert shown(text, count, pieces) == shown(text, count)


@given(text=st.text(alphabet="[]0123456789, -–ab\n", max_size=80), count=st.integers(0, 5))
def test_no_number_is_used_that_the_context_does_not_have(text: str, count: int):
    out, used = shown(text, count)
    assert all(1 <= number <= count for number in used)
    assert shown(out, count)[0] == out  # what is checked stays as it is


def test_a_long_run_of_brackets_takes_time_in_proportion():
    text = "[1, " * 50_000
    assert len(shown(text)[0]) == len(text)


@pytest.mark.parametrize(
    ("text", "out", "used"),
    [
        ("Use ` as quote.\n- item [9]\n- item [1]", "Use ` as quote.\n- item\n- item [1]", (1,)),
        ("As [1](http://evil/) says.", "As [1] says.", (1,)),
        ("As [1](http://evil/ 'title')[2].", "As [1][2].", (1, 2)),
        ("As [9](http://evil/) says.", "As says.", ()),
        ("As [[1]](http://evil/) says.", "As [1] says.", (1,)),
        ("As [**so** [1]](http://evil/) says.", "As **so** [1] says.", (1,)),
        ("[1]: http://evil", "[1]\\: http://evil", (1,)),
        ("[9][1]: http://evil", "[1]\\: http://evil", (1,)),
        ("[\n1\n]: http://evil", "[1]\\: http://evil", (1,)),
        ("So [1].\n\n> [ 1 ]: http://evil", "So [1].\n\n> [1]\\: http://evil", (1,)),
        ("So [1][evil].\n\n[evil]: http://evil", "So [1] [evil].\n\n[evil]: http://evil", (1,)),
        ("[1](javascript:alert)", "[1]", (1,)),
        ("[1](see above)", "[1](see above)", (1,)),
        ("[1] [9](x)(http://evil)", "[1] (http://evil)", (1,)),
        ("[[9]1]", "[1]", (1,)),
        ("[9]>[1]: http://evil", ">[1]\\: http://evil", (1,)),
        ("[>[9][1]: http://evil](x)", ">[1]\\: http://evil", (1,)),
        ("[1](http://evil)[9](x)(http://evil)", "[1] (http://evil)", (1,)),
        ("[1](http://evil)[9](x)[8](y)[evil]", "[1] [evil]", (1,)),
        ("    code [9]\n\ntext [9]", "    code [9]\n\ntext", ()),
        ("- a\n\n      code [9]\n  b [9]", "- a\n\n      code [9]\n  b", ()),
        ("<b title='[9]'>x</b>", "<b title=''>x</b>", ()),
        ("<http://example.org/[9]> [9]", "<http://example.org/[9]>", ()),
        ("![9](u)", "![9](u)", ()),
    ],
)
@pytest.mark.case("CIT-02")
def test_a_stray_backtick_is_no_code_and_a_citation_leads_to_no_other_place(
    text: str, out: str, used: tuple[int, ...]
):
    assert shown(text) == (out, used)
    assert shown(text, 3, [1] * len(text)) == (out, used)


INLINE = (
    "plain words", "**bold [1]**", "*[2]*", "`code [9]`", "``a ` [9]``", "a ` tick", "[1](http://evil)", "[2, 9]",
    "[text [3]](u)", "[1][2]", "[9]", "[1", "](x)", "<http://x/[9]>", "[1]: http://evil", "\\[9\\]", "~~[3]~~", "![1](u)",
    "[[2]](u)", "(see [1-3])", "[1](a b)", "`` [9] `", "[x][1]", "[1](\n\"t\")", "\\`[1]",
)  # fmt: skip
BLOCKS = (
    "{}", "# {}", "- {}", "- {}\n  - {}", "1. {}\n\n   {}", "> {}\n> {}", "> - {}\n>   {}", "```\n{}\n```", "~~~py\n{}\n~~~",
    "    {}", "- {}\n\n      {}\n\n  {}", "{}\n===", "| a | b |\n|---|---|\n| {} | {} |", "***", "{}\n{}", "> ```\n> {}\n> ```\n{}",
    "* {}\n```\n{}", "1) {}\n2) {}",
)  # fmt: skip


def nested_answer(random: Random) -> str:
    """An answer of blocks in blocks, with markers, links and code in each."""

    def inline() -> str:
        return random.choice((" ", "", " and ")).join(random.choices(INLINE, k=random.randint(1, 4)))

    def block() -> str:
        template = random.choice(BLOCKS)
        return "".join(
            part + (inline() if at else "")
            for at, part in zip([*[1] * template.count("{}"), 0], template.split("{}"), strict=True)
        )

    return random.choice(("\n", "\n\n", "\r\n")).join(block() for _ in range(random.randint(1, 6)))


@pytest.mark.case("CIT-03", "CIT-02")
def test_a_streamed_answer_is_the_whole_one_over_300_answers_of_nested_markdown():
    """And each is checked: nothing of it is cited that the context does not have, and nothing leads away."""
    parser = MarkdownIt("commonmark")
    for seed in range(300):
        random = Random(seed)
        text = nested_answer(random)
        whole = shown(text)
        for _ in range(3):
            pieces = [random.randint(1, random.choice((2, 6, 20))) for _ in range(len(text))]
            assert shown(text, 3, pieces) == whole, (seed, text)
        links = [
            child
            for token in parser.parse(whole[0])
            for child in token.children or ()
            if child.type == "link_open"
        ]
        children = [list(token.children or ()) for token in parser.parse(whole[0])]
        texts = [
            row[at + 1].content
            for row in children
            for at, child in enumerate(row)
            if child.type == "link_open"
        ]
        assert len(texts) == len(links)
        assert not [text for text in texts if re.fullmatch(r"[\d\s,;–-]+", text)], (seed, text)
        assert all(1 <= number <= 3 for number in whole[1])
