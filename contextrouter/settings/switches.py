"""Switches: the true-or-false keys of `[rag]`, such as `enable_reranker`, and what they do not turn off."""

from __future__ import annotations

from contextrouter.settings.names import stage_lists
from contextrouter.settings.problems import Problems, dotted_key
from contextrouter.settings.values import Rag, Settings

SWITCHES = tuple(name for name, hint in Rag.__annotations__.items() if hint == "bool")
"""The keys of `[rag]` that are true or false."""
_OTHER_RERANKERS = {"llm": "", "api": "", "similarity": "", "cross_encoder": "enable_cross_encoder"}
"""Rerankers that `enable_reranker` does not switch off -> the switch that does, or ""."""


def check_rerankers(settings: Settings, problems: Problems) -> None:
    """Warn of rerankers that run with `enable_reranker = false`, which switches off `centrality` only."""
    rag = settings.rag
    if rag.enable_reranker or not rag.use_enhancements:
        return
    lists: dict[str, list[str]] = {}
    for key, names in stage_lists(settings).items():
        for name in dict.fromkeys(names):
            lists.setdefault(name, []).append(dotted_key(key))
    for name, keys in lists.items():
        stage = settings.stages.get(name)
        if stage is None or not stage.keys.enabled or stage.use not in _OTHER_RERANKERS:
            continue
        if rag.runs(_OTHER_RERANKERS[stage.use]):
            problems.warn(
                f"[rag] enable_reranker = false switches off only `centrality`. Stage {name!r} still runs."
                f" To turn it off, set [stages.{name}] enabled = false, or remove it from"
                f" {' and '.join(keys)}."
            )
