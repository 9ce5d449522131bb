"""The explorer in a real browser: it asks, shows progress, compares, explains; nothing a document says
becomes more than text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.axe import axe_core, axe_faults
from support.chromium import Page, browser
from support.example import QUESTION, CommandLine, ingest_example
from support.pdf_files import pdf
from support.serving import KEY, ScriptedGenerator, document, key, router, serve_router

from contextrouter import ContextRouter
from contextrouter.testing.fakes import Fixed

PICTURES = Path(os.environ.get("PICTURES", ""))
HOSTILE = (
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'><a href='javascript:window.hurt ="
    " 1'>x</a>\u202e reversed \u2066 and {{7*7}} `${window.hurt = 1}`"
)
ANSWERABLE = "When does the reading group meet?"
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


@pytest.mark.case("USE-18")
async def test_an_example_leads_to_answer_cards_and_how_it_came_about(page: Page, example: Path):
    """Above the fold of a laptop stand the answer and two cards; the rest is told when it is asked for."""
    pictures = PICTURES if PICTURES.name else example
    async with serve_router(ContextRouter.from_toml(example / "settings.toml")) as server:
        await page.open(at(page, server.url).removesuffix("explorer"))
        await page.picture(pictures / "explorer-first.png", width=1280)
        await page.until("document.querySelectorAll('#examples button').length")
        assert (await texts(page, "#examples button"))[0] == QUESTION
        await click(page, "#examples button")
        await page.until(DONE)
        await page.picture(pictures / "explorer.png", width=1280)
        bottom = "document.getElementById('{}').getBoundingClientRect().bottom"
        assert await page.value(bottom.format("answer")) < await page.value(bottom.format("hit-2")) < 900
        heads = await texts(page, "#result h2")
        assert [head.split(" (")[0] for head in heads] == ["Answer", "Documents", "How it came about"]
        assert await page.value("document.querySelectorAll('#hits .bar i').length") > 20
        assert "machine" in await texts(page, "#hit-1 mark")
        assert await page.value("document.querySelectorAll('#hit-1 h3 a').length") == 1
        line = await page.value("document.getElementById('coverage-line').textContent")
        assert line == "All of 19 calls to 5 sources answered."
        assert await page.value("document.querySelectorAll('#course details[open]').length") == 0
        await click(page, "#hits summary")
        why = await page.until("document.querySelector('#hits details[open] ul')?.textContent")
        assert why.startswith("Its score is ")
        for part in ("coverage", "plan", "timings", "lost", "facts", "context"):
            await click(page, f"#{part} summary")
            await page.until(f"document.querySelector('#{part}[open] > div').childElementCount")
        assert await page.value("document.querySelectorAll('#plan tbody tr').length") >= 15
        assert await page.value("document.querySelectorAll('#plan .waiting').length") == 0
        assert (await texts(page, ".funnel .name"))[:2] == ["found", "distinct"]
        numbers = [int(number) for number in await texts(page, ".funnel .n")]
        assert numbers == sorted(numbers, reverse=True)
        assert numbers[-1] == await page.value("document.querySelectorAll('#hits h3').length")
        assert any("quota" in reason for reason in await texts(page, ".funnel summary"))
        assert await page.value("document.querySelectorAll('#facts svg .node').length") > 4
        await page.picture(pictures / "explorer-course.png", width=1280, whole=True)


async def test_bars_of_time_are_drawn_to_scale(page: Page):
    """A call that takes twice as long has a bar twice as long, and begins where its step begins."""
    sources = {"short": Fixed("a", delay=0.4), "long": Fixed("b", delay=0.8)}
    async with serve_router(router(connectors=sources)) as server:
        await page.open(at(page, server.url))
        await ask(page, "q")
        await click(page, "#timings summary")
        await page.until("document.querySelectorAll('.fall .call').length === 2")
        rows = await page.value(
            "[...document.querySelectorAll('.fall .call')].map(each => [each.textContent,"
            " parseFloat(each.nextSibling.firstChild.style.width),"
            " parseFloat(each.nextSibling.nextSibling.textContent)])"
        )
        widths = {name.split()[0]: (width, time) for name, width, time in rows}
        ratio = widths["long"][0] / widths["short"][0]
        assert ratio == pytest.approx(widths["long"][1] / widths["short"][1], rel=0.02)


async def test_dark_and_narrow_the_page_is_whole_and_legs_are_compared(page: Page, example: Path):
    pictures = PICTURES if PICTURES.name else example
    async with serve_router(ContextRouter.from_toml(example / "settings.toml")) as server:
        await page.open(at(page, server.url))
        await ask(page, QUESTION)
        await page.picture(pictures / "explorer-dark.png", width=1280, dark=True)
        await page.picture(pictures / "explorer-narrow.png", width=390, height=844)
        assert await page.value("document.documentElement.scrollWidth <= 390")
        link = await page.value("document.getElementById('link').href")
        assert (await texts(page, "#legs option"))[:3] == ["all", "vector", "text"]
        await click(page, "#compare")
        heads = await page.until(
            "[...document.querySelectorAll('#comparison h3')].map(each => each.textContent).join()"
        )
        assert heads == "all legs,vector,text"
        assert await page.value(
            "[...document.querySelectorAll('#comparison ol')].every(each => each.children.length > 2)"
        )
        await page.picture(pictures / "explorer-compare.png")
        await page.open(link)  # asks the same again
        await page.until(DONE)
        assert await page.value("document.getElementById('question').value") == QUESTION


@pytest.mark.case("USE-11")
async def test_the_page_shows_what_the_command_prints(
    page: Page, example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """From the example's library, with citations, and with no key."""
    async with ContextRouter.from_toml(example / "settings.toml") as lone:
        expected = await lone.answer(ANSWERABLE)
    assert expected.outcome == "answered"
    assert expected.citations
    async with serve_router(ContextRouter.from_toml(example / "settings.toml")) as server:
        await page.open(at(page, server.url))
        await ask(page, ANSWERABLE)
        assert await page.value("document.querySelector('#answer .answer').textContent") == expected.text
        ordered = sorted(expected.citations, key=lambda citation: citation.number)
        shown = await texts(page, "#answer .cited li")
        for line, citation in zip(shown, ordered, strict=True):
            assert line.startswith(f"[{citation.number}] {citation.title}")
            assert line.endswith(citation.job or citation.source)
        await click(page, "#answer a.number")
        number = await page.value("document.querySelector('#answer a.number').textContent")
        top = f"document.getElementById('hit-{number[1:-1]}').getBoundingClientRect().top"
        assert await page.until(f"{top} >= 0 && {top} < window.innerHeight")
        assert await page.value("document.activeElement.id") == f"hit-{number[1:-1]}"
    ran = await asyncio.to_thread(CommandLine(monkeypatch, capsys), "ask", ANSWERABLE, cwd=example)
    assert ran.code == 0
    assert ran.out.splitlines()[0] == expected.text


@pytest.mark.case("USE-05")
async def test_a_citation_of_a_pdf_opens_at_its_page_and_a_text_at_its_line(page: Page, tmp_path: Path):
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


async def test_the_question_is_copied_as_curl_and_as_a_program(page: Page, tmp_path: Path):
    """Both ask the same, and neither holds the key."""
    async with serve_router(router(key())) as server:
        await page.open(at(page, server.url))
        await page.until("!document.getElementById('keyed').hidden")
        page.complaints.clear()  # the browser notes the 401
        await page.value(
            f"(k => {{ k.value = '{KEY}'; k.dispatchEvent(new Event('change'))"
            " })(document.getElementById('key'))"
        )
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


async def test_an_answer_that_is_hostile_is_text_and_leads_nowhere(page: Page):
    said = f"{HOSTILE} [1] [1](http://evil.example) ![x](http://evil.example) `[1]` and \\[2]"
    hits = [document("one", "The library opens at nine.")]
    settings = {"rag": {"interpreters": []}, "chat": {"synthesis_model": "said", "answer_links": "all"}}
    made = router(settings, answer=hits, generators={"said": ScriptedGenerator(said)})
    async with serve_router(made) as server:
        await page.open(at(page, server.url))
        await ask(page, "When does it open?")
        assert await page.value("window.hurt") is None
        assert await page.value("document.querySelectorAll('#answer script, #answer img').length") == 0
        links = await page.value("[...document.querySelectorAll('#answer .answer a')].map(each => each.hash)")
        assert set(links) == {"#hit-1"}
        text = await page.value("document.querySelector('#answer .answer').textContent")
        assert "<script>window.hurt = 1</script>" in text
        assert text.endswith("and [2]")


async def test_sources_are_told_as_they_come_and_the_plan_before(page: Page):
    sources = {"fast": Fixed("a"), "slow": Fixed("b", delay=2.0)}
    async with serve_router(router(connectors=sources)) as server:
        await page.open(at(page, server.url))
        await loaded(page)
        await page.value("document.getElementById('question').value = 'q'")
        await click(page, "#planned")
        await page.until("document.getElementById('status').textContent.includes('Nothing was')")
        assert await page.value("document.querySelectorAll('#progress .waiting').length") == 2
        assert sources["fast"].queries == []
        await click(page, "#searched")
        count = "['ok', 'waiting'].map(each => document.querySelectorAll(`#progress .${each}`).length).join()"
        await page.until(f"{count} === '1,1'")
        await page.until("document.getElementById('status').textContent.includes(' and ')")
        assert await page.value("document.querySelectorAll('#progress .ok').length") == 2


async def test_a_hostile_document_is_text_and_nothing_else(page: Page):
    hostile = document("x", HOSTILE).document.replace(
        title=HOSTILE + "T" * 50_000,
        url="javascript:window.hurt=1",
        path=(HOSTILE,),
        kind=HOSTILE,
        id=HOSTILE,
    )
    hits = [document("x").replace(document=hostile), document("fine")]
    async with serve_router(router(answer=hits)) as server:
        await page.open(at(page, server.url))
        await ask(page, HOSTILE.replace("\u202e", ""))
        await page.value("document.querySelectorAll('summary').forEach(each => each.click())")
        assert await page.value("window.hurt") is None
        assert (
            await page.value(
                "document.querySelectorAll('#result script, #result img, #result a[href^=javascript]').length"
            )
            == 0
        )
        assert "<script>window.hurt = 1</script>" in await page.value(
            "document.querySelector('#hits h3').textContent"
        )
        assert not await page.value(
            "/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.getElementById('result').textContent)"
        )
        assert await page.value("document.documentElement.scrollWidth <= window.innerWidth")


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


async def test_a_thousand_candidates_do_not_make_the_page_stutter(page: Page):
    many = [document(f"d{n}", f"Text number {n}. " * 20) for n in range(1000)]
    settings = {
        "rag": {
            "interpreters": [],
            "general_retrieval_final_count": 1000,
            "token_budget": 0,
            "candidates": 1000,
        }
    }
    async with serve_router(router(settings, answer=many)) as server:
        await page.open(at(page, server.url))
        await page.value(
            "window.longest = 0; new PerformanceObserver(l => l.getEntries().forEach(e => { window.longest = "
            "Math.max(window.longest, e.duration) })).observe({ entryTypes: ['longtask'] })"
        )
        await ask(page, "text")
        await page.until("document.querySelectorAll('#hits > ol > li').length === 1000")
        sys.stderr.write(f"longest task: {await page.value('window.longest')} ms\n")
        assert await page.value("document.querySelectorAll('#hits > ol > li').length") == 1000


async def test_axe_finds_no_serious_fault(page: Page, example: Path):
    """The rules of WCAG that axe-core checks, on the first sight, on an answer with all parts open, and dark."""
    script = await asyncio.to_thread(axe_core)
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


async def test_with_keys_the_page_asks_for_one_and_shows_what_it_may_not_see(page: Page):
    sources = {"docs": Fixed("a"), "payroll": Fixed("b")}
    settings = key() | {"connectors": {"payroll": {"compartment": "hr"}}}
    async with serve_router(router(settings, connectors=sources)) as server:
        await page.open(at(page, server.url))
        await page.until("!document.getElementById('keyed').hidden")
        page.complaints.clear()  # the browser notes the 401
        await page.value(
            f"(k => {{ k.value = '{KEY}'; k.dispatchEvent(new Event('change'))"
            " })(document.getElementById('key'))"
        )
        await page.until("document.querySelectorAll('#sources li').length === 2")
        assert "excluded: outside the caller's scope" in await page.value(
            "document.querySelector('#sources .off').textContent"
        )
        await ask(page, "q")
        assert KEY not in await page.value("document.getElementById('link').href + location.href")


async def test_everything_is_reached_by_keyboard_and_has_a_name(page: Page):
    async with serve_router(router()) as server:
        await page.open(at(page, server.url))
        await ask(page, "q")
        await click(page, "#options summary")
        seen = []
        for _ in range(40):
            await page.press("Tab", 9)
            seen.append(await page.value("document.activeElement.id || document.activeElement.tagName"))
        assert {
            "submit",
            "searched",
            "compare",
            "planned",
            "legs",
            "mode",
            "deadline",
            "link",
            "INPUT",
            "SUMMARY",
            "BUTTON",
        } <= set(seen)
        nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        wanted = ("button", "textbox", "combobox", "checkbox", "link", "heading", "region")
        named = [node for node in nodes if not node.get("ignored") and node["role"]["value"] in wanted]
        assert len(named) > 15
        assert [node for node in named if not node.get("name", {}).get("value")] == []
        assert any(node["role"]["value"] == "status" for node in nodes if not node.get("ignored"))
