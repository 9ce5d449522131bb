"""Test names are short and free of ids, and the case markers agree with the list in CASES.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
LINE = re.compile(r"^- ([A-Z]+-?\d\d): [A-Z\"`#0-9].*\.$", re.MULTILINE)
ID = re.compile(r"test_(?:[rckmtb]\d\d|[a-z]{2,3}_\d\d)(?:_|$)")
TREES = {path: ast.parse(path.read_text()) for path in sorted(TESTS.rglob("test_*.py"))}
LISTED = (TESTS / "CASES.md").read_text()


def marked_ids() -> set[str]:
    """Every argument of every `case` marker."""
    return {
        str(ast.literal_eval(argument))
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case"
        for argument in node.args
    }


def names() -> list[str]:
    """Every test function, methods of classes as well."""
    return [
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def test_every_marked_case_has_a_line_and_every_line_a_test() -> None:
    lines = LINE.findall(LISTED)
    assert len(lines) == sum(line.startswith("- ") for line in LISTED.splitlines()), "a line is malformed"
    assert sorted(lines) == sorted(marked_ids())


def test_no_name_of_a_test_begins_with_an_id() -> None:
    """The marker `case` carries the id."""
    assert [name for name in names() if ID.match(name)] == []


def test_names_of_tests_are_short() -> None:
    """Words that do not fit go into the docstring."""
    long = [name for name in names() if len(name) > 100 or name.count("_") > 14]
    assert long == []
