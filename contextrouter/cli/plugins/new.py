"""`contextrouter plugins new`: writes the package of a plugin, which keeps the laws of its kind."""

from __future__ import annotations

import keyword
from importlib.resources import files
from pathlib import Path
from string import Template

import contextrouter
from contextrouter.cli.init import write_files
from contextrouter.contracts import KINDS
from contextrouter.errors import SettingsError
from contextrouter.runtime.registry import Registry
from contextrouter.settings import NAME
from contextrouter.settings.suggestions import unknown

NEW_KINDS = (*KINDS, "reranker")
"""The kinds that a package can be written for."""
_SUITES = {"fact": "FactSourceSuite"}
_SETTINGS = {
    "connector": '[connectors.$name]\ntexts = { sea = "The sea is salt water." }',
    "provider": '[providers.$name]\n\n[ingest.documents]\nfrom = "documents"\nto = "$name"',
    "fact": '[facts.$name]\nfacts = [["Moon", "orbits", "Earth"]]',
    "interpreter": '[rag]\ninterpreters = ["normalize", "$name"]\n\n[interpreters.$name]\n'
    'words = { machine = "computer" }',
    "stage": '[rag]\nstages = ["$name"]\n\n[stages.$name]\nlongest = 10000',
    "reranker": '[rag]\nstages = ["$name"]',
    "embedder": "[embedders.$name]\ndimensions = 64",
    "transform": '[transforms.$name]\nlabels = { invoice = "billing" }',
    "generator": '[chat]\nsynthesis_model = "$name"\n\n[generators.$name]\nlongest = 200',
}


def write_package(kind: str, name: str, into: Path) -> list[Path]:
    """Write a package for a plugin of this kind, and return its files. Nothing is ever overwritten.

    Raises SettingsError for an unknown kind, a name that is not allowed or taken, or a file that exists.
    """
    if kind not in NEW_KINDS:
        raise SettingsError(unknown(f"{kind!r} is no kind of plugin", kind, NEW_KINDS, "Kinds"))
    if not NAME.match(name) or keyword.iskeyword(name):
        raise SettingsError(
            f"Name {name!r} is not allowed. Use small letters, digits and underscores, first a letter."
        )
    words = _placeholders(kind, name)
    table_kind = "stage" if kind == "reranker" else kind
    if (entry := Registry().entries(table_kind).get(name)) is not None:
        raise SettingsError(f"{table_kind} {name!r} exists already ({entry.value}). Choose another name.")
    package = Path(words["package"])
    planned = {
        Path("pyproject.toml"): "pyproject.toml",
        Path("README.md"): "README.md",
        package / "__init__.py": "package.py",
        package / "plugin.py": f"{kind}.py",
        Path("tests", "test_plugin.py"): "test.py",
    }
    contents = {path: _render(template, words) for path, template in planned.items()}
    contents[package / "py.typed"] = b""
    write_files({into / path: content for path, content in contents.items()}, into)
    return [into / path for path in contents]


def _placeholders(kind: str, name: str) -> dict[str, str]:
    cls = "".join(part.capitalize() for part in name.split("_"))
    if hasattr(contextrouter, cls):  # the plugin would hide a class that it imports
        cls += kind.capitalize()
    words = {
        "kind": kind,
        "name": name,
        "cls": cls,
        "package": f"contextrouter_{name}",
        "distribution": f"contextrouter-{name.replace('_', '-')}",
        "table": "stages" if kind == "reranker" else f"{kind}s",
        "suite": _SUITES.get(kind, f"{kind.capitalize()}Suite"),
        "version": contextrouter.__version__,
    }
    return {**words, "settings": Template(_SETTINGS[kind]).substitute(words)}


def _render(template: str, words: dict[str, str]) -> bytes:
    text = (files("contextrouter.cli.plugins") / "templates" / f"{template}.txt").read_text("utf-8")
    return Template(text).substitute(words).encode()
