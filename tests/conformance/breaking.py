"""Which law a deliberately broken plugin breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from contextrouter.contracts import Plugin

P = TypeVar("P", bound=type[Plugin])
BROKEN: dict[str, list[type[Plugin]]] = {}


def breaks(law: str) -> Callable[[P], P]:
    """Enter a class that breaks `law` and keeps all others of its kind."""

    def enter(cls: P) -> P:
        BROKEN.setdefault(law, []).append(cls)
        return cls

    return enter
