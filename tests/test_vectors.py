"""Unit vectors and cosines: both ways to compute them agree, for values of any size."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter.vectors import Near, cosine, direction, unit, unit_array


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_a_unit_vector_has_length_one_in_plain_python_and_with_numpy(values: list[float]):
    plain, array = unit(values), unit_array(values)
    if plain is None or array is None:
        assert plain is array is None
        assert not any(values)
    else:
        assert math.hypot(*plain) == pytest.approx(1.0)
        assert array.tolist() == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, math.inf], [], [[1.0], [2.0]], [10**400, 1.0]])
def test_what_is_no_list_of_finite_numbers_is_refused_and_has_no_direction(values: list[float]):
    for function in (unit, unit_array):
        with pytest.raises(ValueError, match="has a vector"):
            function(values)
    assert direction(values) == []


def test_cosines_are_those_worked_out_by_hand():
    half = pytest.approx(math.sqrt(0.5))
    assert cosine(direction([2.0, 0.0]), direction([3.0, 3.0])) == half
    assert cosine(direction([2.0, 0.0]), direction([1.0])) == 0.0
    near = Near([2.0, 0.0], {4: [3.0, 3.0], 5: [1.0], 6: np.zeros(2), 7: [-1.0, 0.0]})  # type: ignore[dict-item]  # an array is a vector
    assert near.cosines() == {4: half, 6: 0.0, 7: pytest.approx(-1.0)}
