"""`contextrouter route`: a question to its context."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, SOURCES, command
from contextrouter.cli.views.screen import print_screen
from contextrouter.cli.views.whole_context import print_coverage
from contextrouter.errors import AllSourcesFailed

Explain = Annotated[
    bool, typer.Option("--explain", help="Show every document, plan, scores, and where others were lost.")
]
TextOnly = Annotated[
    bool,
    typer.Option("--text", help="Print the numbered context alone, whole, as a language model is given it."),
]


@command
async def route(
    question: options.Question,
    settings: options.SettingsPath = options.DEFAULT,
    explained: Explain = False,
    as_json: options.AsJson = False,
    text: TextOnly = False,
    source: options.Sources = None,
    leg: options.Legs = None,
    mode: options.Mode = None,
    since: options.Since = None,
    until: options.Until = None,
    label: options.Labels = None,
    as_of: options.AsOf = None,
    limit: options.Limit = None,
    deadline: options.Deadline = None,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
) -> int:
    """Answer QUESTION with numbered context from every source, and show where each piece came from."""
    demands = options.Demands(
        source=source, leg=leg, mode=mode, since=since, until=until, label=label, as_of=as_of, limit=limit
    )
    scope = options.make_scope(tenant, compartment, ceiling)
    async with options.open_router(settings) as router:
        request = demands.request(question, scope, router.settings.rag.timezone).replace(deadline=deadline)
        try:
            with terminal.quiet(logging.ERROR, "contextrouter.sources"):  # the coverage has them
                context = await router.route(request)
        except AllSourcesFailed as failure:
            return _print_failure(failure, as_json)
        if as_json:  # before the router closes, which may take a while
            terminal.print_json(context)
        elif text:
            terminal.stdout().write(terminal.sanitize(context.text) + "\n")
        elif explained:
            from contextrouter.cli.views.context_explanation import print_explanation
            from contextrouter.cli.views.whole_context import print_context

            print_context(context)
            print_explanation(context)
        else:
            print_screen(context)
        terminal.stdout().flush()
    return OK if context.outcome in ("answered", "facts_only") else NOTHING


def _print_failure(failure: AllSourcesFailed, as_json: bool) -> int:
    """Print how each source failed: JSON on stdout for programs, a table on stderr for people."""
    if as_json:
        error = {"type": "AllSourcesFailed", "message": str(failure)}
        terminal.print_json({"error": error, "coverage": failure.reports})
    else:
        terminal.error(f"Every source failed; {terminal.count(len(failure.reports), 'call')} made.")
        print_coverage(failure.reports, terminal.err)
    return SOURCES
