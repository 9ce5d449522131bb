"""`contextrouter demo`: the shipped example, from nothing to an explained answer, offline."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from contextrouter.cli import ingest as ingesting
from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import INGESTION, NOTHING, OK, command
from contextrouter.cli.init import copy, write_files
from contextrouter.cli.views.context_explanation import print_explanation
from contextrouter.cli.views.whole_context import print_context
from contextrouter.errors import SettingsError
from contextrouter.ingest import run
from contextrouter.settings import Serve

QUESTION = "What books talk about machine learning for beginners?"
PARTS = ("settings.toml", "examples", "plugins/README.md", "plugins/glossary.py")
OtherQuestion = Annotated[
    str, typer.Argument(metavar="QUESTION", help="Another question.", show_default=False)
]

Into = Annotated[
    str,
    typer.Option(
        "--into", metavar="FOLDER", help="Keep the example in this folder; otherwise it is temporary."
    ),
]


@command
async def demo(question: OtherQuestion = QUESTION, into: Into = "") -> int:
    """Copy the example, ingest it, ask it, and explain the answer. Needs no network, key or server."""
    with _open_folder(into) as folder:
        for part in PARTS:
            _copy(example() / part, folder / part)
        router = options.open_router(str(folder / "settings.toml"))
        terminal.heading(
            "1. Ingest", "Documents and facts go from files into an embedded store: cut, embedded, indexed."
        )
        async with router:
            with ingesting.bar() as progress:
                reports = await run(router, progress=progress)
            ingesting.show(reports)
            terminal.heading(
                "2. Ask", "Every source at once: the store in three ways, notes, news, a glossary, and facts."
            )
            context = await router.route(options.readable(question))
        print_context(context)
        terminal.heading("3. Explain", "How the answer came about.")
        print_explanation(context)
        _print_next_steps(folder if into else None)
    if any(report.skipped for report in reports.values()):
        return INGESTION
    return OK if context.envelopes else NOTHING


@contextlib.contextmanager
def _open_folder(into: str) -> Iterator[Path]:
    if into:
        yield Path(into)
    else:
        with tempfile.TemporaryDirectory(prefix="contextrouter-demo-") as folder:
            yield Path(folder)


def example() -> Traversable:
    """Return the folder of the example: in the installed package, or beside it in a clone."""
    packaged = files("contextrouter") / "example"
    if packaged.is_dir():
        return packaged
    clone = Path(str(files("contextrouter"))).parent
    if (clone / "settings.toml").is_file():
        return clone
    raise SettingsError("The example is not installed; install contextrouter from its wheel or its source.")


def _copy(source: Traversable, into: Path) -> None:
    if source.is_dir():
        copy(source, into)
    else:
        write_files({into: source.read_bytes()}, into.parent)


def _print_next_steps(folder: Path | None) -> None:
    terminal.heading("Next")
    if folder is None:
        terminal.say(
            "contextrouter demo --into try-it", ("   keep this example to change it", "dim"), indent=2
        )
        _print_explorer_hint("try-it")
    else:
        place = shlex.quote(str(folder))
        terminal.say(f'cd {place} && contextrouter route "…"', ("   ask it something else", "dim"), indent=2)
        _print_explorer_hint(place)
    terminal.say("contextrouter init my-folder", ("   start with your own documents", "dim"), indent=2)
    terminal.say("contextrouter plugins list", ("   see what can be put together", "dim"), indent=2)


def _print_explorer_hint(folder: str) -> None:
    """Print how to open the explorer. On this machine it needs no key."""
    serve = Serve()
    address = f"http://{serve.host}:{serve.port}/explorer"
    terminal.say(
        f"cd {folder} && contextrouter serve", (f"   then open {address} in a browser", "dim"), indent=2
    )
