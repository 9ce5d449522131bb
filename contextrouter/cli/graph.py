"""`contextrouter graph`: how the entities of the fact sources hang together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.contracts import FactSource, SupportsFacets, SupportsGraph
from contextrouter.errors import RequestRefused, SettingsError
from contextrouter.model import Query
from contextrouter.router import ContextRouter

app = typer.Typer(help="Show how entities hang together, and count statements.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="An entity, as facts name it.", show_default=False)]
Dimensions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[DIMENSION]...", help="subject, predicate, object, entity.", show_default=False),
]
OneSource = Annotated[str | None, typer.Option("--source", metavar="NAME", help="Ask only this fact source.")]
Hops = Annotated[int, typer.Option("--hops", metavar="NUMBER", help="Facts in the way, at most: 1 to 10.")]
Limit = Annotated[int, typer.Option("--limit", metavar="NUMBER", help="Entities shown, at most.")]
About = Annotated[
    list[str] | None,
    typer.Option("--about", metavar="NAME", help="Only statements about it; may be repeated."),
]


@app.command("path")
@command
async def path(
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
    query = Query(text="", scope=options.scope_of(tenant, compartment, ceiling))
    if not 1 <= hops <= 10:
        raise RequestRefused(f"--hops {hops} is out of range; give 1 to 10.")
    found = {
        name: await plugin.path(start, goal, query, hops=hops)
        async for name, plugin in _graphs(settings, source)
    }
    if as_json:
        terminal.print_json(found)
        return OK
    made = terminal.table("source", "subject", "predicate", "object", terminal.right("confidence"))
    for name, facts in found.items():
        for fact in facts:
            terminal.row(
                made, name, fact.subject, fact.predicate, fact.object, terminal.number(fact.confidence)
            )
        if not facts:
            terminal.note(
                f"{name}: no way of at most {terminal.count(hops, 'fact')} from {start!r} to {goal!r}."
            )
    if any(found.values()):
        terminal.show(made, indent=0)
    return OK


@app.command("related")
@command
async def related(
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
    query = Query(text="", limit=limit, scope=options.scope_of(tenant, compartment, ceiling))
    found = {each: await plugin.related(name, query) async for each, plugin in _graphs(settings, source)}
    if as_json:
        terminal.print_json(found)
        return OK
    made = terminal.table("source", "entity", "linked by", terminal.right("facts"), terminal.right("degree"))
    for each, entities in found.items():
        for entity in entities:
            by, facts, degree = (entity.attributes.get(key, "") for key in ("predicates", "facts", "degree"))
            terminal.row(made, each, entity.name, ", ".join(by), facts, degree)
        if not entities:
            terminal.note(f"{each}: no fact links {name!r} with anything.")
    if any(found.values()):
        terminal.show(made, indent=0)
    return OK


@app.command("facets")
@command
async def facets(
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
    query = Query(text="", scope=options.scope_of(tenant, compartment, ceiling), entities=tuple(about or ()))
    asked = dimensions or ["predicate", "entity"]
    found = {
        name: list(await plugin.facets(query, asked))
        async for name, plugin in _graphs(settings, source)
        if isinstance(plugin, SupportsFacets)
    }
    if as_json:
        terminal.print_json(found)
        return OK
    made = terminal.table("source", "dimension", "value", terminal.right("statements"))
    for name, counted in found.items():
        for facet in counted:
            terminal.row(made, name, facet.dimension, facet.value, f"{facet.count:,}")
    terminal.show(made, indent=0)
    return OK


async def _graphs(settings: str, wanted: str | None) -> AsyncIterator[tuple[str, Any]]:
    """The fact sources asked for, each open while it is its turn. Raises SettingsError for a name that is
    none of them.
    """
    router: ContextRouter = options.opened(settings)
    known = {
        name: each for name, each in router.instances.of("fact").items() if isinstance(each, SupportsGraph)
    }
    if wanted is not None and wanted not in known:
        listed = ", ".join(known) or "none"
        raise SettingsError(
            f"Fact source {wanted!r} knows no ways between entities, or is disabled. Those that do: {listed}."
        )
    if not known:
        raise SettingsError(
            "No fact source knows ways between entities. Add one: [facts.NAME] with use = 'sqlite' or"
            " 'postgres'."
        )
    for name, source in known.items():
        assert isinstance(source, FactSource)
        if wanted in (None, name):
            try:
                await source.open()
                yield name, source
            finally:
                await source.aclose()
