"""`contextrouter plugins new` writes a package for every kind that keeps the laws, and is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomli
from support.example import ROOT, CommandLine

from contextrouter.cli.plugins.new import NEW_KINDS, write_package
from contextrouter.contracts import KINDS
from contextrouter.runtime.registry import Registry
from contextrouter.settings.loading import load


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def install(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package where an installation would: importable, with its entry points."""
    project = tomli.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    info = package / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head)
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(package))


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_a_new_package_keeps_the_laws_of_its_kind(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, kind: str
):
    name = f"my_{kind}"
    ran = cli("plugins", "new", kind, name, cwd=tmp_path)
    package = tmp_path / f"contextrouter-my-{kind}"
    assert ran.code == 0, ran.err
    assert "contextrouter plugins check" in ran.out
    install(package, monkeypatch)
    listed = {line.name: line for line in Registry().list_plugins()}
    assert listed[name].problem == ""
    assert listed[name].kind == ("stage" if kind == "reranker" else kind)
    (report,) = json.loads(cli("plugins", "check", name, "--json", cwd=package).out)
    assert [line for line in report["laws"] if line["status"] in ("broken", "deviates")] == []
    assert report["kind"] == kind
    readme = (package / "README.md").read_text("utf-8")
    (package / "settings.toml").write_text(readme.partition("```toml\n")[2].partition("```")[0])
    settings, _ = load(package / "settings.toml", Registry)
    assert settings.path


def test_there_is_a_package_for_every_kind():
    assert {*NEW_KINDS} == {*KINDS, "reranker"}


@pytest.mark.parametrize("kind", ["stage", "fact"])
def test_the_suite_of_a_new_package_passes(tmp_path: Path, kind: str):
    write_package(kind, "mine", tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout


def test_new_packages_and_the_example_of_a_plugin_are_typed(tmp_path: Path):
    """By mypy --strict, with the annotations that the distribution ships."""
    folders = []
    for kind in NEW_KINDS:
        write_package(kind, kind, tmp_path)
        for file in ("pyproject.toml", "README.md", "tests/test_plugin.py"):
            (tmp_path / file).unlink()
        folders.append(f"contextrouter_{kind}")
    (tmp_path / "glossary.py").write_text((ROOT / "plugins" / "glossary.py").read_text("utf-8"))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    ran = subprocess.run(
        [*command, *folders, "glossary.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("conector", "mine"), "'conector' is no kind of plugin. Did you mean 'connector'?"),
        (("connector", "My-Plugin"), "Name 'My-Plugin' is not allowed."),
        (("connector", "class"), "Name 'class' is not allowed."),
        (("connector", "web"), "connector 'web' exists already"),
    ],
)
def test_a_wrong_kind_or_name_is_wrong_usage(
    tmp_path: Path, cli: CommandLine, arguments: tuple[str, ...], said: str
):
    ran = cli("plugins", "new", *arguments, cwd=tmp_path)
    assert ran.code == 2
    assert said in ran.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, cli: CommandLine):
    assert cli("plugins", "new", "stage", "mine", "--into", "here", cwd=tmp_path).code == 0
    (tmp_path / "here" / "README.md").write_text("my own words")
    ran = cli("plugins", "new", "stage", "mine", "--into", "here")
    assert ran.code == 2
    assert "exists and is not overwritten" in ran.err
    assert (tmp_path / "here" / "README.md").read_text() == "my own words"


def test_a_name_that_a_class_of_the_contracts_has_gets_another_class(tmp_path: Path):
    write_package("connector", "document", tmp_path)
    assert "class DocumentConnector(Connector)" in (tmp_path / "contextrouter_document/plugin.py").read_text()
