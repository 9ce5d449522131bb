"""The explorer in a real browser: it asks, shows progress, compares, explains; nothing a document says
becomes more than text.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.chromium import Page
from support.example import QUESTION, CommandLine
from support.explorer import DONE, PICTURES, ask, at, click, give_key, loaded, texts
from support.serving import KEY, ScriptedGenerator, document, key, router, serve_router

from contextrouter import ContextRouter
from contextrouter.testing.fakes import Fixed

HOSTILE = (
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'><a href='javascript:window.hurt ="
    " 1'>x</a>\u202e reversed \u2066 and {{7*7}} `${window.hurt = 1}`"
)
ANSWERABLE = "When does the reading group meet?"


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
        assert "which-book-first.md" in await page.value("document.querySelector('#hit-2 .dim').textContent")
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
        await give_key(page, KEY)
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
