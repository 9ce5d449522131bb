"""Checks that names are unique: over all sources, and in every list. Warns of instances that never run."""

from __future__ import annotations

from contextrouter.settings.problems import Key, Problems, dotted_key
from contextrouter.settings.values import TABLES, Settings


def check_source_names(settings: Settings, problems: Problems) -> None:
    """Report a name that two sources have."""
    tables: dict[str, str] = {}
    for table in ("providers", "connectors", "facts"):
        for name in settings.instances(TABLES[table]):
            if name in tables:
                message = (
                    f"source name {name!r} is also used in [{tables[name]}.{name}], and names are unique over"
                    " all sources. Rename one of them."
                )
                problems.add((table, name), message)
            tables[name] = table


def check_unlisted(settings: Settings, problems: Problems) -> None:
    """Warn of interpreters and stages that are defined, but in no list. Those of a preset may stay unused."""
    rag = settings.rag
    stages = {*rag.stages, *(name for route in settings.routes.values() for name in route.stages or ())}
    for kind, names in (("interpreter", {*rag.interpreters}), ("stage", stages)):
        for name in settings.instances(kind):
            if name not in names and not problems.from_preset((f"{kind}s", name)):
                problems.warn(f"{kind} {name!r} is defined but does not run. List it in [rag] {kind}s.")


def stage_lists(settings: Settings) -> dict[Key, tuple[str, ...]]:
    """Return the lists of stages by key: `[rag] stages`, and those of routes."""
    lists: dict[Key, tuple[str, ...]] = {("rag", "stages"): settings.rag.stages}
    for name, route in settings.routes.items():
        lists["routes", name, "stages"] = route.stages or ()
    return lists


def check_repeated(settings: Settings, problems: Problems) -> None:
    """Report a name that a list has twice. Warn of two freshness stages in one list."""
    rag = settings.rag
    lists: dict[Key, tuple[str, ...]] = {
        ("rag", "interpreters"): rag.interpreters,
        ("rag", "provider"): rag.providers or (),
    }
    for table in ("providers", "connectors"):
        for name, instance in settings.instances(TABLES[table]).items():
            lists[table, name, "legs"] = instance.keys.legs or ()
    for name, route in settings.routes.items():
        lists["routes", name, "sources"] = route.sources or ()
        lists["routes", name, "legs"] = route.legs or ()
    for key, names in {**lists, **stage_lists(settings)}.items():
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            problems.add(key, f"{name!r} is listed {names.count(name)} times. List it once.")
    for key, names in stage_lists(settings).items():
        fresh = [
            name
            for name in dict.fromkeys(names)
            if name in settings.stages and settings.stages[name].use == "freshness"
        ]
        if len(fresh) > 1:
            message = f"has several freshness stages ({', '.join(fresh)})"
            problems.warn(f"{dotted_key(key)} {message}, so age counts several times. Keep one.")
