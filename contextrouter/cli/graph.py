"""`contextrouter graph`: paths and neighbours in the knowledge graph, and counts of its statements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.contracts import FactSource, SupportsFacets, SupportsGraph
from contextrouter.errors import RequestRefused, SettingsError
from contextrouter.model import Query

app = typer.Typer(help="Show how entities hang together, and count statements.", no_args_is_help=True)

_MOST_COUNTS = 1_000_000  # of a dimension
Name = Annotated[str, typer.Argument(metavar="NAME", help="An entity, as facts name it.", show_default=False)]
Dimensions = Annotated[
    list[str] | None,
    typer.Argument(metavar="DIMENSION", help="subject, predicate, object, entity.", show_default=False),
]
OneSource = Annotated[str | None, typer.Option("--source", metavar="NAME", help="Ask only this fact source.")]
Hops = Annotated[int, typer.Option("--hops", metavar="NUMBER", help="Facts in the way, at most: 1 to 10.")]
Limit = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, help="Entities shown, at most.")]
About = Annotated[
    list[str] | None,
    typer.Option("--about", metavar="NAME", help="Only statements about it; may be repeated."),
]


@app.command("path")
@command
async def show_path(
    start: Name,
    goal: Name,
    hops: Hops = 4,
    source: OneSource = None,
    settings: options.SettingsPath = options.DEFAULT,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
    as_json: options.AsJson = False,
) -> int:
    """Show the facts of a shortest way between two entities."""
    query = Query(text="", scope=options.make_scope(tenant, compartment, ceiling))
    if not 1 <= hops <= 10:
        raise RequestRefused(f"--hops {hops} is out of range; give 1 to 10.")
    paths = {
        name: await plugin.path(start, goal, query, hops=hops)
        async for name, plugin in _open_graphs(settings, source)
    }
    if as_json:
        terminal.print_json(paths)
        return OK
    table = terminal.table("source", "subject", "predicate", "object", terminal.right("confidence"))
    for name, facts in paths.items():
        for fact in facts:
            terminal.row(
                table, name, fact.subject, fact.predicate, fact.object, terminal.number(fact.confidence)
            )
        if not facts:
            terminal.note(
                f"{name}: no way of at most {terminal.count(hops, 'fact')} from {start!r} to {goal!r}."
            )
    if any(paths.values()):
        terminal.show(table, indent=0)
    return OK


@app.command("related")
@command
async def show_related(
    name: Name,
    limit: Limit = 50,
    source: OneSource = None,
    settings: options.SettingsPath = options.DEFAULT,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
    as_json: options.AsJson = False,
) -> int:
    """Show the entities one fact away from an entity, those of most facts first."""
    query = Query(text="", limit=limit, scope=options.make_scope(tenant, compartment, ceiling))
    neighbours = {
        source_name: await plugin.related(name, query)
        async for source_name, plugin in _open_graphs(settings, source)
    }
    if as_json:
        terminal.print_json(neighbours)
        return OK
    table = terminal.table("source", "entity", "linked by", terminal.right("facts"), terminal.right("degree"))
    for source_name, entities in neighbours.items():
        for entity in entities:
            predicates = ", ".join(entity.attributes.get("predicates", ""))
            numbers = (entity.attributes.get(key, "") for key in ("facts", "degree"))
            terminal.row(table, source_name, entity.name, predicates, *numbers)
        if not entities:
            terminal.note(f"{source_name}: no fact links {name!r} with anything.")
    if any(neighbours.values()):
        terminal.show(table, indent=0)
    return OK


@app.command("facets")
@command
async def count_facets(
    dimensions: Dimensions = None,
    about: About = None,
    source: OneSource = None,
    settings: options.SettingsPath = options.DEFAULT,
    tenant: options.Tenant = None,
    compartment: options.Compartments = None,
    ceiling: options.Ceiling = None,
    as_json: options.AsJson = False,
) -> int:
    """Count statements by subject, predicate, object or entity."""
    query = Query(
        text="",
        scope=options.make_scope(tenant, compartment, ceiling),
        entities=tuple(about or ()),
        limit=_MOST_COUNTS,
    )
    counted_dimensions = dimensions or ["predicate", "entity"]
    counts = {
        name: list(await plugin.facets(query, counted_dimensions))
        async for name, plugin in _open_graphs(settings, source)
        if isinstance(plugin, SupportsFacets)
    }
    if as_json:
        terminal.print_json(counts)
        return OK
    table = terminal.table("source", "dimension", "value", terminal.right("statements"))
    for name, facets in counts.items():
        for facet in facets:
            terminal.row(table, name, facet.dimension, facet.value, f"{facet.count:,}")
        if not facets:
            terminal.note(f"{name}: no statement has a {' or '.join(counted_dimensions)} to count.")
    if any(counts.values()):
        terminal.show(table, indent=0)
    return OK


async def _open_graphs(settings: str, only: str | None) -> AsyncIterator[tuple[str, Any]]:
    """Yield each requested fact source, open while the caller uses it. Raises SettingsError for an unknown
    name.
    """
    router = options.open_router(settings)
    graphs = {
        name: plugin
        for name, plugin in router.instances.plugins("fact").items()
        if isinstance(plugin, SupportsGraph)
    }
    if only is not None and only not in graphs:
        names = ", ".join(graphs) or "none"
        raise SettingsError(
            f"Fact source {only!r} knows no ways between entities, or is disabled. Those that do: {names}."
        )
    if not graphs:
        raise SettingsError(
            "No fact source knows ways between entities. Add one: [facts.NAME] with use = 'sqlite' or"
            " 'postgres'."
        )
    for name, source in graphs.items():
        assert isinstance(source, FactSource)
        if only in (None, name):
            try:
                await source.open()
                yield name, source
            finally:
                await source.aclose()
