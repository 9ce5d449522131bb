"""Checks legs, embedders and weights after the sources are built: only a source knows its legs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from contextrouter.contracts import FactSource, Source, legs_of
from contextrouter.errors import Problem, SettingsError
from contextrouter.settings import Settings
from contextrouter.settings.suggestions import unknown

Sources = Mapping[str, Source | FactSource]


def check_sources(settings: Settings, sources: Sources) -> Settings:
    """Return the settings with added warnings. Raises SettingsError for legs, embedders and weights that
    cannot work.
    """
    of_documents = {name: source for name, source in sources.items() if isinstance(source, Source)}
    problems = [
        *_embedder_problems(settings, of_documents),
        *_source_leg_problems(settings, of_documents),
        *_leg_weight_problems(settings, of_documents),
        *_route_leg_problems(settings, sources),
        *_exact_leg_problems(settings, sources),
    ]
    weights = settings.rag.leg_weights
    legs = [(name, leg) for name, source in of_documents.items() for leg in source.legs]
    if legs and all(weights.get(f"{name}.{leg}", weights.get(leg)) == 0 for name, leg in legs):
        message = "the weight of every leg is 0, so no hit has a score. Give one a weight above 0."
        problems.append(settings.problem("rag.leg_weights", message))
    if of_documents and not any(settings.sources[name].keys.weight for name in of_documents):
        message = "the weight of every source is 0, so no hit has a score. Give one a weight above 0."
        problems.append(Problem(message))
    silent = [name for name in of_documents if not _searchable_legs(settings, name, of_documents[name])]
    if silent and len(silent) == len(of_documents) and not problems:
        message = (
            "every source has only the leg 'text', so nothing is searched. Set enable_fts = true, or give a"
            " source an embedder."
        )
        problems.append(settings.problem("rag.enable_fts", message))
    if problems:
        raise SettingsError(problems)
    if not silent:
        return settings
    warnings = [
        f"source {name!r} has only the leg 'text'. It is never searched, because [rag] enable_fts = false."
        for name in silent
    ]
    return msgspec.structs.replace(settings, warnings=(*settings.warnings, *warnings))


def _searchable_legs(settings: Settings, name: str, source: Source) -> set[str]:
    """Return the legs of a source that a question may search."""
    legs = settings.sources[name].keys.legs
    off = () if settings.rag.enable_fts else ("text",)
    return {leg for leg in source.legs if (legs is None or leg in legs) and leg not in off}


def _embedder_problems(settings: Settings, sources: Mapping[str, Source]) -> list[Problem]:
    """Return problems of sources whose embedder is not defined. `default` is made where no table defines
    it.
    """
    names = sorted({"default", *settings.embedders})
    problems = []
    for name, source in sources.items():
        if source.embedder and source.embedder not in names:
            message = unknown(
                f"{source.embedder!r} is no defined embedder", source.embedder, names, "Defined"
            )
            problems.append(settings.problem(f"{settings.sources[name].kind}s.{name}.embedder", message))
    return problems


def _source_leg_problems(settings: Settings, sources: Mapping[str, Source]) -> list[Problem]:
    problems = []
    for name, source in sources.items():
        instance, has = settings.sources[name], tuple(source.legs)
        for leg in instance.keys.legs or ():
            if leg not in has:
                message = unknown(f"{leg!r} is no leg of this source", leg, has, "Its legs")
                problems.append(settings.problem(f"{instance.kind}s.{name}.legs", message))
    return problems


def _leg_weight_problems(settings: Settings, sources: Mapping[str, Source]) -> list[Problem]:
    """Return problems of the keys in `[rag.leg_weights]` that are no leg of any source."""
    keys = {f"{name}.{leg}" for name, source in sources.items() for leg in source.legs}
    legs = keys | {key.partition(".")[2] for key in keys}
    problems = []
    for leg in settings.rag.leg_weights:
        if legs and leg not in legs:
            message = unknown("no source has this leg", leg, sorted(legs), "Legs")
            problems.append(settings.problem(f"rag.leg_weights.{leg}", message))
    return problems


def _exact_leg_problems(settings: Settings, sources: Sources) -> list[Problem]:
    """Return problems of legs in `[rag] exact_legs` that no source has; the default names one that may be
    absent.
    """
    legs = {leg for source in sources.values() for leg in legs_of(source)}
    set_here = any(key.startswith("rag.exact_legs") for key in settings.origins)
    problems = []
    for leg in settings.rag.exact_legs if legs and set_here else ():
        if leg not in legs:
            message = unknown(f"no source has a leg {leg!r}", leg, sorted(legs), "Legs")
            problems.append(settings.problem("rag.exact_legs", message))
    return problems


def _route_leg_problems(settings: Settings, sources: Sources) -> list[Problem]:
    """Return problems of legs that no source has, and of routes whose sources have none of their legs."""
    every_leg = {leg for source in sources.values() for leg in legs_of(source)}
    problems = []
    for name, route in settings.routes.items():
        unknown_legs = [leg for leg in route.legs or () if every_leg and leg not in every_leg]
        for leg in unknown_legs:
            message = unknown(f"no source has a leg {leg!r}", leg, sorted(every_leg), "Legs")
            problems.append(settings.problem(f"routes.{name}.legs", message))
        on_route = {n: source for n, source in sources.items() if route.sources is None or n in route.sources}
        if (
            unknown_legs
            or not route.legs
            or any(isinstance(source, FactSource) for source in on_route.values())
        ):
            continue
        legs = set().union(
            *(
                {*_searchable_legs(settings, n, source), *legs_of(source)[len(source.legs) :]}
                for n, source in on_route.items()
                if isinstance(source, Source)
            )
        )
        if on_route and legs.isdisjoint(route.legs):
            allowed = ", ".join(sorted(legs)) or "none"
            message = (
                f"no source of this route has any of the legs {list(route.legs)!r}. Legs of its sources:"
                f" {allowed}."
            )
            problems.append(settings.problem(f"routes.{name}.legs", message))
    return problems
