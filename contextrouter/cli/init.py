"""`contextrouter init`: writes a starter folder with settings and documents that works at once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from contextrouter.cli import terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.errors import SettingsError
from contextrouter.settings.presets import preset_examples, preset_text

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="Where to write; made if it is not there.", show_default=False)
]
PresetName = Annotated[
    str,
    typer.Option(
        "--preset", metavar="NAME", help="Begin with a preset: evidence, memory, multisource, packs or tutor."
    ),
]
QUESTION = "How do I take care of a sourdough starter?"


@command
def init(folder: Folder = ".", preset: PresetName = "") -> int:
    """Write a commented settings.toml and a small folder of documents. Nothing is ever overwritten."""
    into = Path(folder)
    if preset:
        question = _copy_preset(preset, into)
        terminal.say(("Written: ", "green"), f"{into / 'settings.toml'}, {into / 'README.md'} and examples")
    else:
        question = QUESTION
        copy(files("contextrouter.cli") / "starter", into)
        terminal.say(("Written: ", "green"), f"{into / 'settings.toml'} and {into / 'documents'}")
    terminal.say(("Next:", "bold"))
    change_folder = "" if folder == "." else f"cd {shlex.quote(folder)} && "
    terminal.say(f"{change_folder}contextrouter ingest", indent=2)
    terminal.say(f'contextrouter {"ask" if preset else "route"} "{question}"', indent=2)
    return OK


def _copy_preset(name: str, into: Path) -> str:
    """Write the settings and the examples of a preset. Return the first question of its README. Raises
    SettingsError for a name that no preset has.
    """
    text, examples = preset_text(name), preset_examples(name)
    contents = {path: file.read_bytes() for path, file in _files(examples, into)}
    write_files({into / "settings.toml": text.encode(), **contents}, into)
    question = re.search(r"^- (.+)$", (examples / "README.md").read_text("utf-8"), re.MULTILINE)
    return question[1] if question else ""


def copy(source: Traversable, into: Path) -> None:
    """Copy the files of a folder. Raises SettingsError when one cannot be written or exists already."""
    write_files({path: file.read_bytes() for path, file in _files(source, into)}, into)


def write_files(contents: Mapping[Path, bytes], into: Path) -> None:
    """Write files into a folder. Raises SettingsError when one cannot be written or exists already. When
    one exists, nothing is written.
    """
    for path in contents:
        if path.exists() or path.is_symlink():
            raise SettingsError(
                f"File {str(path)!r} exists and is not overwritten; name another folder, or remove it."
            )
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as output:
                output.write(content)
    except (FileExistsError, NotADirectoryError):
        file = next((parent for parent in path.parents if parent.is_file()), path)
        message = f"{str(file)!r} is a file, where a folder is needed; name another folder, or remove it."
        raise SettingsError(message) from None
    except OSError as error:
        raise SettingsError(f"{str(into)!r} cannot be written: {error.strerror or error}.") from None


def _files(source: Traversable, into: Path) -> list[tuple[Path, Traversable]]:
    pairs: list[tuple[Path, Traversable]] = []
    for item in sorted(source.iterdir(), key=lambda item: item.name):
        if item.name.startswith((".", "__")):
            continue
        pairs += _files(item, into / item.name) if item.is_dir() else [(into / item.name, item)]
    return pairs
