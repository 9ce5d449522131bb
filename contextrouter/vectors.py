"""Cosine similarity and unit vectors: in plain Python for few vectors, with numpy for many."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from contextrouter.model import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NOT_FINITE = "has a vector with values that are not finite; check the embedder"


def unit(vector: Vector) -> list[float] | None:
    """Return the unit vector; None for the zero vector, which has no direction.

    Raises ValueError for values that are not finite, and for anything but a flat list of numbers.
    """
    try:
        values = [float(value) for value in vector]
    except TypeError as error:
        raise ValueError("has a vector that is not flat; give a flat list of numbers") from error
    except OverflowError as error:  # a whole number of more than 308 digits
        raise ValueError(_NOT_FINITE) from error
    if not values:
        raise ValueError("has a vector without values; give a flat list of numbers")
    length = math.hypot(*values)
    if not 1e-150 < length < math.inf:  # divided by it, very small and very large values lose their digits
        if not all(map(math.isfinite, values)):
            raise ValueError(_NOT_FINITE)
        peak = max(map(abs, values))
        if peak == 0.0:
            return None
        values = [value / peak for value in values]
        length = math.hypot(*values)
    return [value / length for value in values]


def unit_array(vector: Vector | NDArray[Any]) -> NDArray[np.float32] | None:
    """As `unit`, but a float32 array. It needs numpy, and is five times as fast for an array."""
    import numpy as np

    try:
        values = np.asarray(vector, dtype=np.float64)
    except OverflowError as error:
        raise ValueError(_NOT_FINITE) from error
    if values.ndim != 1 or not values.size:
        raise ValueError(f"has a vector of shape {values.shape}; give a flat list of numbers")
    peak = float(np.abs(values).max())
    if not np.isfinite(peak):
        raise ValueError(_NOT_FINITE)
    if peak == 0.0:
        return None
    values = values / peak  # squares of very large or small values would leave what a float can hold
    return np.asarray(values / np.sqrt(values @ values), dtype="<f4")


def direction(vector: Vector | None) -> list[float]:
    """As `unit`, but an empty list for a missing or invalid vector and for the zero vector."""
    try:
        return ([] if vector is None else unit(vector)) or []
    except ValueError:
        return []


def cosine(u: Sequence[float], v: Sequence[float]) -> float:
    """Return the cosine of two unit vectors; 0.0 for vectors of different lengths."""
    return sum(map(float.__mul__, u, v)) if len(u) == len(v) else 0.0


class Near:
    """Cosines of `vectors` with the vector of a question, by number. What is no flat list of numbers, or has
    another length, is left out; a zero vector, and one with values that are not finite, has the cosine 0.
    Needs numpy.
    """

    def __init__(self, question: Vector, vectors: Mapping[int, Vector]) -> None:
        import numpy as np

        rows = [question, *vectors.values()]
        self.numbers = list(vectors)
        with np.errstate(all="ignore"):
            try:
                self._rows = np.asarray(rows, np.float32)
                if self._rows.ndim != 2 or not {*map(type, rows)} <= {list, tuple, np.ndarray}:
                    raise ValueError("vectors of other types or lengths")
            except (TypeError, ValueError, OverflowError):
                arrays = [_array(row) for row in rows]
                size = -1 if arrays[0] is None else len(arrays[0])
                alike = [(n, row) for n, row in enumerate(arrays) if row is not None and len(row) == size]
                self.numbers = [self.numbers[n - 1] for n, _ in alike if n]
                kept: list[Any] = [row for _, row in alike] or [[0.0]]
                self._rows = np.asarray(kept, np.float32)
            self._lengths = np.sqrt(np.einsum("ij,ij->i", self._rows, self._rows))
        unusable = ~((self._lengths > 0) & np.isfinite(self._lengths))
        if unusable.any():
            self._rows[unusable], self._lengths[unusable] = 0.0, 1.0
        self._question = self._rows[0] / self._lengths[0]
        self._row_of = {number: row for row, number in enumerate(self.numbers, 1)}

    def cosines(self, examples: Collection[int] = ()) -> dict[int, float]:
        """Return cosine by number. With `examples`, the query is the mean of the question and of their mean
        (Rocchio's relevance feedback).
        """
        target = self._question
        if examples:
            rows = [self._row_of[number] for number in examples]
            mean = (self._rows[rows] / self._lengths[rows, None]).mean(axis=0)
            target = target + mean
            target = target / (math.sqrt(float(target @ target)) or 1.0)
        cosines = self._rows[1:] @ target / self._lengths[1:]
        return dict(zip(self.numbers, cosines.tolist(), strict=True))


def _array(vector: object) -> NDArray[np.float32] | None:
    """Return a flat vector of numbers; None for anything else."""
    import numpy as np

    if not isinstance(vector, list | tuple | np.ndarray):
        return None
    try:
        row = np.asarray(vector, np.float32)
    except (TypeError, ValueError, OverflowError):
        return None
    return row if row.ndim == 1 and row.size else None


@cache
def can_compare() -> bool:
    """Whether numpy is installed."""
    return find_spec("numpy") is not None
