"""The methods that a plugin class has of its contract, lacks, or seems to have misspelt."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType

from contextrouter.contracts import Plugin, abilities

_CLOSE = 0.8
"""How alike two names are, from 0 to 1, so that one may be the other misspelt."""
_REQUIRED = {
    "search": "Connector or Provider",
    "facts": "FactSource",
    "interpret": "Interpreter",
    "apply": "Stage",
    "score": "Reranker",
    "embed": "Embedder",
    "transform": "Transform",
    "complete": "Generator",
}
"""Required method -> the contract to derive from."""


def protocols() -> list[type]:
    """Return the protocols of all abilities."""
    return [
        value
        for name, value in vars(abilities).items()
        if name.startswith("Supports") and isinstance(value, type)
    ]


def methods_of(contract: type) -> dict[str, object]:
    """Return the public methods that a contract or a protocol itself defines."""
    return {
        name: value
        for name, value in vars(contract).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def contracts_of(cls: type) -> list[type]:
    """Return the contracts that a class derives from, and the protocols of which it has every method."""
    bases = [base for base in cls.__mro__ if _is_contract(base)]
    complete = [
        protocol
        for protocol in protocols()
        if all(callable(getattr(cls, n, None)) for n in methods_of(protocol))
    ]
    return [*bases, *(protocol for protocol in complete if protocol not in bases)]


def lack(cls: type) -> str:
    """Say what a class lacks to be a plugin; empty: nothing.

    A class that derives from no contract counts as a plugin if it has the required method of one.
    """
    if not issubclass(cls, Plugin):
        method = next((name for name in _REQUIRED if inspect.isfunction(vars(cls).get(name))), "")
        if not method:
            return ""
        advice = f"Derive it from {_REQUIRED[method]}."
        return f"{cls.__name__} has {method}() and derives from no contract. {advice}"
    absent = sorted(getattr(cls, "__abstractmethods__", ()))
    if not absent:
        return ""
    names = " and ".join(f"{name}()" for name in absent)
    hints = [
        f" It has {method}(). Did you mean {name}()?" for method, name in misspelt(cls) if name in absent
    ]
    return f"{cls.__name__} lacks {names}.{''.join(hints) or ' Write it as `async def`.'}"


def lacks_of(module: ModuleType) -> str:
    """Say what the classes that a module defines lack to be plugins; empty: nothing, or no class is close."""
    classes = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    return " ".join(filter(None, (lack(cls) for cls in classes if cls.__name__[:1] != "_")))


def misspelt(cls: type) -> Iterator[tuple[str, str]]:
    """Yield each method whose name is close to one that the class lacks of a contract, with that name."""
    written = {
        name
        for base in cls.__mro__
        if base is not object and not _is_contract(base)
        for name, value in vars(base).items()
        if inspect.isroutine(value) or isinstance(value, classmethod | staticmethod)
    }
    contracts = filter(_is_contract, cls.__mro__)
    names = {name for contract in (*contracts, *protocols()) for name in methods_of(contract)} | {"example"}
    import difflib  # only where a plugin is checked

    for name in sorted(written - names):
        if not name.startswith("_"):
            close = difflib.get_close_matches(name, sorted(names - written), n=1, cutoff=_CLOSE)
            yield from ((name, match) for match in close)


def _is_contract(cls: type) -> bool:
    return cls.__module__ == Plugin.__module__ and issubclass(cls, Plugin)
