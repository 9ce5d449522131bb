"""The laws, by kind of plugin: one module per kind, each law a function whose docstring is the law."""

from __future__ import annotations

from collections.abc import Mapping

from contextrouter.testing.kit import Law
from contextrouter.testing.laws import (
    abilities,
    common,
    embedders,
    facts,
    generators,
    interpreters,
    sources,
    stages,
    stores,
    transforms,
)

_SOURCES = (*common.LAWS, *sources.LAWS, *abilities.OF_SOURCES, *stores.LAWS)
_STAGES = (*common.LAWS, *stages.LAWS)

LAWS: Mapping[str, tuple[Law, ...]] = {
    "provider": _SOURCES,
    "connector": _SOURCES,
    "fact": (*common.LAWS, *facts.LAWS, *abilities.OF_FACTS),
    "interpreter": (*common.LAWS, *interpreters.LAWS),
    "stage": _STAGES,
    "reranker": (*_STAGES, *stages.OF_RERANKERS),
    "embedder": (*common.LAWS, *embedders.LAWS),
    "transform": (*common.LAWS, *transforms.LAWS),
    "generator": (*common.LAWS, *generators.LAWS),
}
"""Kind -> its laws, those of every plugin first. A reranker is a stage that is under more laws."""
