"""Answers of a plugin's example in a fresh process, where Python hashes texts otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from contextrouter.testing.imports import importable

_PROGRAM = """
import asyncio, importlib, importlib.util, json, sys
from contextrouter.testing import subject_of
module, path, name = sys.argv[1:]
if path:
    spec = importlib.util.spec_from_file_location("_plugin_under_test", path)
    loaded = sys.modules["_plugin_under_test"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
else:
    loaded = importlib.import_module(module)
cls = getattr(loaded, name)
print("\\n" + json.dumps(asyncio.run(subject_of(cls).session(cls.example()))))
"""
_SECONDS = 50


def answers_elsewhere(cls: type) -> Any:
    """Return the answers of the example of a class in a fresh process; None: it cannot be made there."""
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None) or ""
    if getattr(module, cls.__name__, None) is not cls or cls.__module__ == "__main__":
        return None
    path = "" if importable(cls.__module__) else path
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    folders = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    ran = subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, "-c", _PROGRAM, cls.__module__, path, cls.__name__],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": folders, "PYTHONHASHSEED": seed},
        timeout=_SECONDS,
        check=False,
    )
    return json.loads(ran.stdout.splitlines()[-1]) if not ran.returncode else None
