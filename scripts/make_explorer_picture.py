"""Make docs/explorer.png: the explorer as it answers the question of the example. Needs chromium, and the
packages of the tests.

.venv/bin/python scripts/make_explorer_picture.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.chromium import browser  # noqa: E402 - the folder of tests is no package
from support.example import QUESTION, ingest_example  # noqa: E402 - the folder of tests is no package
from support.explorer import ask  # noqa: E402 - the folder of tests is no package
from support.serving import serve_router  # noqa: E402 - the folder of tests is no package

from contextrouter import ContextRouter  # noqa: E402 - the folder of tests is no package

WIDTH, HEIGHT = 1280, 900


async def make(folder: Path) -> Path:
    """Ask the example in a browser, and save what it shows from the answer on."""
    (folder / "example").mkdir()
    await ingest_example(folder / "example")
    path = ROOT / "docs" / "explorer.png"
    router = ContextRouter.from_toml(folder / "example" / "settings.toml")
    async with serve_router(router) as server, browser(folder / "profile") as page:
        await page.open(f"{server.url}/explorer")
        await ask(page, QUESTION)
        await page.picture(path, width=WIDTH, height=HEIGHT)
    return path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(asyncio.run(make(Path(made))))
