"""Options that several commands share, and the router of a settings file."""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec
import typer

from contextrouter.cli import terminal
from contextrouter.errors import RequestRefused
from contextrouter.model import Period, Request
from contextrouter.pipeline.request_validation import read_instant
from contextrouter.router import ContextRouter
from contextrouter.scope import SENSITIVITIES, Scope

SettingsPath = Annotated[str, typer.Option("--settings", metavar="PATH", help="The settings file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Question = Annotated[str, typer.Argument(metavar="QUESTION", help="The question, in quotes.")]
Sources = Annotated[
    list[str] | None, typer.Option("--source", metavar="NAME", help="Ask only this source; may be repeated.")
]
Legs = Annotated[
    list[str] | None,
    typer.Option("--leg", metavar="NAME", help="Search only this way (text, vector, …); may be repeated."),
]
Deadline = Annotated[
    float | None, typer.Option("--deadline", metavar="SECONDS", help="How long the answer may take.")
]
Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Answer as a caller of this tenant.")
]
Compartments = Annotated[
    list[str] | None,
    typer.Option("--compartment", metavar="NAME", help="A compartment the caller may see; may be repeated."),
]
Ceiling = Annotated[
    str | None,
    typer.Option(
        "--ceiling", metavar="LEVEL", help=f"The most the caller may see: {', '.join(SENSITIVITIES)}."
    ),
]
Mode = Annotated[
    str | None, typer.Option("--mode", metavar="ROUTE", help="Take this route, whatever is asked.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="DAY", help="Documents of this day (2026-03-01) or later.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="DAY", help="Documents of this day or earlier.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME", help="Documents with this label; may be repeated: any of them."),
]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="DAY", help="Facts as they stood then.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="At most so many documents, 1 to 1000.")
]
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0.0, help="How long to wait while a run fills the store."),
]
DEFAULT = "settings.toml"


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of `route`, `ask` and `plan` demand of the search, as texts of the command line."""

    source: list[str] | None = None
    leg: list[str] | None = None
    mode: str | None = None
    since: str | None = None
    until: str | None = None
    label: list[str] | None = None
    as_of: str | None = None
    limit: int | None = None

    def request(self, question: str, scope: Scope | None, zone: str) -> Request:
        """Return the request. Raises RequestRefused for what is no day."""
        return Request(
            question=readable(question),
            scope=scope,
            sources=tuple(self.source) if self.source else None,
            legs=tuple(self.leg) if self.leg else None,
            mode=self.mode,
            period=Period.of_texts(self.since, self.until, zone),
            labels=tuple(self.label or ()),
            as_of=None if self.as_of is None else read_instant(self.as_of, "--as-of"),
            limit=self.limit,
        )


def open_router(path: str) -> ContextRouter:
    """Return the router of a settings file, not open yet. Warnings go to stderr."""
    with terminal.quiet(logging.ERROR):
        router = ContextRouter.from_toml(path)
    terminal.hide(router.settings.secrets)
    for warning in (*router.settings.warnings, *router.registry.warnings):
        terminal.note(warning, "warning")
    return router


def readable(question: str) -> str:
    """Return the question; bytes that the terminal's encoding cannot decode become "�"."""
    return question.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def make_scope(tenant: str | None, compartments: list[str] | None, ceiling: str | None) -> Scope | None:
    """Return the scope that the options describe; None (unrestricted) when all are absent."""
    if tenant is None and not compartments and ceiling is None:
        return None
    if ceiling is not None and ceiling not in SENSITIVITIES:
        raise RequestRefused(f"--ceiling {ceiling!r} is not a level. Levels: {', '.join(SENSITIVITIES)}.")
    return Scope(
        tenant=tenant, compartments=frozenset(compartments or ()), ceiling=ceiling or SENSITIVITIES[0]
    )
