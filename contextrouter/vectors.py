"""How near candidates are to a question, by the vectors that they brought along. Needs numpy, as whatever
makes vectors does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

from contextrouter.model import Vector


class Near:
    """Cosines of `vectors` with a question's vector, by number. Vectors of another length, or without a
    direction, are left out.
    """

    def __init__(self, question: Vector, vectors: Mapping[int, Vector]) -> None:
        import numpy as np

        self._question = _units(np.asarray([question], np.float64))[0]
        fitting = {number: vector for number, vector in vectors.items() if len(vector) == len(question)}
        self.numbers = list(fitting)
        self._rows = _units(
            np.asarray(list(fitting.values()), np.float64).reshape(len(fitting), len(question))
        )
        self._place = {number: place for place, number in enumerate(self.numbers)}

    def cosines(self, examples: Collection[int] = ()) -> dict[int, float]:
        """Cosine by number; with `examples`, with the middle between the question and their mean (Rocchio's
        feedback).
        """
        asked = self._question
        if examples:
            mean = self._rows[[self._place[number] for number in examples]].mean(axis=0)
            asked = _units((asked + mean)[None])[0]
        return dict(zip(self.numbers, (self._rows @ asked).tolist(), strict=True))


def can_compare() -> bool:
    """Whether vectors can be compared here."""
    return find_spec("numpy") is not None


def _units(rows: Any) -> Any:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=(lengths > 0) & np.isfinite(lengths))
