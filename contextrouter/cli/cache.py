"""`contextrouter cache`: shows and empties the cache on disk or in Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import typer

from contextrouter.cache import Tiers
from contextrouter.cli import options, terminal
from contextrouter.cli.exit_codes import OK, command
from contextrouter.errors import ContextRouterError
from contextrouter.runtime.masking import mask
from contextrouter.settings import Settings

app = typer.Typer(help="Show what the cache holds, or empty it.", no_args_is_help=True)


class ClearResult(msgspec.Struct, frozen=True, kw_only=True):
    """The tier that was cleared, and how many entries it had."""

    tier: str
    entries: int


@app.command("stats")
@command
async def show_stats(
    settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False
) -> int:
    """Show how many entries each tier of the cache holds, and how large they are."""
    router = options.open_router(settings)
    async with _open_tiers(router.cache, router.settings) as tiers:
        tier_stats = await tiers.stats()
    if as_json:
        terminal.print_json(tier_stats)
        return OK
    table = terminal.table(
        "tier", terminal.right("entries"), terminal.right("bytes"), terminal.right("at most")
    )
    for tier in tier_stats:
        limit = "–" if tier.max_bytes is None else f"{tier.max_bytes:,}"
        terminal.row(table, tier.tier, f"{tier.entries:,}", f"{tier.bytes:,}", limit)
    terminal.show(table, indent=0)
    if router.cache.outer is None:
        terminal.note(
            "memory is each process's own and empty when it starts; [cache] tier = 'disk' or 'redis'"
            " outlives it."
        )
    return OK


@app.command("clear")
@command
async def clear_cache(
    settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False
) -> int:
    """Forget every answer and embedding that outlived its process; of a shared cache, those of this
    namespace.
    """
    router = options.open_router(settings)
    async with _open_tiers(router.cache, router.settings) as tiers:
        result = ClearResult(
            tier="memory" if tiers.outer is None else tiers.outer.name, entries=await tiers.clear()
        )
    if as_json:
        terminal.print_json(result)
    else:
        terminal.say(f"{terminal.count(result.entries, 'entry', 'entries')} removed from {result.tier}.")
    return OK


@asynccontextmanager
async def _open_tiers(tiers: Tiers, settings: Settings) -> AsyncIterator[Tiers]:
    """Open the cache tiers without the sources."""
    try:
        await tiers.open()
        yield tiers
    except ContextRouterError:
        raise
    except Exception as error:
        name = tiers.outer.name if tiers.outer else "memory"
        reason = mask(f"{type(error).__name__}: {error}", settings.secrets).rstrip(".")
        raise ContextRouterError(
            f"Cache tier {name!r} cannot be used: {reason}. Check [cache] in the settings."
        ) from error
    finally:
        await tiers.aclose()
