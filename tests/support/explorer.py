"""The explorer as a person uses it, for tests in a real browser."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.chromium import Page, browser
from support.example import ingest_example

PICTURES = Path(os.environ.get("PICTURES", ""))
DONE = "/ cited, in /.test(document.getElementById('status').textContent)"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as opened:
        yield opened
        assert [each for each in opened.complaints if "favicon" not in each] == []
        assert {url.split("/")[2] for url in opened.asked if url.startswith("http")} <= {
            "127.0.0.1:" + opened.port
        }


def at(page: Page, url: str) -> str:
    """The explorer's address; the page may ask no other server."""
    page.port = url.rpartition(":")[2]  # type: ignore[attr-defined]  # noted on the page for the fixture that reads it
    return f"{url}/explorer"


async def loaded(page: Page) -> None:
    """Wait until the page knows the sources."""
    await page.until("document.querySelectorAll('#sources li').length")


async def ask(page: Page, question: str) -> None:
    """Type a question and press Enter."""
    await loaded(page)
    await page.value("document.getElementById('question').focus()")
    await page.call("Input.insertText", text=question)
    await page.press("Enter", 13, "\r")
    await page.until(DONE)


async def give_key(page: Page, key: str) -> None:
    """Type the access key that the page asks for."""
    await page.until("!document.getElementById('keyed').hidden")
    page.complaints.clear()  # the browser notes the 401
    await page.value(
        f"(k => {{ k.value = {json.dumps(key)}; k.dispatchEvent(new Event('change'))"
        " })(document.getElementById('key'))"
    )


async def click(page: Page, selector: str) -> None:
    await page.value(f"document.querySelector({selector!r}).click()")


async def search(page: Page, question: str) -> None:
    """Ask for the documents alone."""
    await loaded(page)
    await page.value(f"document.getElementById('question').value = {json.dumps(question)}")
    await click(page, "#searched")
    await page.until("document.getElementById('status').textContent.includes(' and ')")


@pytest.fixture
async def example(tmp_path: Path) -> Path:
    """The folder of the example, ingested."""
    folder = tmp_path / "example"
    folder.mkdir()
    await ingest_example(folder)
    return folder


async def texts(page: Page, selector: str) -> list[str]:
    return await page.value(f"[...document.querySelectorAll({selector!r})].map(each => each.textContent)")
