"""Engines for tests of single steps: plugins made by hand, with the router's own keys of their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextrouter import Embedder, Envelope, FactSource, Interpreter, Source, Stage, StageContext
from contextrouter.contracts.kinds import source_kind
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.engine import Engine, OpenPlugins
from contextrouter.pipeline.envelopes import Ranking
from contextrouter.pipeline.fusion.leg_weights import Profile, Profiles
from contextrouter.pipeline.ranking import rank
from contextrouter.pipeline.trace import TraceBuilder
from contextrouter.settings import Instance, Rag, Settings


def engine_of(
    sources: Mapping[str, Source | FactSource] | None = None,
    *,
    embedders: Mapping[str, Embedder] | None = None,
    interpreters: Mapping[str, Interpreter] | None = None,
    stages: Mapping[str, Stage] | None = None,
    keys: Mapping[str, Any] | None = None,
    rag: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Engine:
    """Return an engine with these plugins; `keys` are the router's own keys by the name of a plugin."""
    keys = keys or {}

    def table(kind: str, names: Sequence[str]) -> dict[str, Instance]:
        return {n: Instance(kind=kind, name=n, use=n, keys=keys[n]) for n in names if n in keys}

    kinds = {name: source_kind(source) for name, source in (sources or {}).items()}
    tables = {f"{k}s": table(k, [n for n, of in kinds.items() if of == k]) for k in set(kinds.values())}
    lists = {"interpreters": tuple(interpreters or ()), "stages": tuple(stages or ())}
    return Engine(
        Settings(
            rag=Rag(**{**lists, **(rag or {})}),
            interpreters=table("interpreter", lists["interpreters"]),
            stages=table("stage", lists["stages"]),
            **tables,
            **settings,
        ),
        OpenPlugins(sources, embedders, interpreters, stages),
    )


async def rank_by(
    envelopes: Sequence[Envelope],
    stages: Mapping[str, Stage],
    context: StageContext,
    *,
    keys: Mapping[str, Any] | None = None,
    deadline: Deadline | None = None,
    trace: TraceBuilder | None = None,
) -> Ranking:
    """Rank envelopes by these stages, as the router does."""
    engine = engine_of(stages=stages, keys=keys)
    return await rank(envelopes, engine.stages(engine.settings.rag), context, engine, deadline, trace)


def profiles_of(**profiles: Profile) -> Profiles:
    """Return the profiles of these sources."""
    made = Profiles()
    made.update(profiles)
    return made
