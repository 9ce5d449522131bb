"""Checks `[rag]`: values that no type can refuse, and keys that cannot act in the mode that is set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contextrouter.settings.problems import Key, Problems
from contextrouter.settings.references import Declared
from contextrouter.settings.values import Rag, Settings
from contextrouter.text.time_zones import time_zone


def check_rag(settings: Settings, declared: Declared, problems: Problems) -> None:
    """Refuse what leaves no scores or has no meaning; warn of keys that are set and that nothing reads."""
    rag = settings.rag
    _check_fusion(rag, ("rag",), problems)
    for name, route in settings.routes.items():
        if route.rag:
            _check_fusion(settings.for_route(name)[0], ("routes", name), problems)
    try:
        time_zone(rag.timezone)
    except (KeyError, ValueError, OSError):
        message = f"{rag.timezone!r} is not a time zone. Use a name such as 'Europe/Berlin'."
        problems.add(("rag", "timezone"), message)
    for key, acts in _without_effect(rag):
        if f"rag.{key}" in problems.origins and not problems.from_preset(("rag", key)):
            problems.warn(f"[rag] {key} has no effect here: it is read only {acts}.")
    vector = rag.leg_weights.get("vector", rag.hybrid_vector_weight)
    text = rag.leg_weights.get("text", rag.hybrid_text_weight)
    if rag.hybrid_fusion == "weighted" and vector > text and _embeds_with_static(settings, declared):
        problems.warn(
            '[rag] hybrid_fusion = "weighted" with the embedder `static` ranks names badly: its vectors know'
            ' few names, and weigh most. Use "scores", or give hybrid_vector_weight a low value.'
        )


def _check_fusion(rag: Rag, key: Key, problems: Problems) -> None:
    hybrid = (rag.hybrid_vector_weight, rag.hybrid_text_weight)
    if rag.hybrid_fusion == "weighted" and not any([*hybrid, *rag.leg_weights.values()]):
        message = "it and hybrid_text_weight are both 0, so every score is 0. Give one a weight above 0."
        problems.add((*key, "hybrid_vector_weight"), message)
    if rag.hybrid_fusion == "scores" and rag.levels == 1:
        message = (
            'hybrid_fusion = "scores" has two levels, within a source and between sources. Leave `levels`'
            ' out, or set hybrid_fusion = "rrf" or "weighted".'
        )
        problems.add((*key, "levels"), message)


def _without_effect(rag: Rag) -> Iterator[tuple[str, str]]:
    """Yield the keys that nothing reads with these values, and where they act."""
    mode: Any = rag.hybrid_fusion
    if mode != "rrf":
        yield "rrf_k", 'with hybrid_fusion = "rrf"'
    if mode != "weighted":
        for key in ("hybrid_vector_weight", "hybrid_text_weight"):
            yield key, 'with hybrid_fusion = "weighted"; the weights of other modes are leg_weights'
    if mode == "scores":
        yield "levels", 'with hybrid_fusion = "rrf" or "weighted"'
    if not rag.calibrate or rag.levels == 1:
        yield "keep_order", "with calibrate = true and levels = 2"
        yield "calibrate_embed", "with calibrate = true and levels = 2"
    if rag.levels == 1:
        yield "calibrate", "with levels = 2"


def _embeds_with_static(settings: Settings, declared: Declared) -> bool:
    by_hand = declared.get("embedder", set()) - settings.embedders.keys()
    uses = {instance.use for instance in settings.embedders.values()} or {"static"}
    return bool(settings.providers) and not by_hand and uses == {"static"}
