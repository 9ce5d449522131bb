"""The public surface: its names are pinned, and importing it is cheap and loads nothing optional."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import contextrouter

ROOT = Path(__file__).parents[1]
NAMES = """
AllSourcesFailed Answerability Call Citation Completion Connector Context ContextRouter ContextRouterError ContractError Document
Embedder Entity Entry Envelope Facet Fact FactSource FilePath Generator Harvest Hit IngestError Intent Interpreter MissingDependency
Partial Period Plan Plugin PluginError PluginNotFound Problem Provenance Provider Query Rag RankedList Request RequestRefused
Reranker Scope Settings SettingsError Source SourceError SourceReport SourceTimeout Stage StageContext StageError Step SupportsCrawl
SupportsEntities SupportsFacets SupportsFetch SupportsNeighbours SupportsStatistics SupportsUpsert SupportsVersion TermStatistics
Trace Transform Usage Vector
""".split()
OPTIONAL = ("pydantic", "numpy", "aiohttp", "asyncpg", "spacy", "typer", "rich", "openai", "tokenizers", "model2vec", "feedparser")


def bench() -> object:
    spec = importlib.util.spec_from_file_location("bench_imports", ROOT / "bench" / "imports.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_is_pinned_and_everything_in_it_exists():
    """A name that comes or goes is a decision, and stands in the changelog."""
    assert sorted(contextrouter.__all__) == sorted(NAMES)
    assert all(hasattr(contextrouter, name) for name in contextrouter.__all__)


def test_the_version_is_that_of_the_distribution():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert contextrouter.__version__ == project["version"]


def test_importing_loads_no_optional_package():
    code = f"import sys, contextrouter, contextrouter.ingest; print([n for n in {OPTIONAL!r} if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_importing_costs_at_most_one_and_a_half_times_its_floor():
    """CPU time of fresh interpreters in pairs; the median of the ratios."""
    measured = bench()
    _, _, ratio = measured.measure(7)
    assert ratio <= measured.LIMIT
