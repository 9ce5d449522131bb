"""The explorer in a real browser: it asks, shows progress, compares, explains; nothing a document says
becomes more than text.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.chromium import Page, browser
from support.example import QUESTION, CommandLine, ingest_example
from support.serving import KEY, ScriptedGenerator, document, key, router, serve_router

from contextrouter import ContextRouter
from contextrouter.testing.fakes import Fixed

PICTURES = Path(os.environ.get("PICTURES", ""))
HOSTILE = (
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'><a href='javascript:window.hurt ="
    " 1'>x</a>\u202e reversed \u2066 and {{7*7}} `${window.hurt = 1}`"
)
ANSWERABLE = "When does the reading group meet?"
DONE = "document.getElementById('status').textContent.includes('documents and')"


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


async def ask(page: Page, question: str) -> None:
    """Type a question and press Enter."""
    await page.until("document.querySelectorAll('#sources li').length")
    await page.value("document.getElementById('question').focus()")
    await page.call("Input.insertText", text=question)
    await page.press("Enter", 13, "\r")
    await page.until(DONE)


async def test_the_example_is_asked_explained_and_compared(page: Page, tmp_path: Path):
    await ingest_example(tmp_path / "example") if (tmp_path / "example").mkdir() is None else None
    pictures = PICTURES if PICTURES.name else tmp_path
    async with serve_router(ContextRouter.from_toml(tmp_path / "example" / "settings.toml")) as server:
        await page.open(at(page, server.url))
        await ask(page, QUESTION)
        assert await page.value("document.querySelectorAll('#plan tbody tr').length") >= 15
        assert await page.value("[...document.querySelectorAll('#plan .waiting')].length") == 0
        titles = await page.value(
            "[...document.querySelectorAll('#result h2')].map(each => each.textContent)"
        )
        assert [title.split(" (")[0] for title in titles] == [
            "Can it be answered?",
            "Selected",
            "Lost, and where",
            "Assembled context",
            "Facts",
            "Coverage",
            "Timings",
        ]
        assert await page.value("document.querySelectorAll('#hits .bar i').length") > 20
        await page.value("document.querySelector('#hits summary').click()")
        why = await page.until("document.querySelector('#hits details[open] ul')?.textContent")
        assert why.startswith("Its score is ")
        assert await page.value("document.querySelectorAll('#hits details[open] tbody tr').length") >= 1
        await page.value("document.querySelector('#lost summary').click()")
        assert "quota" in await page.value("document.querySelector('#lost summary').textContent")
        await page.until("document.querySelectorAll('#lost details[open] li').length")
        assert "tokens" in await page.value("document.querySelector('#context p').textContent")
        blocks = await page.value("document.querySelectorAll('#context tbody tr').length")
        assert blocks == await page.value("document.querySelectorAll('#hits h3').length") > 0
        await page.value("document.querySelectorAll('details[open] summary').forEach(each => each.click())")
        await page.picture(pictures / "explorer.png", height=1400)
        await page.picture(pictures / "explorer-dark.png", height=1400, dark=True)
        await page.picture(pictures / "explorer-narrow.png", width=390, height=844)
        assert await page.value("document.documentElement.scrollWidth <= 390")
        link = await page.value("document.getElementById('link').href")
        await page.value("document.getElementById('compare').click()")
        heads = await page.until(
            "[...document.querySelectorAll('#comparison h3')].map(each => each.textContent).join()"
        )
        assert heads == "hybrid,vector,text"
        assert await page.value(
            "[...document.querySelectorAll('#comparison ol')].every(each => each.children.length > 2)"
        )
        await page.picture(pictures / "explorer-compare.png")
        await page.open(link)  # asks the same again
        await page.until(DONE)
        assert await page.value("document.getElementById('question').value") == QUESTION


@pytest.mark.case("USE-11")
async def test_the_button_answer_shows_what_the_command_prints(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """From the example's library, with citations, and with no key."""
    folder = tmp_path / "example"
    folder.mkdir()
    await ingest_example(folder)
    pictures = PICTURES if PICTURES.name else tmp_path
    async with ContextRouter.from_toml(folder / "settings.toml") as lone:
        expected = await lone.answer(ANSWERABLE)
    assert expected.outcome == "answered"
    assert expected.citations
    async with serve_router(ContextRouter.from_toml(folder / "settings.toml")) as server:
        await page.open(at(page, server.url))
        await page.until("document.querySelectorAll('#sources li').length")
        await page.value(f"document.getElementById('question').value = {ANSWERABLE!r}")
        await page.value("document.getElementById('answered').click()")
        await page.until("document.getElementById('status').textContent.startsWith('answered')")
        assert await page.value("document.querySelector('#answer .answer').textContent") == expected.text
        shown = await page.value("[...document.querySelectorAll('#answer li')].map(each => each.textContent)")
        ordered = sorted(expected.citations, key=lambda citation: citation.number)
        assert shown == [f"[{c.number}] {c.title or c.url or c.source} {c.source}" for c in ordered]
        await page.value("document.querySelector('#answer a.number').click()")
        number = await page.value("document.querySelector('#answer a.number').textContent")
        top = f"document.getElementById('hit-{number[1:-1]}').getBoundingClientRect().top"
        assert await page.until(f"{top} >= 0 && {top} < window.innerHeight")
        await page.value("window.scrollTo(0, 0)")
        await page.picture(pictures / "explorer-answer.png", height=1100)
        await page.picture(pictures / "explorer-answer-narrow.png", width=390, height=844)
    ran = await asyncio.to_thread(CommandLine(monkeypatch, capsys), "ask", ANSWERABLE, cwd=folder)
    assert ran.code == 0
    assert ran.out.splitlines()[0] == expected.text


async def test_an_answer_that_is_hostile_is_text_and_leads_nowhere(page: Page):
    said = f"{HOSTILE} [1] [1](http://evil.example) ![x](http://evil.example) `[1]` and \\[2]"
    hits = [document("one", "The library opens at nine.")]
    settings = {"rag": {"interpreters": []}, "chat": {"synthesis_model": "said", "answer_links": "all"}}
    made = router(settings, answer=hits, generators={"said": ScriptedGenerator(said)})
    async with serve_router(made) as server:
        await page.open(at(page, server.url))
        await page.until("document.querySelectorAll('#sources li').length")
        await page.value("document.getElementById('question').value = 'When does it open?'")
        await page.value("document.getElementById('answered').click()")
        await page.until("document.getElementById('status').textContent.startsWith('answered')")
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
        await page.until("document.querySelectorAll('#sources li').length")
        await page.value("document.getElementById('question').value = 'q'")
        await page.value("document.getElementById('planned').click()")
        await page.until("document.getElementById('status').textContent.includes('Nothing was')")
        assert await page.value("document.querySelectorAll('#plan .waiting').length") == 2
        assert sources["fast"].queries == []
        await page.value("document.getElementById('submit').click()")
        count = "['ok', 'waiting'].map(each => document.querySelectorAll(`#plan .${each}`).length).join()"
        await page.until(f"{count} === '1,1'")
        await page.until(DONE)
        assert await page.value("document.querySelectorAll('#plan .ok').length") == 2


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
        seen = []
        for _ in range(25):
            await page.press("Tab", 9)
            seen.append(await page.value("document.activeElement.id || document.activeElement.tagName"))
        assert {
            "submit",
            "answered",
            "compare",
            "planned",
            "legs",
            "mode",
            "deadline",
            "link",
            "INPUT",
            "SUMMARY",
            "PRE",
        } <= set(seen)
        nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        wanted = ("button", "textbox", "combobox", "checkbox", "link", "heading", "region")
        named = [node for node in nodes if not node.get("ignored") and node["role"]["value"] in wanted]
        assert len(named) > 15
        assert [node for node in named if not node.get("name", {}).get("value")] == []
        assert any(node["role"]["value"] == "status" for node in nodes if not node.get("ignored"))
