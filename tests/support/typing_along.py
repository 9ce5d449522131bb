"""Types a tutorial along: saves its files, runs its commands, and compares what they print."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"`([\w./-]+)`:\s*\Z")


def words(text: str) -> str:
    """A text without what depends on the width of the terminal: rules, ends of lines, spaces."""
    return " ".join(re.sub(r"─+", "─", text).split())


class Typist:
    """Knows a page, an empty folder and the variables of an environment; nothing else."""

    def __init__(self, page: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self.page, self.folder, self.environment = page, folder, environment
        self.files: list[Path] = []
        self.commands: list[str] = []

    def run(self) -> None:
        """Type the whole page."""
        with self._processes() as processes:
            for language, text, before in self._blocks():
                name = FILE.search(before)
                if language == "console":
                    for command, expected in self._commands(text):
                        self._type(command, expected, processes)
                elif name is not None:
                    path = self.folder / name[1]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, "utf-8")
                    self.files.append(path)

    def _blocks(self) -> Iterator[tuple[str, str, str]]:
        text = self.page.read_text("utf-8")
        for match in FENCE.finditer(text):
            yield match[1], match[2], text[: match.start()]

    def _commands(self, text: str) -> Iterator[tuple[str, str]]:
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, _, expected = part.partition("\n")
            yield command, expected

    def _type(self, command: str, expected: str, processes: list[subprocess.Popen[str]]) -> None:
        self.commands.append(command)
        if command.startswith("cd "):
            self.folder = self.folder / command[3:]
            return
        printed = self.output(command, expected, processes)
        rest = words(printed)
        for passage in filter(str.strip, re.split(r"^…$", expected, flags=re.M)):
            at = rest.find(words(passage))
            assert at >= 0, f"$ {command}\n{passage}\n--- is not in\n{printed}"
            rest = rest[at + len(words(passage)) :]

    def output(self, command: str, expected: str, processes: list[subprocess.Popen[str]]) -> str:
        """Run a command and return what it prints; of one in the background, as many lines as are expected."""
        if command.endswith("&"):
            running = subprocess.Popen(
                shlex.split(command[:-1]),
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            processes.append(running)
            assert running.stdout is not None
            return "".join(running.stdout.readline() for _ in expected.splitlines())
        ran = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        printed = ran.stdout + ran.stderr
        assert ran.returncode == 0, f"$ {command}\n{printed}"
        return printed

    @contextmanager
    def _processes(self) -> Iterator[list[subprocess.Popen[str]]]:
        processes: list[subprocess.Popen[str]] = []
        try:
            yield processes
        finally:
            for process in processes:
                process.terminate()
                process.communicate(timeout=30)
