"""What the explorer shows of documents and citations, in a real browser; and that everybody can use it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.axe import axe_core, axe_faults
from support.chromium import Page
from support.example import QUESTION
from support.explorer import PICTURES, ask, at, give_key, search, texts
from support.pdf_files import pdf
from support.serving import KEY, document, key, router, serve_router

from contextrouter import ContextRouter


@pytest.mark.case("USE-05")
async def test_a_pdf_opens_at_its_page_and_a_text_at_its_line(page: Page, tmp_path: Path):
    (tmp_path / "notes").mkdir()
    pages = [[f"Nothing of interest stands on sheet {number}."] for number in range(1, 9)]
    pages[4] = ["The narwhal has one tusk."]
    (tmp_path / "notes" / "report.pdf").write_bytes(pdf(pages))
    filler = "Nothing of interest.\n\n" * 60
    (tmp_path / "notes" / "seal.md").write_text(f"# Seals\n\n{filler}## Food\n\nA seal eats fish.\n")
    notes = {"notes": {"use": "files", "path": str(tmp_path / "notes")}}
    made = {"rag": {"interpreters": []}, "connectors": notes, "serve": {"files": True}}
    async with serve_router(ContextRouter(made)) as server:
        await page.open(at(page, server.url))
        await search(page, "narwhal tusk")
        href = await page.value("document.querySelector('#hit-1 h3 a').href")
        assert href.endswith("/v1/files?source=notes&id=report.pdf#page=5")
        await page.open(href)
        assert await page.value("document.contentType") == "application/pdf"
        assert await page.value("location.hash") == "#page=5"  # which the viewer of the browser obeys
        if PICTURES.name:
            await asyncio.sleep(2)  # the viewer draws in a process of its own
            await page.picture(PICTURES / "explorer-pdf.png")
        await page.open(at(page, server.url))
        await search(page, "What does a seal eat?")
        await page.open(await page.value("document.querySelector('#hit-1 h3 a').href"))
        target = await page.value("document.querySelector(':target').textContent")
        assert target == "A seal eats fish."
        assert await page.value("document.querySelector(':target').getBoundingClientRect().top < innerHeight")


async def test_with_a_key_the_page_opens_a_cited_file_itself(page: Page, tmp_path: Path):
    """A link sends no key. The file opens in a page of its own, at its place, and not without the key."""
    (tmp_path / "report.pdf").write_bytes(pdf([["Contents of the report."], ["The narwhal has one tusk."]]))
    notes = {"notes": {"use": "files", "path": str(tmp_path), "patterns": ["*.pdf"]}}
    settings = {"rag": {"interpreters": []}, "connectors": notes, "serve": {"files": True}}
    async with serve_router(ContextRouter(settings | key())) as server:
        await page.open(at(page, server.url))
        await give_key(page, KEY)
        await search(page, "narwhal tusk")
        await page.until("!!document.querySelector('#hit-1 h3 a')")
        href = await page.value("document.querySelector('#hit-1 h3 a').href")
        assert (await server(href.removeprefix(server.url))).status == 401
        click = "document.querySelector('#hit-1 h3 a').click()"
        await page.call("Runtime.evaluate", expression=click, userGesture=True)
        async with asyncio.timeout(60):
            while True:
                targets = (await page.call("Target.getTargets"))["targetInfos"]
                pages = [target["url"] for target in targets if target["type"] == "page"]
                if any(url.startswith("blob:") and url.endswith("#page=2") for url in pages):
                    break
                await asyncio.sleep(0.05)


async def test_the_question_is_copied_as_curl_and_as_a_program(page: Page, tmp_path: Path):
    """Both ask the same, and neither holds the key."""
    async with serve_router(router(key())) as server:
        await page.open(at(page, server.url))
        await give_key(page, KEY)
        await ask(page, 'what\'s "a"?')
        await page.value("navigator.clipboard.writeText = text => { window.copied = text }")
        for name, command in (("curl", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
            await page.value(
                "[...document.querySelectorAll('.copies button')].find(each =>"
                f" each.textContent.endsWith('{name}')).click()"
            )
            text = await page.until(
                f"window.copied?.startsWith('{'curl' if name == 'curl' else 'import'}') && copied"
            )
            assert KEY not in text
            ran = await asyncio.create_subprocess_exec(
                *command,
                text,
                env={**os.environ, "CONTEXTROUTER_KEY": KEY, "no_proxy": "127.0.0.1"},
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await ran.communicate()
            assert "No passage of the context answers this." in out.decode()


async def test_markdown_of_a_document_is_rendered_and_words_are_marked(page: Page):
    """Headings, lists, tables and code are elements; HTML and addresses of other kinds are text."""
    said = (
        "# Tides\n\nThe *tide* is **high**, see [the table](https://example.org/t) and [no](javascript:hurt).\n\n"
        "- one tide\n- two\n\n| port | m |\n|---|---|\n| Brest | 6 |\n\n> a quote\n\n```\n<b>code</b>\n```\n<b>bold</b>"
    )
    async with serve_router(router(answer=[document("t", said)])) as server:
        await page.open(at(page, server.url))
        await search(page, "When are the tides?")
        await page.until("!!document.querySelector('#hit-1 .text')")
        await page.value("document.querySelector('#hit-1 .more')?.click()")
        counts = {
            selector: await page.value(f"document.querySelectorAll('#hit-1 .text {selector}').length")
            for selector in ("em", "strong", "ul li", "td", "blockquote", "pre", "b", "a")
        }
        assert counts == {
            "em": 1, "strong": 1, "ul li": 2, "td": 2, "blockquote": 1, "pre": 1, "b": 0, "a": 1
        }  # fmt: skip
        assert set(await texts(page, "#hit-1 .text mark")) == {"Tides", "tide"}
        assert "<b>bold</b>" in await page.value("document.querySelector('#hit-1 .text').textContent")


async def test_axe_finds_no_serious_fault(page: Page, example: Path):
    """The rules of WCAG that axe-core checks, on the first sight, on an answer with all parts open, and dark."""
    script = axe_core()
    async with serve_router(ContextRouter.from_toml(example / "settings.toml")) as server:
        await page.open(at(page, server.url))
        await page.until("document.querySelectorAll('#examples button').length")
        assert await axe_faults(page, script) == []
        await ask(page, QUESTION)
        await page.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
        await page.until("document.querySelectorAll('#hits details > div > ul').length === 17")
        assert await axe_faults(page, script) == []
        await page.picture(example / "dark.png", dark=True)
        assert await axe_faults(page, script) == []
