"""The public surface: its names are pinned, and importing it is cheap and loads nothing optional."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import contextrouter

ROOT = Path(__file__).parents[1]
NAMES = """
Abstention AllSourcesFailed Answer Answerability Call Citation Clarification Completion Connector Context ContextRouter ContextRouterError ContractError Document
Embedder Entity Entry Envelope Facet Fact FactSource FilePath Generator Harvest Hit IngestError Intent Interpreter InterpreterContext
LinkDegrees MissingDependency ModelUsage
Partial Period Plan Plugin PluginError PluginNotFound Portal Problem Provenance Provider Query Rag RankedList Refusal Request RequestRefused
Reranker Scope Settings SettingsError Source SourceError SourceReport SourceTimeout Stage StageContext StageError Step SupportsCrawl
SupportsDegrees SupportsEntities SupportsEntityHints SupportsEntityVectors SupportsFacets SupportsFetch SupportsFiles SupportsFingerprintPages SupportsGraph SupportsInspect SupportsMentions
SupportsNeighbours SupportsStatistics SupportsTenants
SupportsUpsert SupportsVectors SupportsVersion SupportsWriting TermStatistics Thought Trace Transform Usage Vector Writing
""".split()
LOADED = (
    "bisect",
    "concurrent",
    "contextrouter",
    "difflib",
    "fnmatch",
    "hmac",
    "importlib",
    "ipaddress",
    "json",
    "ntpath",
    "pathlib",
    "queue",
    "random",
    "secrets",
    "sysconfig",
    "tomli",
    "tomllib",
    "unicodedata",
    "urllib",
    "zoneinfo",
)
OPTIONAL = (
    "pydantic",
    "numpy",
    "aiohttp",
    "asyncpg",
    "spacy",
    "typer",
    "rich",
    "openai",
    "tokenizers",
    "model2vec",
    "feedparser",
)


def test_all_is_pinned_and_everything_in_it_exists():
    """A name that comes or goes is a decision, and stands in the changelog."""
    assert sorted(contextrouter.__all__) == sorted(NAMES)
    assert all(hasattr(contextrouter, name) for name in contextrouter.__all__)


def test_the_version_is_that_of_the_distribution():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert contextrouter.__version__ == project["version"]


def test_importing_loads_no_optional_package():
    code = (
        f"import sys, contextrouter, contextrouter.ingest; print([n for n in {OPTIONAL!r} if n in"
        " sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_importing_loads_msgspec_tomli_and_little_of_the_standard_library():
    """What it may cost is measured by `bench/imports.py`; this says what it may load beside the modules it
    cannot do without.
    """
    code = (
        "import asyncio, hashlib, heapq, msgspec, sys; before = {*sys.modules}; import contextrouter;"
        " print(*sorted({name.partition('.')[0] for name in {*sys.modules} - before if not"
        " name.startswith('_')}))"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name for name in ran.stdout.split() if "__mypyc" not in name}
    assert loaded <= {*LOADED}, f"new: {loaded - {*LOADED}}"


def exists(module: str) -> bool:
    """Whether a module of the package is there; its package may not be."""
    return (ROOT / f"{module.replace('.', '/')}.py").exists() or (ROOT / module.replace(".", "/")).is_dir()


def test_the_upgrade_page_says_where_modules_are():
    page = (ROOT / "docs" / "upgrading.md").read_text("utf-8")
    public = re.findall(r"^- `([a-z.]+)`$", page, re.M)
    assert "contextrouter.contracts" in public
    moved = re.findall(r"^\| `(contextrouter\.[\w.]+)` \| `(contextrouter\.[\w.]+)` \| (.*)\|$", page, re.M)
    assert len(moved) >= 30
    for before, now, names in moved:
        assert exists(before) == (before in public), before
        module, old = importlib.import_module(now), re.findall(r"\w+", names)
        assert [name for name in old if not hasattr(module, name)] == [], now
        if exists(before):
            assert [name for name in old if hasattr(importlib.import_module(before), name)] == [], before
    assert [name for name in public if not importlib.import_module(name)] == []
