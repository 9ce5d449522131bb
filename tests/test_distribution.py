"""What the wheel and the source archive hold, and what the demo copies: the files of this distribution
alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from support.example import ROOT

from contextrouter.cli.demo import PARTS

DECOYS = (
    "plugins/decoy-dist/pyproject.toml",
    "plugins/decoy-dist/contextrouter/decoy.py",
    "plugins/decoy-dist/tests/test_decoy.py",
    "plugins/decoy-dist/README.md",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources in which another distribution lives under plugins/."""
    folder = tmp_path_factory.mktemp("tree")
    for path in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "settings.toml"):
        shutil.copy(ROOT / path, folder / path)
    for path in ("contextrouter", "examples", "plugins"):
        shutil.copytree(ROOT / path, folder / path, ignore=shutil.ignore_patterns("__pycache__"))
    for path in DECOYS:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("", "utf-8")
    return folder


@pytest.fixture(scope="module")
def built(tree: Path) -> Path:
    """The folder of the wheel and the source archive, built by the installed hatchling."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", "dist"], cwd=tree, check=True)
    return tree / "dist"


def test_the_wheel_holds_the_package_and_what_the_demo_needs_and_nothing_else(tree: Path, built: Path):
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    example = {path for part in PARTS for path in (tree / part, *(tree / part).rglob("*")) if path.is_file()}
    package = {path for path in (tree / "contextrouter").rglob("*") if path.is_file()}
    assert names == {path.relative_to(tree).as_posix() for path in package} | {
        f"contextrouter/example/{path.relative_to(tree).as_posix()}" for path in example
    }


def test_the_source_archive_holds_no_other_distribution(built: Path):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {
        "pyproject.toml",
        "plugins/README.md",
        "plugins/glossary.py",
        "contextrouter/model/request.py",
    } <= names
    assert [name for name in names if "decoy" in name] == []


def test_every_plugin_of_the_example_is_shipped_and_copied():
    """The wheel names files, because a folder in plugins/ is a distribution of its own."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert wheel["wheel"]["force-include"] == {part: f"contextrouter/example/{part}" for part in PARTS}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "plugins").glob("*.py")}
    assert {part for part in PARTS if part.startswith("plugins")} == {"plugins/README.md", *modules}


def test_the_demo_copies_no_other_distribution(tree: Path, tmp_path: Path):
    run_there = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    demo = [sys.executable, "-m", "contextrouter", "demo", "--into", "copy"]
    ran = subprocess.run(demo, cwd=tmp_path, env=run_there, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert {path.name for path in (tmp_path / "copy" / "plugins").iterdir()} == {"README.md", "glossary.py"}
