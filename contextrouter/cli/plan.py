"""`contextrouter plan`: shows the query plan, without asking a source."""

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
    request = Request(
        question=options.readable(question),
        scope=options.make_scope(tenant, compartment, ceiling),
        sources=tuple(source) if source else None,
        legs=tuple(leg) if leg else None,
    )
    async with options.open_router(settings) as router:
        query_plan = await router.plan(request)
    if as_json:
        terminal.print_json(query_plan)
    else:
        explain.print_plan(query_plan)
    return OK if query_plan.calls else NOTHING
