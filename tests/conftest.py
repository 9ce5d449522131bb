"""What the tests share."""

from __future__ import annotations

import os

import hypothesis

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")

for _name in ("CONTEXTROUTER_SETTINGS", "COLUMNS"):  # the width of the terminal is that of the tests
    os.environ.pop(_name, None)
for _name in [name for name in os.environ if name.startswith("CONTEXTROUTER_")]:
    del os.environ[_name]  # tests set their own
