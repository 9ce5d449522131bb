"""Of which kind a class is, and which laws it says that it does not keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from contextrouter.contracts import KINDS, Reranker, Stage

C = TypeVar("C", bound=type)


def deviates(reason: str, *, law: str) -> Callable[[C], C]:
    """Say that a plugin, or a suite of tests, does not keep the law named `law`, and why.

    For classes. The law is not checked, and every verdict shows the reason. Raises ValueError for a blank
    reason.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError(f"Deviation from {law!r} has no reason; say why the law does not fit.")

    def mark(cls: C) -> C:
        cls.deviations = {**getattr(cls, "deviations", {}), law: " ".join(reason.split())}  # type: ignore[attr-defined]  # only classes of suites have it
        return cls

    return mark


def kind_of(cls: type) -> str:
    """The kind whose laws a class is under: a kind of plugin, or "reranker". Raises TypeError for a class
    that is of none.
    """
    if issubclass(cls, Reranker):
        return "reranker"
    found = next((kind for kind, contract in KINDS.items() if issubclass(cls, contract)), None)
    if found is None:
        raise TypeError(f"{cls.__name__} is no plugin of any kind; derive it from one of {', '.join(KINDS)}.")
    return found


def settings_kind(cls: type) -> str:
    """The kind in whose tables the class stands: as `kind_of`, rerankers being stages."""
    return "stage" if issubclass(cls, Stage) else kind_of(cls)
