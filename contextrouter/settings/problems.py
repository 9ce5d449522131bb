"""Collects errors and warnings in settings. Every problem has the file and line of its value."""

from __future__ import annotations

from collections.abc import Mapping

from contextrouter.errors import PluginNotFound, Problem, SettingsError
from contextrouter.runtime.masking import mask

Key = tuple[str | int, ...]
PRESET = "preset "
"""The first word of an origin that lies in a preset: `preset packs.toml:12`."""
MOST = 100
"""Problems that are listed. With so many, reading ends."""
MOST_CHARACTERS = 2_000
"""The longest message of one problem."""
MOST_KEY = 200
"""The longest key that is shown."""


def dotted_key(key: Key) -> str:
    """Return a key as settings files write it: `rag.rrf_k`."""
    return ".".join(map(str, key))


def origin_of(origins: Mapping[str, str], key: str, root: str = "") -> str:
    """Return where the value at a dotted key, or the nearest table around it, was set; else `root`."""
    while key:
        if key in origins:
            return origins[key]
        key = key.rpartition(".")[0]
    return root


def problem_at(origin: str, key: str, message: str) -> Problem:
    """Return a problem of the value at a dotted key, which was set at `origin`, such as "settings.toml:4"."""
    file, _, line = origin.rpartition(":")
    if line.isdigit():
        return Problem(message, key=key, file=file, line=int(line))
    return Problem(message, key=key, file=origin)


class Problems:
    """The problems and warnings of one reading of settings.

    `origins` maps a dotted key to where its value was set: a line of the file, an environment variable, or
    "call". `root` is the origin of a value that nobody set.
    """

    def __init__(self) -> None:
        self.origins: dict[str, str] = {}
        self.root = ""
        self.secrets: list[str] = []
        self.warnings: list[str] = []
        self._problems: list[Problem] = []
        self._unregistered: list[PluginNotFound] = []

    def origin(self, key: Key) -> str:
        """Return where the value at `key`, or the nearest table around it, was set."""
        return origin_of(self.origins, dotted_key(key), self.root)

    def from_preset(self, key: Key) -> bool:
        """Whether the value at `key` was set by a preset, and by nothing else."""
        return self.origin(key).startswith(PRESET)

    def add(self, key: Key, message: str) -> None:
        """Add a problem of the value at `key`. Raises SettingsError when there are `MOST` of them."""
        self._append(problem_at(self.origin(key), dotted_key(key), message))

    def add_unlocated(self, message: str) -> None:
        """Add a problem that belongs to no single value."""
        self._append(Problem(message))

    def _append(self, problem: Problem) -> None:
        self._problems.append(problem)
        if len(self._problems) == MOST:
            self.raise_any()

    def add_unregistered(self, key: Key, message: str, error: PluginNotFound) -> None:
        """Add the problem that `key` names a plugin that is not registered."""
        self.add(key, message)
        self._unregistered.append(error)

    def warn(self, message: str) -> None:
        """Add a warning: this works, but is probably not intended."""
        self.warnings.append(message)

    def raise_any(self) -> None:
        """Raise SettingsError with all problems, in the order of the file. Messages show no secrets.

        Raises PluginNotFound if the only problem is a plugin that is not registered.
        """
        if not self._problems:
            return
        masked = [
            Problem(self._shorten(p.message), key=_shorten_key(p.key), file=p.file, line=p.line)
            for p in self._problems
        ]
        problems = sorted(masked, key=lambda problem: (problem.line or 0, problem.key))
        if len(problems) == 1 and self._unregistered:
            error = self._unregistered[0]
            raise PluginNotFound(error.use, error.kind, error.known, problem=problems[0])
        if len(problems) >= MOST:
            problems.append(Problem(f"more than {MOST - 1} problems; what follows was not read."))
        raise SettingsError(problems)

    def _shorten(self, message: str) -> str:
        """Return a message without secrets, and not longer than anybody reads."""
        for secret in self.secrets if len(message) > 4 * MOST_CHARACTERS else ():
            message = message.replace(secret, "***")
        masked = mask(message[: 4 * MOST_CHARACTERS], self.secrets)
        return masked if len(masked) <= MOST_CHARACTERS else f"{masked[:MOST_CHARACTERS]} …"


def _shorten_key(key: str) -> str:
    return key if len(key) <= MOST_KEY else f"{key[:MOST_KEY]} …"
