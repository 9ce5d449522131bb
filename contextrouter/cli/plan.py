"""`contextrouter plan`: what would be asked, without asking."""

from __future__ import annotations

from contextrouter.cli import explain, options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.model import Request


@command
async def plan(
    question: options.Question,
    settings: options.SettingsPath = options.DEFAULT,
    as_json: options.AsJson = False,
    source: options.Sources = None,
    leg: options.Legs = None,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
) -> int:
    """Show which source would be asked what for QUESTION. No source is asked."""
    asked = Request(
        question=options.readable(question),
        scope=options.scope_of(tenant, compartment, ceiling),
        sources=tuple(source) if source else None,
        legs=tuple(leg) if leg else None,
    )
    async with options.opened(settings) as router:
        made = await router.plan(asked)
    if as_json:
        terminal.print_json(made)
    else:
        explain.show_plan(made)
    return OK if made.calls else NOTHING
