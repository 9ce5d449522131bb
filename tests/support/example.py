"""The shipped example in a folder of its own, and the command line in this process."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from contextrouter.cli import leaving, main, terminal
from contextrouter.cli.demo import PARTS
from contextrouter.ingest import run

ROOT = Path(__file__).parents[2]
QUESTION = "What books talk about machine learning for beginners?"


def copy_example(folder: Path) -> Path:
    """Copy what the demo copies into `folder`, as a user has them beside each other."""
    for part in PARTS:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part)
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


async def ingest_example(folder: Path) -> Path:
    """Copy the example and ingest it."""
    await run(copy_example(folder) / "settings.toml")
    return folder


class CommandResult(NamedTuple):
    """The exit code of a command and what it wrote."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs commands in this process, in a folder, and says what they wrote where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(leaving, "own_process", lambda: None)  # this process goes on after a command

    def __call__(self, *arguments: str, cwd: Path | None = None) -> CommandResult:
        if cwd is not None:
            self.monkeypatch.chdir(cwd)
        self.monkeypatch.setattr(sys, "argv", ["contextrouter", *arguments])
        self.monkeypatch.setattr(terminal, "hidden", [])  # the secrets of this command alone
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        written = self.capsys.readouterr()
        return CommandResult(int(ended.value.code or 0), written.out, written.err)
