"""Conformance laws by kind of plugin. Each law is a function, and its docstring states the law."""

from __future__ import annotations

from collections.abc import Mapping

from contextrouter.testing.kit import Law
from contextrouter.testing.laws import (
    abilities,
    calls,
    construction,
    embedders,
    facts,
    field_types,
    generators,
    interpreters,
    methods,
    open_and_close,
    sources,
    stages,
    store_access,
    store_entities,
    store_filters,
    store_runs,
    store_writes,
    transforms,
)

_COMMON = (
    *methods.GATES,
    *construction.GATES,
    *field_types.LAWS,
    *methods.LAWS,
    *construction.LAWS,
    *open_and_close.LAWS,
    *calls.LAWS,
)
_STORES = (
    *store_access.LAWS,
    *store_filters.LAWS,
    *store_entities.LAWS,
    *store_runs.LAWS,
    *store_writes.LAWS,
)
_SOURCES = (*_COMMON, *sources.LAWS, *abilities.OF_SOURCES, *field_types.OF_ABILITIES, *_STORES)
_STAGES = (*_COMMON, *stages.LAWS)

LAWS: Mapping[str, tuple[Law, ...]] = {
    "provider": _SOURCES,
    "connector": _SOURCES,
    "fact": (*_COMMON, *facts.LAWS, *abilities.OF_FACTS, *field_types.OF_ABILITIES),
    "interpreter": (*_COMMON, *interpreters.LAWS),
    "stage": _STAGES,
    "reranker": (*_STAGES, *stages.OF_RERANKERS),
    "embedder": (*_COMMON, *calls.OF_WHAT_IS_STORED, *embedders.LAWS),
    "transform": (*_COMMON, *calls.OF_WHAT_IS_STORED, *transforms.LAWS),
    "generator": (*_COMMON, *generators.LAWS),
}
"""Kind -> its laws: the gates, those of every plugin, those of the kind. A reranker has more than a stage."""
