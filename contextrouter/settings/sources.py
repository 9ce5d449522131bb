"""What can only be said of settings once their sources are made; and settings joined with instances made by
hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from contextrouter.contracts import FACTS, FactSource, Plugin, Source
from contextrouter.errors import Problem, SettingsError
from contextrouter.settings import CALIBRATED, GIVEN, NAME, Instance, Settings, keys_of
from contextrouter.settings.suggestions import nearest

_SOURCES = ("provider", "connector", "fact")
Sources = Mapping[str, Source | FactSource]


def check_sources(settings: Settings, sources: Sources) -> Settings:
    """Return settings, warnings of doubtful legs added to theirs. Raises SettingsError for legs and weights
    that cannot work.
    """
    problems = [
        *_source_legs(settings, sources),
        *_weighed_legs(settings, sources),
        *_route_legs(settings, sources),
    ]
    lists = [
        settings.sources[name].keys.weight for name, source in sources.items() if isinstance(source, Source)
    ]
    if lists and not any(lists):
        problems.append(
            Problem("the weight of every source is 0, so nothing could be found. Give one a weight above 0.")
        )
    silent = [
        name
        for name, source in sources.items()
        if isinstance(source, Source) and not _asked(settings, name, source)
    ]
    if silent and len(silent) == len(lists) and not problems:
        message = (
            "no source has a leg besides 'text', so nothing is searched. Set it to true, or give a source an"
            " embedder."
        )
        problems.append(settings.problem("rag.enable_fts", message))
    if problems:
        raise SettingsError(problems)
    if not silent:
        return settings
    said = [
        f"source {name!r} has no leg besides 'text', and is never searched while [rag] enable_fts = false."
        for name in silent
    ]
    return msgspec.structs.replace(settings, warnings=(*settings.warnings, *said))


def _asked(settings: Settings, name: str, source: Source) -> set[str]:
    """The legs of a source that a question may be asked on."""
    legs = settings.sources[name].keys.legs
    off = () if settings.rag.enable_fts else ("text",)
    return {leg for leg in source.legs if (legs is None or leg in legs) and leg not in off}


def _source_legs(settings: Settings, sources: Sources) -> list[Problem]:
    problems = []
    for name, source in sources.items():
        if isinstance(source, FactSource):
            continue
        instance, has = settings.sources[name], tuple(source.legs)
        for leg in instance.keys.legs or ():
            if leg not in has:
                message = f"{leg!r} is no leg of this source. Its legs: {', '.join(has)}."
                problems.append(settings.problem(f"{instance.kind}s.{name}.legs", message))
    return problems


def _weighed_legs(settings: Settings, sources: Sources) -> list[Problem]:
    """The keys of `[rag.leg_weights]` that weigh no leg of any source."""
    own = {
        f"{name}.{leg}"
        for name, source in sources.items()
        if isinstance(source, Source)
        for leg in source.legs
    }
    if own:
        own |= {f"{CALIBRATED}.text", *(f"{CALIBRATED}.{key.partition('.')[2]}" for key in own)}
    known = own | {key.partition(".")[2] for key in own}
    problems = []
    for leg in settings.rag.leg_weights:
        if known and leg not in known:
            message = f"no source has this leg.{_hint(leg, known)} Legs: {', '.join(sorted(known))}."
            problems.append(settings.problem(f"rag.leg_weights.{leg}", message))
    return problems


def _route_legs(settings: Settings, sources: Sources) -> list[Problem]:
    """Legs of a route that no source has, and routes whose legs none of their sources has."""
    known = {
        leg
        for source in sources.values()
        for leg in (source.legs if isinstance(source, Source) else (FACTS,))
    }
    problems = []
    for name, route in settings.routes.items():
        unknown = [leg for leg in route.legs or () if known and leg not in known]
        for leg in unknown:
            message = f"no source has a leg {leg!r}.{_hint(leg, known)} Legs: {', '.join(sorted(known))}."
            problems.append(settings.problem(f"routes.{name}.legs", message))
        on_route = {n: source for n, source in sources.items() if route.sources is None or n in route.sources}
        if unknown or not route.legs or any(isinstance(source, FactSource) for source in on_route.values()):
            continue
        legs = set().union(
            *(_asked(settings, n, source) for n, source in on_route.items() if isinstance(source, Source))
        )
        if on_route and legs.isdisjoint(route.legs):
            may = ", ".join(sorted(legs)) or "none"
            message = f"no source of this route is asked on any of {list(route.legs)!r}. It may ask: {may}."
            problems.append(settings.problem(f"routes.{name}.legs", message))
    return problems


def _hint(name: str, known: set[str]) -> str:
    close = nearest(name, known)
    return f" Did you mean {close!r}?" if close else ""


def with_given(settings: Settings, given: Mapping[str, Mapping[str, Plugin]]) -> Settings:
    """Settings in which the instances made by hand stand beside the others and run: those that no list names
    are appended to it.

    Raises SettingsError for names that are not allowed, or that the settings give to something else.
    """
    problems: list[Problem] = []
    changes: dict[str, Any] = {}
    for kind, named in given.items():
        have = dict(settings.instances(kind))
        for name in named:
            problems += _clashes(settings, given, kind, name)
            have.setdefault(name, Instance(kind=kind, name=name, use=GIVEN, keys=keys_of(kind)()))
        if named:
            changes[f"{kind}s"] = have
    if problems:
        raise SettingsError(problems)
    rag = settings.rag
    listed = {"interpreter": rag.interpreters, "stage": rag.stages}
    more = {
        f"{kind}s": (*names, *(n for n in given.get(kind, {}) if n not in names))
        for kind, names in listed.items()
    }
    return (
        msgspec.structs.replace(settings, rag=msgspec.structs.replace(rag, **more), **changes)
        if changes
        else settings
    )


def _clashes(
    settings: Settings, given: Mapping[str, Mapping[str, Plugin]], kind: str, name: str
) -> list[Problem]:
    key = f"{kind}s.{name}"
    if not NAME.match(name):
        return [
            Problem(
                f"name {name!r} is not allowed; use small letters, digits and underscores, a letter first.",
                key=key,
            )
        ]
    for other in _SOURCES if kind in _SOURCES else (kind,):
        instance = settings.instances(other).get(name)
        if other != kind and name in given.get(other, {}):
            return [
                Problem(
                    f"two instances made by hand, a {kind} and a {other}, have the name {name!r}.", key=key
                )
            ]
        if instance is not None and (instance.use != GIVEN or other != kind):
            message = (
                f"an instance made by hand has the name {name!r} too; names are unique. Give one of them"
                " another."
            )
            return [settings.problem(f"{other}s.{name}", message)]
    return []
