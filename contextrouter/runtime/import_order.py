"""Imports of large packages by several threads at once: one after the other."""

from __future__ import annotations

from importlib import import_module
from threading import RLock
from types import ModuleType

_lock = RLock()


def import_alone(module: str) -> ModuleType:
    """Import a module while no other thread does so. Two threads that import one package at the same time
    can each get a half-loaded one, such as numpy, which onnxruntime imports as well. Raises ImportError.
    """
    with _lock:
        return import_module(module)
