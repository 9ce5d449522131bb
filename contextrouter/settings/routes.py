"""Checks routes, and the legs of sources and routes."""

from __future__ import annotations

from contextrouter.settings.problems import Key, Problems
from contextrouter.settings.references import Declared, check_source
from contextrouter.settings.suggestions import unknown
from contextrouter.settings.values import TABLES, Settings


def check_source_legs(settings: Settings, problems: Problems) -> None:
    """Report `legs` of providers and connectors that leave nothing to search."""
    hint = "set enabled = false; an ingestion job can still read the source."
    for table in ("providers", "connectors"):
        for name, instance in settings.instances(TABLES[table]).items():
            _check_legs((table, name, "legs"), instance.keys.legs, hint, settings, problems)


def check_routes(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Report wrong sources, legs and fallbacks of routes."""
    for name, route in settings.routes.items():
        for source in route.sources or ():
            check_source(("routes", name, "sources"), source, declared, problems)
        hint = "remove the key to search all legs."
        _check_legs(("routes", name, "legs"), route.legs, hint, settings, problems)
        if route.fallback == name:
            message = "a route cannot fall back to itself. Name another route, or remove the key."
            problems.add(("routes", name, "fallback"), message)
        elif route.fallback is not None and route.fallback not in ("default", *settings.routes):
            message = unknown(
                f"{route.fallback!r} is no defined route", route.fallback, settings.routes, "Defined routes"
            )
            problems.add(("routes", name, "fallback"), message)


def _check_legs(
    key: Key, legs: tuple[str, ...] | None, hint: str, settings: Settings, problems: Problems
) -> None:
    if legs is None:
        return
    if not legs:
        problems.add(key, f"[] leaves nothing to search. Name legs, or {hint}")
    elif set(legs) == {"text"} and not settings.rag.enable_fts:
        message = (
            f"legs = {list(legs)!r} leaves nothing to search, because [rag] enable_fts = false. Name another"
            " leg, or set enable_fts = true."
        )
        problems.add(key, message)
