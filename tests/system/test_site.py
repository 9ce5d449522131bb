"""The documentation site in a real browser: built strictly, narrow enough for a telephone, searched, and with
no request to another host.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown_it import MarkdownIt
from support.chromium import Page, browser
from support.example import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "site"))

from page_sources import OUTSIDE, api_pages

NARROW = 390  # pixels: a telephone
PICTURES = Path(os.environ.get("PICTURES", ""))  # a folder for screenshots, to be looked at
SHOWN = ("", "settings/", "api/results/", "not-found/", "tutorial/", "comparison/")
# What people look for, and the pages of which one has to be among the first three.
SEARCHED = {
    "circuit breaker": ("glossary", "settings", "faq"),
    "ACL": ("permissions",),
    "reranker": ("ranking", "settings", "plugin-reference", "writing-plugins"),
}


TAGS = re.compile(r"<(li|ul|ol|table|tr|td|h[1-6]|blockquote|em|strong|img|hr)\b")
SOURCES = {path: path for path in sorted(path.name for path in (ROOT / "docs").glob("*.md"))} | {
    page: f"../{path}" for path, page in OUTSIDE.items() if path.endswith(".md")
}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    """The address of the site, served on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(built)))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    serving.join()
    server.server_close()


def pages_of(built: Path) -> list[str]:
    """The addresses of all pages, relative to that of the site."""
    return sorted(path.parent.relative_to(built).as_posix() for path in built.rglob("index.html"))


async def resize(page: Page, width: int, height: int) -> None:
    await page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
    )


def elsewhere(page: Page, address: str) -> list[str]:
    """What the page asked of another host; data in the page itself is no request."""
    own = (address, "data:", "about:", "blob:")
    return [url for url in page.asked if not url.startswith(own)]


def tags(html: str) -> Counter[str]:
    """Count what a page is made of."""
    return Counter(TAGS.findall(html))


@pytest.mark.parametrize("page", SOURCES)
def test_a_page_has_the_same_lists_and_tables_as_elsewhere(built: Path, page: str):
    """The builder of the site reads Markdown in another way than CommonMark: it wants a blank line before a list,
    and four spaces within one. Each page shows the same in both.
    """
    text = (ROOT / "docs" / SOURCES[page]).read_text("utf-8")
    expected = tags(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    name = "index.html" if page == "index.md" else f"{page.removesuffix('.md')}/index.html"
    html = (built / name).read_text("utf-8")
    shown = html[html.index("<article") : html.index("</article>")].partition('<div class="md-source-file')[0]
    for diagram in re.findall(r"<svg [^>]*class=\"diagram.*?</svg>", shown, re.S):
        shown = shown.replace(diagram, "<img>")
    assert tags(re.sub(r"<svg .*?</svg>", "", shown, flags=re.S)) == expected
    assert r"\|" not in "".join(re.findall(r"<td[ >].*?</td>", shown, re.S))


def test_the_api_reference_describes_each_public_name_and_the_fields_of_results(built: Path):
    for path, page in api_pages().items():
        html = (built / path.removesuffix(".md") / "index.html").read_text("utf-8")
        assert [name for name in page.names if f'id="{page.module}.{name}"' not in html] == [], path
    results = (built / "api" / "results" / "index.html").read_text("utf-8")
    assert 'id="contextrouter.Document.snippet"' in results
    assert "<p>stored; does not depend on the query</p>" in results  # the comment behind the field


async def test_no_page_asks_another_host_or_is_wider_than_a_telephone(
    built: Path, address: str, tmp_path: Path
):
    pages = pages_of(built)
    assert len(pages) > 40
    async with browser(tmp_path) as page:
        await resize(page, NARROW, 844)
        wide = {}
        for name in pages:
            await page.open(f"{address}{name}/".replace("/./", "/"))
            width = await page.value("document.documentElement.scrollWidth")
            if width > NARROW:
                wide[name] = width
        assert wide == {}
        assert elsewhere(page, address) == []
        assert page.complaints == []


async def test_the_search_finds_what_people_look_for(address: str, tmp_path: Path):
    async with browser(tmp_path) as page:
        await resize(page, 1280, 900)
        for words, wanted in SEARCHED.items():
            await page.open(address)
            await page.value("document.querySelector('.md-search__input').focus()")
            await page.call("Input.insertText", text=words)
            await page.until("document.querySelectorAll('.md-search-result__item').length")
            links = await page.value(
                "[...document.querySelectorAll('.md-search-result__item > a')].map(each => each.pathname)"
            )
            best = [path.strip("/").split("/")[-1] for path in links[:3]]
            assert set(best) & set(wanted), (words, links)
            assert elsewhere(page, address) == []


async def test_a_diagram_takes_the_colours_of_the_page(address: str, tmp_path: Path):
    """In the dark, its boxes are dark and its texts light."""
    colour = "getComputedStyle(document.querySelector('svg.diagram {}')).fill"
    async with browser(tmp_path) as page:
        seen = {}
        for dark in (False, True):
            scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
            await page.call("Emulation.setEmulatedMedia", features=scheme)
            await page.open(f"{address}not-found/")
            seen[dark] = [await page.value(colour.format(part)) for part in (".box", ".box + text")]
            if PICTURES.name:
                await pictures(page, address, dark)
        assert brightness(seen[False][0]) > brightness(seen[False][1])
        assert brightness(seen[True][0]) < brightness(seen[True][1])


def brightness(colour: str) -> float:
    """The sum of red, green and blue of `rgb(…)` or `rgba(…)`."""
    return sum(float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])


async def pictures(page: Page, address: str, dark: bool) -> None:
    """Save what pages look like, wide and narrow."""
    for name in SHOWN:
        for width in (1280, NARROW):
            await resize(page, width, 900)
            await page.open(address + name)
            await asyncio.sleep(0.3)  # the theme fades in
            file = f"site-{name.replace('/', '-')}{width}{'-dark' if dark else ''}.png"
            await page.picture(PICTURES / file, width=width, dark=dark)
