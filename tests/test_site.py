"""The documentation site, without its builder: the navigation has every page, each link and anchor resolves,
and the pictures are those of their script.

tests/system/test_site.py builds the site and opens it in a browser.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.example import ROOT

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "site")]

import make_diagrams  # noqa: E402 - the folder of scripts is no package
from page_sources import OUTSIDE, api_pages, made_pages  # noqa: E402 - the folder of scripts is no package

PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *map(ROOT.joinpath, OUTSIDE))
    if path.suffix == ".md"
}
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#{1,6} +(.+)$", re.M)


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml; what it asks of Python is left out."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


@pytest.fixture(scope="module")
def configuration() -> Any:
    return yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)


def pages_of(entry: Any) -> Iterator[str]:
    """Yield the pages of a navigation, from top to bottom."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(part)


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page: small letters, hyphens for spaces, nothing else."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").casefold()
        slug = base = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = 0
        while slug in found:
            number += 1
            slug = f"{base}_{number}"
        found.add(slug)
    return found


def test_the_navigation_has_every_page_once_in_four_parts(configuration: Any):
    listed = list(pages_of(configuration["nav"]))
    files = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert sorted(listed) == sorted([*files, *made_pages()])
    parts = [next(iter(part)) for part in configuration["nav"]]
    assert parts == ["Home", "Tutorials", "How-to", "Reference", "Explanation"]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_link_and_anchor_of_a_page_resolves(name: str):
    text = CODE.sub("", FENCE.sub("", PAGES[name].read_text("utf-8")))
    broken = []
    for target, anchor in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name
        if not (ROOT / path).exists():
            broken.append(target)
        elif anchor and anchor not in anchors((ROOT / path).read_text("utf-8")):
            broken.append(f"{target}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("name", sorted(name for name in PAGES if name != "README.md"))
def test_what_a_page_links_to_is_a_part_of_the_site(name: str):
    """A page of docs/, a picture of it, or a file that becomes a page; the README is no page of the site."""
    text = CODE.sub("", FENCE.sub("", PAGES[name].read_text("utf-8")))
    targets = [target for target, _ in LINK.findall(text) if target and not re.match(r"[a-z]+:", target)]
    paths = [posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) for target in targets]
    assert [path for path in paths if not path.startswith("docs/") and path not in OUTSIDE] == []


def test_nothing_in_the_site_is_loaded_from_elsewhere(configuration: Any):
    """Fonts and scripts would be; so would diagrams in Mermaid, and pictures with an address."""
    assert configuration["theme"]["font"] is False
    assert "extra_javascript" not in configuration
    assert "repo_url" not in configuration  # the theme asks its host for the number of stars
    for name, path in PAGES.items():
        text = path.read_text("utf-8")
        assert "```mermaid" not in text, name
        assert (
            re.findall(r"!\[[^\]]*\]\(\w+:|<(?:script|img|iframe|link)\b", CODE.sub("", FENCE.sub("", text)))
            == []
        ), name


def test_the_api_reference_has_every_public_name_once():
    listed: dict[str, list[str]] = {}
    for page in api_pages().values():
        listed.setdefault(page.module, []).extend(page.names)
    public = {module: sorted(import_module(module).__all__) for module in listed}
    assert {module: sorted(names) for module, names in listed.items()} == public
    assert {"contextrouter", "contextrouter.ingest", "contextrouter.testing"} <= set(listed)


def test_adapters_import_public_names_alone():
    """They are distributions of their own: what is internal may change in any version."""
    public = {(page.module, name) for page in api_pages().values() for name in page.names}
    imported = {
        (node.module, alias.name)
        for path in (ROOT / "plugins").glob("*/**/*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "contextrouter"
        for alias in node.names
    }
    assert sorted(imported - public) == []
    assert bool(imported) == any((ROOT / "plugins").glob("*/pyproject.toml"))  # the source archive has none


def test_the_diagrams_are_those_of_their_script(tmp_path: Path):
    made = make_diagrams.main(tmp_path)
    kept = {path.name: path.read_text("utf-8") for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert {path.name: path.read_text("utf-8") for path in made} == kept
    text = "".join(path.read_text("utf-8") for path in PAGES.values())
    assert [name for name in kept if f"](images/{name})" not in text] == []
