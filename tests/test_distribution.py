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
from packaging.metadata import Metadata
from support.example import ROOT

from contextrouter.cli.demo import PARTS

sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "scripts" / "site"))

import check_dist
import package_readme
import release
from page_sources import OUTSIDE

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
    for path in ("contextrouter", "examples", "plugins", "scripts"):
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
    assert [name for name in names if "decoy" in name] == ["plugins/decoy-dist/README.md"]
    assert {
        path for path in OUTSIDE if path.startswith("plugins/")
    } <= names  # the documentation has them as pages


def test_a_wheel_of_the_source_archive_holds_the_same_files(built: Path, tmp_path: Path):
    """The archive has all that a build needs, and nothing that comes from elsewhere."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "again"]
    subprocess.run(build, cwd=unpacked, check=True)
    (wheel,), (again,) = built.glob("*.whl"), (unpacked / "again").glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())
    assert check_dist.of_wheel(again) == check_dist.of_wheel(wheel)


def test_the_metadata_is_valid_and_a_package_index_can_show_the_description(built: Path, tmp_path: Path):
    assert list(check_dist.check(built)) == []
    (wheel,) = built.glob("*.whl")
    metadata = Metadata.from_email(check_dist.of_wheel(wheel), validate=True)
    assert (metadata.name, metadata.license_expression) == ("contextrouter-rag", "Apache-2.0")
    assert metadata.description is not None
    assert metadata.description.startswith("# contextrouter\n")
    assert list(check_dist.check(tmp_path)) == [
        f"{tmp_path} has 0 wheels and 0 source archives. Build one of each: make dist"
    ]


def test_the_description_has_no_link_into_the_repository():
    readme = "# A\n\n![x](docs/x.png)\n\nSee [one](docs/one.md#a) and [two](https://example.org).\n\n## More\n\n[all](docs/)\n"
    text = package_readme.description(readme)
    assert text.startswith("# A\n\nSee one and [two](https://example.org).\n\n## More\n\nThe source archive")


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """The files that a release changes, in a folder of their own."""
    (tmp_path / "contextrouter" / "runtime").mkdir(parents=True)
    for path in ("pyproject.toml", "contextrouter/runtime/distribution.py"):
        shutil.copy(ROOT / path, tmp_path / path)
    log = "# Changelog\n\n## Unreleased\n\n- One.\n- Two.\n\n## 0.1.0\n\n- First.\n"
    (tmp_path / "CHANGELOG.md").write_text(log, "utf-8")
    return tmp_path


def test_a_release_closes_the_changelog_and_sets_the_version(released: Path):
    assert release.release(released, "9.8.7", "2026-12-24") == "- One.\n- Two."
    assert (released / "CHANGELOG.md").read_text("utf-8") == (
        "# Changelog\n\n## Unreleased\n\n## 9.8.7 (2026-12-24)\n\n- One.\n- Two.\n\n## 0.1.0\n\n- First.\n"
    )
    assert '\nversion = "9.8.7"\n' in (released / "pyproject.toml").read_text("utf-8")
    module = (released / "contextrouter" / "runtime" / "distribution.py").read_text("utf-8")
    assert module.endswith('\nVERSION = "9.8.7"\n')


@pytest.mark.parametrize(
    ("version", "log", "message"),
    [
        ("0.0.9", "## Unreleased\n\n- One.\n", "is not newer than"),
        ("1.0", "## Unreleased\n\n- One.\n", "Write three numbers"),
        ("9.0.0", "## Unreleased\n\n## 0.1.0\n", "has no changes under"),
        ("9.0.0", "## 0.1.0\n", "has no changes under"),
    ],
)
def test_a_release_that_cannot_be_made_changes_nothing(released: Path, version: str, log: str, message: str):
    (released / "CHANGELOG.md").write_text(log, "utf-8")
    with pytest.raises(release.ReleaseError, match=message):
        release.release(released, version, "2026-12-24")
    assert (released / "pyproject.toml").read_text("utf-8") == (ROOT / "pyproject.toml").read_text("utf-8")
    assert (released / "CHANGELOG.md").read_text("utf-8") == log


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
