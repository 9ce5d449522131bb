"""`contextrouter fetch`: shows how the router fetches and reads a page or feed, step by step."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.contracts import Plugin, SupportsInspect
from contextrouter.errors import RequestRefused, SourceError
from contextrouter.runtime.registry import Registry

Url = Annotated[str, typer.Argument(metavar="URL", help="The address of a page or feed.")]
Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="Fetch as this connector of the settings; without it, as `web`."
    ),
]
Private = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-private",
        metavar="NETWORK",
        help="Fetch also from this network, which is not public; may be repeated.",
    ),
]


@command
async def fetch(
    url: Url,
    settings: options.SettingsPath = options.DEFAULT,
    source: Source = None,
    allow_private: Private = None,
    as_json: options.AsJson = False,
) -> int:
    """Fetch URL as a connector does, and show each step: robots.txt, redirects, what was read, its passages
    or items.
    """
    if source is not None and allow_private:
        raise RequestRefused(
            "--allow-private has no effect with --source, whose table says what is allowed. Leave one out."
        )
    if source is None:
        connector = _make_web_connector(url, allow_private or [])
    else:
        connector = _find_connector(settings, source)
    steps: list[dict[str, str]] = []
    error = ""
    try:
        await connector.open()
        async for name, text in cast(SupportsInspect, connector).inspect(url):
            steps.append({"step": name, "what": text})
            if not as_json:
                terminal.say((f"{name:<10}", "bold"), text)
    except SourceError as failure:
        error = str(failure)
    finally:
        await connector.aclose()
    if as_json:
        terminal.print_json({"url": url, "steps": steps, "error": error})
    elif error:
        terminal.error(error)
    return NOTHING if error else OK


def _make_web_connector(url: str, allow_private: list[str]) -> Plugin:
    cls: Any = Registry().load("connector", "web")
    try:
        connector: Plugin = cls(urls=[url], allow_private=allow_private)
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    return connector


def _find_connector(settings: str, name: str) -> Plugin:
    """Return the connector of that name from the settings, not open yet."""
    sources = options.open_router(settings).instances.sources
    if name not in sources:
        defined = ", ".join(sources) or "none"
        raise RequestRefused(f"Source {name!r} is not defined. Defined sources: {defined}.")
    able = [source for source, plugin in sources.items() if isinstance(plugin, SupportsInspect)]
    if name not in able:
        names = ", ".join(able) or "none"
        message = f"Source {name!r} cannot show how it fetches. Sources that can: {names}."
        raise RequestRefused(f"{message} Without --source, a page or feed is fetched as `web` does.")
    return sources[name]
