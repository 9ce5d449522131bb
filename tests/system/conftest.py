"""Fixtures of the tests of the explorer."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.explorer import example, page

__all__ = ["example", "page"]
