"""Checks of plugins that no type can make: switches, arguments and weights. Made before anything runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping

from contextrouter.contracts import Embedder, Interpreter, Plugin, Stage
from contextrouter.errors import ContractError
from contextrouter.settings.suggestions import unknown
from contextrouter.settings.switches import SWITCHES


def check_plugin(plugin: type[Plugin] | Plugin, owner: str) -> None:
    """Raise ContractError for a plugin, or its class, that cannot work. `owner` names it in the message."""
    kinds = plugin if isinstance(plugin, type) else type(plugin)
    if issubclass(kinds, Stage | Interpreter):
        check_switch(plugin, owner)  # type: ignore[arg-type]  # its kind is one of these
    if issubclass(kinds, Interpreter):
        _check_arguments(plugin, owner)  # type: ignore[arg-type]  # its kind is this one
    if issubclass(kinds, Embedder):
        check_embedder(plugin, owner)  # type: ignore[arg-type]  # its kind is this one


def check_switch(plugin: type[Stage | Interpreter] | Stage | Interpreter, owner: str) -> None:
    """Raise ContractError if the `switch` of a plugin is no key of `[rag]`: nothing could turn it off."""
    if plugin.switch and plugin.switch not in SWITCHES:
        sentence = f"{owner} has the switch {plugin.switch!r}, which is no true-or-false key of [rag]"
        raise ContractError(unknown(sentence, plugin.switch, SWITCHES, "Switches"), law="switch")


def check_embedder(embedder: type[Embedder] | Embedder, owner: str) -> None:
    """Raise ContractError if a weight is no finite number from 0 on, or `unrelated` no cosine below 1."""
    for name in ("score_weights", "leg_weights"):
        weights = getattr(embedder, name)
        if not isinstance(weights, Mapping) or not all(
            isinstance(leg, str) and _is_number(weight) and weight >= 0 for leg, weight in weights.items()
        ):
            message = f"{owner}: {name} is {weights!r:.80}; give a mapping such as {{'vector': 0.7}}"
            raise ContractError(message, law="weights are numbers")
    if not _is_number(embedder.unrelated) or not -1 <= embedder.unrelated < 1:
        message = f"{owner}: unrelated is {embedder.unrelated!r:.80}, not a number from -1 to below 1"
        raise ContractError(message, law="weights are numbers")


def _check_arguments(interpreter: type[Interpreter] | Interpreter, owner: str) -> None:
    try:
        inspect.signature(interpreter.interpret).bind(*[None] * (3 if isinstance(interpreter, type) else 2))
    except TypeError:
        problem = "has an interpret() that does not take the arguments (intent, context). Add `context`."
        raise ContractError(f"{owner} {problem}", law="interpret takes the context") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
