"""`contextrouter forget`: remove documents, or all of a person's, from stores and caches."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.errors import SettingsError
from contextrouter.ingest import Removal, forget_documents

Documents = Annotated[
    list[str] | None,
    typer.Option(
        "--document", metavar="ID", help="A document, by its id or URL. May be repeated.", show_default=False
    ),
]
Matches = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar="KEY=VALUE",
        help="Every document with this field or metadata. May be repeated: all of them have to hold.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the documents; remove nothing.")]


@command
async def forget_matching(
    documents: Documents = None,
    matches: Matches = None,
    settings: options.SettingsPath = options.DEFAULT,
    dry_run: DryRun = False,
    wait: options.Wait = 60.0,
    as_json: options.AsJson = False,
) -> int:
    """Remove documents from stores, facts and caches, and say what was removed."""
    if not documents and not matches:
        raise SettingsError(
            "Say which documents to forget: --document ID, or --match with a key and a value."
        )
    match = dict(map(read_match, matches or ()))
    async with options.open_router(settings) as router:
        removal = await forget_documents(router, documents or (), match, dry_run=dry_run, wait=wait)
    if as_json:
        terminal.print_json(removal)
    else:
        show_removal(removal, dry_run=dry_run)
    for job in removal.jobs:
        terminal.note(
            f"Job {job!r} stores them again if its source still has them: remove them there, too.", "warning"
        )
    for name in removal.not_searched:
        terminal.note(f"Provider {name!r} was not searched: it cannot list its documents.", "warning")
    for name in removal.not_found if removal.documents else ():
        terminal.note(f"No document has the id or the URL {name!r}.", "warning")
    return OK if removal.documents and not removal.not_found else NOTHING


def read_match(text: str) -> tuple[str, list[Any]]:
    """Return key and values of `KEY=VALUE`; a value that reads as a number is meant as text and as number."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip() or not value.strip():
        raise SettingsError(f"--match {text!r} has no key and value; write for example --match author=Anna.")
    values: list[Any] = [value.strip()]
    try:
        number = msgspec.json.decode(value.strip())
    except msgspec.DecodeError:
        number = None
    return key.strip(), [*values, number] if isinstance(number, int | float) else values


def show_removal(removal: Removal, *, dry_run: bool) -> None:
    """Print each document, and what each store has less."""
    for document in removal.documents:
        tenant = f" of tenant {document.tenant!r}" if document.tenant else ""
        title = f" ({document.title})" if document.title else ""
        terminal.say((f"{document.store}: ", "dim"), f"{document.id}{title}{tenant}")
    if not removal.documents:
        terminal.say("No document matches.")
    elif dry_run:
        count = terminal.count(len(removal.documents), "document")
        terminal.say((f"Nothing was removed: this was a dry run. {count} would go.", "yellow"))
    for store, counts in removal.counts.items():
        listed = ", ".join(f"{number} {name}" for name, number in counts.items())
        terminal.say(f"Removed from {store!r}: {listed}.")
    if removal.counts:
        terminal.say(f"Removed from the cache: {terminal.count(removal.cache_entries, 'entry', 'entries')}.")
