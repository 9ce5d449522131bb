"""The examples of the README run, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def test_the_examples_of_the_readme_print_what_it_says():
    blocks: list[tuple[str, str]] = BLOCK.findall(README.read_text("utf-8"))
    names: dict[str, object] = {"__name__": "__main__"}
    shown = 0
    for (language, text), (following, expected) in pairwise([*blocks, ("", "")]):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, str(README), "exec", dont_inherit=True), names)
        if following == "text":
            assert printed.getvalue() == expected
            shown += 1
    assert shown >= 3
