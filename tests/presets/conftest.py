"""`TAKE_OUT=1` runs every test without the setting that its marker `without` names."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support import presets


@pytest.fixture(autouse=True)
def _take_out(request: pytest.FixtureRequest) -> Iterator[None]:
    marker = request.node.get_closest_marker("without")
    if os.environ.get("TAKE_OUT") and marker is not None:
        presets.taken_out.update(marker.kwargs)
    yield
    presets.taken_out.clear()
