"""Each adapter to another framework, in a fresh environment with that framework alone: its README and its tests
run, and so do the recipes for agents.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAPTERS = {  # distribution -> its package
    "langchain-contextrouter": "langchain_contextrouter",
    "llama-index-retrievers-contextrouter": "llama_index.retrievers.contextrouter",
    "contextrouter-haystack": "haystack_integrations.components.retrievers.contextrouter",
}
RECIPES = ROOT / "docs" / "recipes-agents.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
QUIET = {"HAYSTACK_TELEMETRY_ENABLED": "False", "LANGSMITH_TRACING": "false"}


class Environment:
    """A virtual environment of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, folder / "venv" / "bin" / "python"
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.variables = {
            **variables,
            **QUIET,
            "PATH": f"{self.python.parent}{os.pathsep}{variables['PATH']}",
        }
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)

    def install(self, *packages: str | Path) -> None:
        pip = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *packages], check=True, env=self.variables)

    def run(self, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Run Python; return what it prints. It has to end well."""
        ran = subprocess.run(
            [self.python, *arguments],
            cwd=cwd or self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-8_000:] + ran.stderr[-4_000:]
        return ran.stdout


def test_every_adapter_is_tried():
    assert set(ADAPTERS) == {path.parent.name for path in (ROOT / "plugins").glob("*/pyproject.toml")}


@pytest.mark.case("NEW-49")
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_alone_runs_its_readme_and_its_tests(adapter: str, tmp_path: Path):
    """Its types are checked too. The installed package is what is tested: its sources are not beside the tests."""
    environment = Environment(tmp_path)
    environment.install(ROOT, f"{ROOT / 'plugins' / adapter}[test]")
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "plugins" / adapter / "tests", copy / "tests")
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / "plugins" / adapter / name, copy / name)
    told = environment.run("-m", "pytest", "-rA", "--no-header", cwd=copy)
    assert "test_the_examples_of_the_readme_print_what_it_says" in told
    last = told.strip().splitlines()[-1]
    typed = environment.run("-m", "mypy", "--strict", "-p", ADAPTERS[adapter], "--config-file", os.devnull)
    sys.stderr.write(f"\n{adapter}: {last}; mypy: {typed.strip()}\n")
    assert re.fullmatch(r"=* ?\d+ passed in .*", last), last


@pytest.mark.case("NEW-49")
def test_the_recipes_for_agents_run(tmp_path: Path):
    environment = Environment(tmp_path)
    environment.install(ROOT, "pydantic-ai-slim>=1.0", "langchain-core>=1.2.5")
    blocks = [
        text for language, text in BLOCK.findall(RECIPES.read_text("utf-8")) if language in ("python", "py")
    ]
    (tmp_path / "recipes.py").write_text("\n".join(blocks), "utf-8")
    assert environment.run("recipes.py").splitlines()[-3:] == [
        "Nothing was found.",  # the model of the example asks "a"
        "ok",
        "['question'] ### [1] Opening hours — memory False",
    ]
