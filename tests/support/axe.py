"""axe-core, which finds what people with disabilities cannot use on a page. npm brings it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from support.chromium import Page

PACKAGE = "axe-core@4"
SERIOUS = ("serious", "critical")


@cache
def axe_core() -> str:
    """The script of axe-core."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
            folder,
            PACKAGE,
        ]
        subprocess.run(command, check=True, capture_output=True)
        return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


async def axe_faults(page: Page, script: str) -> list[Any]:
    """The serious faults of a page: rule, what it says, and the first elements."""
    await page.value(f"{script}; 0")
    told = await page.value(
        "axe.run(document, { resultTypes: ['violations'] }).then(found => JSON.stringify(found.violations.map("
        "each => [each.impact, each.id, each.help, each.nodes.slice(0, 3).map(node => node.html)])))"
    )
    return [fault for fault in json.loads(told) if fault[0] in SERIOUS]
