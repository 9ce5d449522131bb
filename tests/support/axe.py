"""axe-core, which finds what people with disabilities cannot use on a page. A package of pip brings it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from support.chromium import Page

SERIOUS = ("serious", "critical")


@cache
def axe_core() -> str:
    """The script of axe-core."""
    return (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


async def axe_faults(page: Page, script: str) -> list[Any]:
    """The serious faults of a page: rule, what it says, and the first elements."""
    await page.value(f"{script}; 0")
    told = await page.value(
        "axe.run(document, { resultTypes: ['violations'] }).then(found => JSON.stringify(found.violations.map("
        "each => [each.impact, each.id, each.help, each.nodes.slice(0, 3).map(node => node.html)])))"
    )
    return [fault for fault in json.loads(told) if fault[0] in SERIOUS]
