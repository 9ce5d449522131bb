"""The list of cases in CASES.md agrees with the case markers of the tests."""

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


def test_every_marked_case_has_a_line_and_every_line_a_test() -> None:
    lines = LINE.findall(LISTED)
    assert len(lines) == sum(line.startswith("- ") for line in LISTED.splitlines()), "a line is malformed"
    assert sorted(lines) == sorted(marked_ids())


def test_no_name_of_a_test_begins_with_an_id() -> None:
    """The marker `case` carries the id."""
    names = [
        f"{path.name}::{node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ID.match(node.name)
    ]
    assert names == []
