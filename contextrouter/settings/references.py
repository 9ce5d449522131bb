"""Checks that every name in the settings is defined: sources, stores, generators and other plugins."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from contextrouter.settings.problems import Key, Problems, dotted_key
from contextrouter.settings.suggestions import unknown
from contextrouter.settings.values import TABLES, Settings

Declared = Mapping[str, Collection[str]]
"""Kind -> names in tables and lists. Includes names whose table is wrong, to report each fault once."""


def source_names(declared: Declared) -> list[str]:
    """Return the names of all sources, sorted."""
    return sorted({*declared["provider"], *declared["connector"], *declared["fact"]})


def check_source(key: Key, name: str, declared: Declared, problems: Problems) -> None:
    """Report a source that is not defined."""
    names = source_names(declared)
    if name not in names:
        problems.add(key, unknown(f"{name!r} is no defined source", name, names, "Defined sources"))


def check_max_per_source(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Sources that `max_per_source` names, in `[rag]` and on routes: those that return documents."""
    limits: dict[Key, int | Mapping[str, int] | None] = {("rag",): settings.rag.max_per_source}
    limits |= {("routes", name): route.max_per_source for name, route in settings.routes.items()}
    names = sorted({*declared["provider"], *declared["connector"]})
    for key, limit in limits.items():
        for name in limit if isinstance(limit, Mapping) else ():
            if name not in names:
                message = unknown(f"{name!r} names no provider or connector", name, names, "Defined")
                problems.add((*key, "max_per_source", name), message)


def check_references(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Report names of undefined instances: in options of plugins, and stores in ingestion jobs."""
    for table, kind in TABLES.items():
        for name, instance in settings.instances(kind).items():
            for option, target_kind in instance.references.items():
                target = instance.options[option]
                if (target_kind, target) != ("embedder", "default"):  # made when no table defines it
                    _check_instance((table, name, option), target_kind, target, declared, problems)
    jobs: dict[tuple[str, str], str] = {}  # origin and store -> the first job with them
    for name, job in settings.ingest.items():
        _check_instance(("ingest", name, "to"), "provider", job.to, declared, problems)
        origin = job.origin or name
        first_job = jobs.setdefault((origin, job.to), name)
        if first_job != name:
            problems.add(
                ("ingest", name, "origin" if job.origin else "to"),
                f"the job {first_job!r} fills {job.to!r} with the origin {origin!r} too, so each job would"
                " remove the documents of the other. Give them different origins or stores.",
            )


def _check_instance(key: Key, kind: str, name: str, declared: Declared, problems: Problems) -> None:
    names = declared[kind]
    if name not in names:
        message = unknown(f"{name!r} is no defined {kind}", name, sorted(names), f"Defined {kind}s")
        problems.add(key, message)


def check_access_key_names(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Report undefined sources and generators in access keys."""
    for name, key in settings.keys.items():
        for source in key.sources or ():
            check_source(("keys", name, "sources"), source, declared, problems)
        if key.generator is not None:
            _check_generator(("keys", name, "generator"), key.generator, declared, problems)


def check_telemetry(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Report undefined sources in `[telemetry]`."""
    for name in settings.telemetry.send_to:
        check_source(("telemetry", "send_to"), name, declared, problems)


def check_chat(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Report undefined generators in `[chat]`."""
    chat = settings.chat
    _check_generator(("chat", "synthesis_model"), chat.synthesis_model, declared, problems)
    embedders = sorted({"default", *declared["embedder"]})
    if (name := chat.examples_embedder) and name not in embedders:
        message = unknown(f"{name!r} is no defined embedder", name, embedders, "Defined embedders")
        problems.add(("chat", "examples_embedder"), message)
    for name in chat.models:
        _check_generator(("chat", "models"), name, declared, problems)
    for compartment, name in chat.compartment_generators.items():
        _check_generator(("chat", "compartment_generators", compartment), name, declared, problems)


def _check_generator(key: Key, name: str, declared: Declared, problems: Problems) -> None:
    names = sorted({"extractive", *declared["generator"]})
    if name not in names:
        problems.add(key, unknown(f"{name!r} is no defined generator", name, names, "Defined generators"))


def check_disabled_sources(settings: Settings, problems: Problems) -> None:
    """Report disabled sources in a list: an error if no other source is left, else a warning."""
    lists: dict[Key, tuple[str, ...]] = {("rag", "provider"): settings.rag.providers or ()}
    lists |= {("routes", name, "sources"): route.sources or () for name, route in settings.routes.items()}
    sources = {**settings.providers, **settings.connectors, **settings.facts}
    for key, names in lists.items():
        disabled = [name for name in names if name in sources and not sources[name].keys.enabled]
        for name in disabled:
            sentence = f"source {name!r} is in this list, but its table has enabled = false"
            if len(disabled) == len(names):
                problems.add(key, f"{sentence}, and no other source is left. Enable it, or name another.")
            else:
                problems.warn(f"{dotted_key(key)}: {sentence}. Only the other sources are asked.")
