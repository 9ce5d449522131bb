"""Checks the switches of ranking stages: the keys of `[rag]`, such as `enable_reranker`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping

import msgspec

from contextrouter.contracts import Embedder, Interpreter, Stage
from contextrouter.errors import ContractError
from contextrouter.settings.names import stage_lists
from contextrouter.settings.problems import Problems, dotted_key
from contextrouter.settings.suggestions import unknown
from contextrouter.settings.values import Rag, Settings

SWITCHES = tuple(field.name for field in msgspec.structs.fields(Rag) if field.type is bool)
"""The keys of `[rag]` that are true or false."""
_OTHER_RERANKERS = {"llm": "", "api": "", "similarity": "", "cross_encoder": "enable_cross_encoder"}
"""Rerankers that `enable_reranker` does not switch off -> the switch that does, or ""."""


def check_switch(stage: type[Stage | Interpreter] | Stage | Interpreter, owner: str) -> None:
    """Raise ContractError if the `switch` of a stage is no key of `[rag]`: nothing could turn it off."""
    if stage.switch and stage.switch not in SWITCHES:
        sentence = f"{owner} has the switch {stage.switch!r}, which is no true-or-false key of [rag]"
        message = unknown(sentence, stage.switch, SWITCHES, "Switches")
        raise ContractError(message, law="switch", kind="stage")


def check_embedder(embedder: type[Embedder] | Embedder, owner: str) -> None:
    """Raise ContractError for weights that are no finite numbers from 0 on, and for an `unrelated` that is no
    cosine below 1.
    """
    for name in ("score_weights", "leg_weights"):
        weights = getattr(embedder, name)
        if not isinstance(weights, Mapping) or not all(
            isinstance(leg, str) and is_number(weight) and weight >= 0 for leg, weight in weights.items()
        ):
            message = f"{owner}: {name} is {weights!r:.80}; give a mapping such as {{'vector': 0.7}}"
            raise ContractError(message, law="weights are numbers", kind="embedder")
    if not is_number(embedder.unrelated) or not -1 <= embedder.unrelated < 1:
        message = f"{owner}: unrelated is {embedder.unrelated!r:.80}, not a number from -1 to below 1"
        raise ContractError(message, law="weights are numbers", kind="embedder")


def is_number(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_interpreter(interpreter: type[Interpreter] | Interpreter, owner: str) -> None:
    """Raise ContractError for a wrong `switch`, and for an `interpret` that does not take the context."""
    check_switch(interpreter, owner)
    try:
        inspect.signature(interpreter.interpret).bind(*[None] * (3 if isinstance(interpreter, type) else 2))
    except TypeError:
        message = (
            f"{owner} has an interpret() that does not take the arguments (intent, context). Add `context`."
        )
        raise ContractError(message, law="interpret takes the context", kind="interpreter") from None


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
