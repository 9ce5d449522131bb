"""The shape of the code: small files, small functions, layers, and the field's own words."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("contextrouter", "plugins", "tests", "scripts", "bench")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHIPPED = [path for path in FILES if path.relative_to(ROOT).parts[0] in ("contextrouter", "plugins")]
MOST_LINES, MOST_IN_FUNCTION, MEDIAN_FUNCTION = 400, 50, 11
VAGUE = re.compile(r"(?i)(manager|handler|helper|utils?)(?![a-z])")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, Function):
            yield node


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_long_and_no_function_is(path: Path):
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES or path.parent.name == "tests"
    assert [
        f"{node.name}: {length(node)}" for node in functions(path) if length(node) > MOST_IN_FUNCTION
    ] == []


def test_half_of_the_functions_are_short():
    assert statistics.median(length(node) for path in SHIPPED for node in functions(path)) <= MEDIAN_FUNCTION


def test_everything_public_in_the_package_says_what_it_is():
    silent = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in SHIPPED
        for node in [
            *functions(path),
            *(n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ClassDef)),
        ]
        if path.parts[-2] not in ("settings",)
        and isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        if ast.get_docstring(node) is None
    ]
    assert silent == []


def test_names_are_the_fields_words():
    """A name that fits anything says nothing."""
    vague = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in SHIPPED
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, Function | ast.ClassDef) and VAGUE.search(node.name)
    ]
    assert vague == []
    assert [path.name for path in SHIPPED if VAGUE.search(path.stem)] == []


def test_nothing_is_pickled_and_nothing_starts_a_task_outside_the_router_s_own_files():
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in SHIPPED}
    assert [
        name
        for name, text in texts.items()
        if re.search(r"^\s*(import|from) (pickle|marshal|shelve)\b", text, re.M)
    ] == []
    assert [name for name, text in texts.items() if re.search(r"\basyncio\.gather\(", text)] == []


def test_layers_hold():
    """errors < model < contracts < settings, plugins < the steps < router < ingest < cli; built-ins know the
    contracts alone.
    """
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_only_the_command_line_imports_typer_and_rich():
    found = [
        path.relative_to(ROOT).as_posix()
        for path in SHIPPED
        if re.search(r"^\s*(import|from) (typer|rich)\b", path.read_text("utf-8"), re.M)
    ]
    assert found
    assert all(name.startswith("contextrouter/cli/") for name in found)
