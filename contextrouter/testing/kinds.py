"""The kind of a plugin class, and its deviations from laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from contextrouter.contracts import KINDS, Reranker, Stage

C = TypeVar("C", bound=type)


def deviates(reason: str, *, law: str) -> Callable[[C], C]:
    """Declare that a plugin class, or a suite, deviates from the law named `law`, with the reason.

    The law is not checked, and every verdict shows the reason. Raises ValueError for a blank reason.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError(f"Deviation from {law!r} has no reason; say why the law does not fit.")

    def mark(cls: C) -> C:
        cls.deviations = {**getattr(cls, "deviations", {}), law: " ".join(reason.split())}  # type: ignore[attr-defined]  # only classes of suites have it
        return cls

    return mark


def kind_of(cls: type) -> str:
    """Return the kind whose laws apply to a class: a kind of plugin, or "reranker".

    Raises TypeError for a class of no kind.
    """
    if issubclass(cls, Reranker):
        return "reranker"
    name = next((kind for kind, contract in KINDS.items() if issubclass(cls, contract)), None)
    if name is None:
        raise TypeError(f"{cls.__name__} is no plugin of any kind; derive it from one of {', '.join(KINDS)}.")
    return name


def settings_kind(cls: type) -> str:
    """Return the kind of a class in the settings. There a reranker is a stage."""
    return "stage" if issubclass(cls, Stage) else kind_of(cls)
