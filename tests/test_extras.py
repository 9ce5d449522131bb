"""The table of extras says what `pyproject.toml` has."""

from __future__ import annotations

import re

import pytest
import tomli
from support.example import ROOT

DEVELOPMENT = {"test", "quality", "docs", "check"}


def listed() -> dict[str, str]:
    """Each extra in the table of the quickstart, and whether `local` has it."""
    rows = re.findall(
        r"^\| (`.+?) \| .+? \| (\w*) ?\|$", (ROOT / "docs" / "quickstart.md").read_text("utf-8"), re.M
    )
    return {name: within for names, within in rows for name in re.findall(r"`([\w-]+)`", names)}


@pytest.mark.case("OPS-08")
def test_the_table_of_extras_lists_each_extra_and_whether_local_has_it():
    extras = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (local,) = extras["local"]
    within = set(re.search(r"\[(.+)\]", local)[1].split(","))
    expected = {name: "yes" if name in within else "no" for name in extras if name not in DEVELOPMENT}
    assert listed() == expected | {"local": "", "all": ""}


@pytest.mark.case("OPS-08")
@pytest.mark.parametrize("extra", ["serve", "mcp", "jwt", "eval", "plot"])
def test_an_extra_that_names_a_command_brings_the_command_line(extra: str):
    extras = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    brought, waiting = set(), [extra]
    while waiting:
        brought.add(name := waiting.pop())
        for requirement in extras[name]:
            ours = re.fullmatch(r"contextrouter-rag\[(.+)\]", requirement)
            waiting += ours[1].split(",") if ours else []
    assert "cli" in brought
