"""`contextrouter plan`: shows the query plan, without asking a source."""

from __future__ import annotations

from contextrouter.cli import explain, options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command


@command
async def plan(
    question: options.Question,
    settings: options.SettingsPath = options.DEFAULT,
    as_json: options.AsJson = False,
    source: options.Sources = None,
    leg: options.Legs = None,
    mode: options.Mode = None,
    since: options.Since = None,
    until: options.Until = None,
    label: options.Labels = None,
    as_of: options.AsOf = None,
    limit: options.Limit = None,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
) -> int:
    """Show which source would be asked what for QUESTION. No source is asked."""
    demands = options.Demands(
        source=source, leg=leg, mode=mode, since=since, until=until, label=label, as_of=as_of, limit=limit
    )
    scope = options.make_scope(tenant, compartment, ceiling)
    async with options.open_router(settings) as router:
        request = demands.request(question, scope, router.settings.rag.timezone)
        query_plan = await router.plan(request)
    if as_json:
        terminal.print_json(query_plan)
    else:
        explain.print_plan(query_plan)
    return OK if query_plan.calls else NOTHING
