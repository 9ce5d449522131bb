"""What the tests share."""

from __future__ import annotations

import os

os.environ.pop("CONTEXTROUTER_SETTINGS", None)
for _name in [name for name in os.environ if name.startswith("CONTEXTROUTER_")]:
    del os.environ[_name]  # tests set their own
