"""Checks that names are unique: over all sources, and in every list. Finds what is defined and never runs."""

from __future__ import annotations

from contextrouter.settings.problems import Key, Problems, dotted_key
from contextrouter.settings.values import TABLES, Settings


def check_source_names(settings: Settings, problems: Problems) -> None:
    """Names that two sources have."""
    tables: dict[str, str] = {}
    for table in ("providers", "connectors", "facts"):
        for name in settings.instances(TABLES[table]):
            if name in tables:
                message = (
                    f"source name {name!r} is also used in [{tables[name]}.{name}]; names are unique over all"
                    " sources."
                )
                problems.add((table, name), message)
            tables[name] = table


def check_unlisted(settings: Settings, problems: Problems) -> None:
    """Interpreters and stages that are defined, and that no list names."""
    rag = settings.rag
    stages = {*rag.stages, *(name for route in settings.routes.values() for name in route.stages or ())}
    for kind, names in (("interpreter", {*rag.interpreters}), ("stage", stages)):
        for name in settings.instances(kind):
            if name not in names:
                problems.warn(f"{kind} {name!r} is defined and does not run: list it in [rag] {kind}s.")


def stage_lists(settings: Settings) -> dict[Key, tuple[str, ...]]:
    """The lists of stages, by key: `[rag] stages` and those of routes."""
    lists: dict[Key, tuple[str, ...]] = {("rag", "stages"): settings.rag.stages}
    for name, route in settings.routes.items():
        lists["routes", name, "stages"] = route.stages or ()
    return lists


def check_repeated(settings: Settings, problems: Problems) -> None:
    """Names that stand twice in a list where once is all that can be meant; and freshness in a list twice."""
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
            problems.add(key, f"{name!r} is listed {names.count(name)} times; once is enough.")
    for key, names in stage_lists(settings).items():
        fresh = [
            name
            for name in dict.fromkeys(names)
            if name in settings.stages and settings.stages[name].use == "freshness"
        ]
        if len(fresh) > 1:
            message = f"has freshness several times ({', '.join(fresh)}): age counts as often. Keep one."
            problems.warn(f"{dotted_key(key)} {message}")
