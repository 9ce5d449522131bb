"""Hooks of the documentation site: pages from outside docs/, pages of the API, and diagrams as a part of the
page.

mkdocs runs them; mkdocs.yml names this file.
"""

from __future__ import annotations

import posixpath
import re
from html import escape

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from page_sources import API, OUTSIDE, ROOT, api_pages

LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")
CELL = re.compile(r"<td[ >].*?</td>", re.S)
PICTURE = re.compile(r'<img alt="([^"]*)" src="([^"]+\.svg)" ?/?>')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files outside docs/, and of docstrings."""
    for source, path in OUTSIDE.items():
        text = (ROOT / source).read_text("utf-8")
        if not source.endswith(".md"):
            text = f"# The complete example: `{source}`\n\n```toml\n{text}```\n"
        files.append(File.generated(config, path, content=text))
    for path, (title, module, names) in api_pages().items():
        directives = "\n\n".join(f"::: {module}.{name}" for name in names)
        text = f"# {title}\n\nImport these names from `{module}`.\n\n{directives}\n"
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links between files of the repository lead to pages of the site."""
    path = page.file.src_uri
    if path == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    if path.startswith("api/") or path in OUTSIDE.values():
        page.meta["search"] = {"boost": 0.5}  # pages that explain come first
    if path == API:
        for target, (title, *_) in api_pages().items():
            markdown = markdown.replace(f"| {title} |", f"| [{title}]({target}) |")
    sources = {made: source for source, made in OUTSIDE.items()}
    folder = posixpath.dirname(sources.get(path, f"docs/{path}"))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        target = OUTSIDE.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(path) or ".") + (link[2] or "")

    return markdown if path.startswith("api/") else LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put each diagram into the page, where it takes the colours of the page, and show `\\|` in a cell as `|`."""

    def inline(picture: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(page.file.dest_uri, "..", picture[2]))
        svg = (ROOT / "docs" / path).read_text("utf-8")
        return svg.replace(
            "<svg ", f'<svg data-search-exclude role="img" aria-label="{escape(picture[1])}" ', 1
        )

    return CELL.sub(lambda cell: cell[0].replace(r"\|", "|"), PICTURE.sub(inline, html))
