"""Takes every feature of the presets out in turn, and shows that its test fails without it.

A test of a preset names in its marker `without` what takes its feature out: settings, or a line of code and
what stands in its place. Exits 1 when a test passes all the same. Arguments: words of `pytest -k`.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "presets"


class Row(NamedTuple):
    """One test of a preset: the ids it covers, and what takes its feature out."""

    ids: tuple[str, ...]
    file: str
    test: str
    line: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def taken_out(self) -> str:
        if self.line:
            return f"{self.line[0]}: {self.line[1]!r} → {self.line[2]!r}"
        return ", ".join(f"{key.replace('__', '.')} = {value!r}" for key, value in self.settings.items())


def rows() -> list[Row]:
    """Return the tests of all presets that bear an id, in the order of their files."""
    found = []
    for path in sorted(TESTS.glob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                marks = {
                    ast.unparse(mark.func).removeprefix("pytest.mark."): mark
                    for mark in node.decorator_list
                    if isinstance(mark, ast.Call)
                }
                if "case" in marks:
                    found.append(_row(path, node.name, marks))
    return found


def _row(path: Path, name: str, marks: dict[str, ast.Call]) -> Row:
    ids = tuple(ast.literal_eval(argument) for argument in marks["case"].args)
    file = path.relative_to(ROOT).as_posix()
    without = marks.get("without")
    if without is None:
        return Row(ids, file, name, (), {})
    line = tuple(ast.literal_eval(argument) for argument in without.args)
    settings = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in without.keywords}
    return Row(ids, file, name, line, settings)


def run(tests: list[str], folder: Path, code: Path = ROOT, **environ: str) -> dict[str, str]:
    """Run tests with the package in `code`. Return their names with "red" or "green", or the wrong reason."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", *tests, "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment = {**os.environ, **environ, "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=code, env=environment, capture_output=True, check=False)
    results: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        name = str(case.get("name")).partition("[")[0]
        failure = case.find("failure")
        failed = failure if failure is not None else case.find("error")
        text = "" if failed is None else str(failed.get("message"))
        wrong = "SettingsError" in text or "PluginNotFound" in text
        result = "green" if failed is None else ("settings refused" if wrong else "red")
        results[name] = "red" if "red" in (result, results.get(name)) else result
    return results


def overlay(folder: Path, line: tuple[str, ...]) -> Path | None:
    """Copy package and tests, with one line changed. None: there is no such line."""
    code = folder / "code"
    for part in ("contextrouter", "tests"):
        shutil.copytree(ROOT / part, code / part, copy_function=os.link)
    for part in ("pyproject.toml", "settings.toml", "examples", "plugins"):
        (code / part).symlink_to(ROOT / part)
    file, old, new = line
    path = code / file
    text = path.read_text("utf-8")
    if old not in text:
        return None
    path.unlink()
    path.write_text(text.replace(old, new), "utf-8")
    return code


def main(words: list[str]) -> int:
    chosen = [
        row for row in rows() if not words or any(word in row.ids or word in row.file for word in words)
    ]
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        by_settings = [f"{row.file}::{row.test}" for row in chosen if row.settings]
        if by_settings:
            results |= run([*by_settings, "-n", "2"], Path(folder), TAKE_OUT="1")
    for row in [row for row in chosen if row.line]:
        with tempfile.TemporaryDirectory() as folder:
            code = overlay(Path(folder), row.line)
            ran = run([f"{row.file}::{row.test}", "-n", "0"], Path(folder), code) if code else {}
        results |= ran or {row.test: "no such line"}
    print("| id | test | taken out | result |\n|---|---|---|---|")
    for row in sorted(chosen):
        result = results.get(row.test, "nothing is taken out")
        print(f"| {', '.join(row.ids)} | {row.test} | {row.taken_out} | {result} |")
    wrong = [row.test for row in chosen if results.get(row.test) != "red"]
    print(f"\n{len(chosen) - len(wrong)} of {len(chosen)} are red without their feature.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
