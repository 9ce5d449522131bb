"""Third-party imports of a plugin's module, found by importing it in a fresh interpreter."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from importlib.machinery import PathFinder

_PROGRAM = """
import importlib, importlib.util, json, os, sys, sysconfig
import contextrouter
before = set(sys.modules)
module, path = sys.argv[1:]
if path:
    spec = importlib.util.spec_from_file_location("_plugin_under_test", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
else:
    importlib.import_module(module)
packages = {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("purelib", "platlib")}
def installed(module):
    file = getattr(module, "__file__", None)
    return bool(file) and os.path.realpath(file).startswith(tuple(packages))
names = {name for name, module in list(sys.modules.items()) if name not in before and installed(module)}
print("\\n" + json.dumps(sorted(name.partition(".")[0] for name in names)))
"""
_OURS = ("contextrouter", "msgspec", "tomli")


def third_party(cls: type) -> tuple[str, ...]:
    """Return the top-level names of installed packages that the class's module imports.

    Its own package and contextrouter are left out.
    """
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None) or ""
    if not importable(cls.__module__):
        return _find_imports("", path) if path.endswith(".py") else ()
    return _find_imports(cls.__module__, "")


def importable(name: str) -> bool:
    """Whether another interpreter finds the module by its name. A plugin file has none."""
    return PathFinder.find_spec(name.partition(".")[0], None) is not None


@functools.lru_cache(maxsize=256)
def _find_imports(module: str, path: str) -> tuple[str, ...]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    ran = subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, "-c", _PROGRAM, module, path],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(
            f"Module {module or path!r} cannot be imported alone: {ran.stderr.strip().splitlines()[-1]}."
        )
    tops: set[str] = set(json.loads(ran.stdout.splitlines()[-1]))
    return tuple(sorted(tops - {*_OURS, module.partition(".")[0]}))
