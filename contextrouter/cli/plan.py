"""`contextrouter plan`: shows the query plan, without asking a source."""

from __future__ import annotations

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.cli.views.context_explanation import print_plan


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
    router = options.open_router(settings)
    request = demands.request(question, scope, router.settings.rag.timezone)
    needs_sources = router.settings.selection.sources != "all"  # they tell their statistics
    try:
        await router.open(None if needs_sources else ("interpreter",))
        query_plan = await router.plan(request)
    finally:
        await router.aclose()
    if as_json:
        terminal.print_json(query_plan)
    else:
        print_plan(query_plan)
    return OK if query_plan.calls else NOTHING
