"""The tutorials can be typed along, from an empty folder to an answer."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.example import ROOT, CommandLine
from support.typing_along import Typist

PLUGIN = ROOT / "docs" / "plugin-tutorial.md"
SOURCES = ROOT / "docs" / "tutorial.md"
PIP = "-m pip --quiet --disable-pip-version-check"
OFFLINE = "--no-index --no-deps --no-build-isolation --target"


def environment(folder: Path) -> dict[str, str]:
    """Variables with which `python`, `contextrouter` and `pip` are those of this test, without a network."""
    bin_, site = folder / "bin", folder / "site"
    bin_.mkdir()
    commands = {
        "python": f'exec {sys.executable} "$@"',
        "contextrouter": f'exec {sys.executable} -m contextrouter "$@"',
        "pip": f'shift; exec {sys.executable} {PIP} install {OFFLINE} {site} "$@"',
    }
    for name, text in commands.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin_ / name).chmod(0o755)
    path = os.pathsep.join([str(site), *filter(None, sys.path), str(ROOT)])
    variables = {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path, "COLUMNS": "200"}
    return {**os.environ, **variables}


def test_the_tutorial_can_be_typed_along_and_its_code_is_typed(tmp_path: Path):
    """From an empty folder. A connector, a stage and an interpreter keep their laws; the package is listed."""
    (tmp_path / "empty").mkdir()
    typist = Typist(PLUGIN, tmp_path / "empty", environment(tmp_path))
    typist.run()
    checks = [command for command in typist.commands if " plugins check " in command]
    assert len(checks) == 6
    assert len(typist.files) == 10
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-incremental"]
    ran = subprocess.run(
        [*command, "contextrouter_tickets", "ticket_server.py", "tests"],
        cwd=typist.folder,
        env={"PATH": "/usr/bin", "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


class TypistHere(Typist):
    """Runs commands of contextrouter in this process, which has loaded what they need."""

    cli: CommandLine

    def output(self, command: str, expected: str, processes: list[subprocess.Popen[str]]) -> str:
        name, *arguments = shlex.split(command)
        if name != "contextrouter":
            return super().output(command, expected, processes)
        ran = self.cli(*arguments, cwd=self.folder)
        assert ran.code == 0, f"$ {command}\n{ran.out}{ran.err}"
        return ran.out + ran.err


def test_the_tutorial_of_four_sources_can_be_typed_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Documents, a feed, a site and a table: each is in an answer, and one that fails is missed alone."""
    (tmp_path / "empty").mkdir()
    typist = TypistHere(SOURCES, tmp_path / "empty", environment(tmp_path))
    typist.cli = CommandLine(monkeypatch, capsys)
    typist.run()
    asked = [command for command in typist.commands if " ask " in command or " route " in command]
    assert len(asked) == 6
    assert len(typist.files) == 9
