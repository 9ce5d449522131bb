"""All exceptions. Each message says what is wrong, where, and how to mend it.

`SettingsError` (with `PluginNotFound`), `MissingDependency`, `RequestRefused`, `PluginError` (with
`SourceError`, `SourceTimeout`, `StageError` and `ContractError`), `AllSourcesFailed` and `IngestError` derive
from `ContextRouterError`.

Configuration errors stop the start. Errors of one source never stop an answer. Programming errors are never
hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from contextrouter.runtime.distribution import DISTRIBUTION


def pip_install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class ContextRouterError(Exception):
    """The root: catch this to catch everything contextrouter raises on purpose.

    Errors can be pickled: they come out of another process with their message and their attributes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args), self.__dict__


def _restore(kind: type[ContextRouterError], arguments: tuple[Any, ...]) -> ContextRouterError:
    """Return an error with this message. Its constructor may take other arguments."""
    return kind.__new__(kind, *arguments)


class Problem:
    """One thing wrong with the settings: where (`file`, `line`, dotted `key`) and what (`message`)."""

    __slots__ = ("file", "key", "line", "message")

    def __init__(self, message: str, *, key: str = "", file: str = "", line: int | None = None) -> None:
        self.message, self.key, self.file, self.line = message, key, file, line

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return (self.message, self.key, self.file, self.line) == (
            other.message,
            other.key,
            other.file,
            other.line,
        )

    def __hash__(self) -> int:
        return hash((self.message, self.key, self.file, self.line))

    def __str__(self) -> str:
        location = self.file + (f":{self.line}" if self.line else "")
        return ": ".join(part for part in (location, self.key, self.message) if part)

    def __repr__(self) -> str:
        return f"Problem({str(self)!r})"


class SettingsError(ContextRouterError):
    """The settings do not validate. `.problems` lists everything wrong at once."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(problems),) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(map(str, self.problems)))


class PluginNotFound(SettingsError):
    """A `use` names no registered plugin of its kind. `.use`, `.kind`, `.known`."""

    def __init__(self, use: str, kind: str, known: Sequence[str], *, problem: Problem | None = None) -> None:
        self.use, self.kind, self.known = use, kind, tuple(known)
        listed = ", ".join(self.known) or "none"
        super().__init__(
            [
                problem
                or Problem(f"{kind} plugin {use!r} is not registered. Registered {kind} plugins: {listed}.")
            ]
        )


class MissingDependency(ContextRouterError):
    """An optional package is not installed, or cannot be loaded. `.package`, and `.extra`, which brings it.

    Raised while an ImportError is handled, it says which of the two: a package that is there and cannot be
    loaded, as where memory is short, is not missing.
    """

    def __init__(self, package: str, extra: str, *, what: str = "") -> None:
        self.package, self.extra = package, extra
        subject = what or f"Package {package!r}"
        message = f"{subject} needs the extra {extra!r}: {pip_install(extra)}."
        error = sys.exc_info()[1]
        if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
            reason = str(error.__cause__ or error).strip().partition("\n")[0]
            message = (
                f"{subject} needs the package {package!r}, which is installed and cannot be loaded: {reason}."
            )
        super().__init__(message)


class RequestRefused(ContextRouterError):
    """The request was refused before anything ran: an empty question, a policy, a quota. `.reason`.

    `.retry_after` is in seconds, where asking again later helps; `.interpreter` is the one that refused, ""
    where it was the router.
    """

    interpreter = ""

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        self.reason, self.retry_after = reason, retry_after
        super().__init__(reason)


class PluginError(ContextRouterError):
    """A plugin failed. `.plugin` is the instance's name in the settings, `.kind` its kind; the router
    attaches both. `.exhausted`: asking again soon cannot help, as at the end of a daily quota.
    """

    exhausted = False

    def __init__(self, message: str = "", *, plugin: str = "", kind: str = "") -> None:
        self.plugin, self.kind = plugin, kind
        super().__init__(message)


class SourceError(PluginError):
    """A source could not answer. The router reports it and goes on with the others."""


class SourceTimeout(SourceError):
    """A source did not answer in time."""


class StageError(PluginError):
    """A ranking stage failed. Skipped or raised, as its `on_error` says."""


class ContractError(PluginError):
    """A plugin did what its contract forbids. `.law` names the rule."""

    def __init__(self, message: str = "", *, law: str = "", plugin: str = "", kind: str = "") -> None:
        self.law = law
        super().__init__(message or law, plugin=plugin, kind=kind)


class AllSourcesFailed(ContextRouterError):
    """Every source that was asked failed. `.reports` are the SourceReports: how each call ended."""

    def __init__(self, reports: Sequence[Any]) -> None:
        self.reports: tuple[Any, ...] = tuple(reports)
        lines = "; ".join(f"{r.source}/{r.leg}: {r.status} ({r.error})" for r in self.reports)
        super().__init__(f"All {len(self.reports)} calls to sources failed: {lines}")


class IngestError(ContextRouterError):
    """A document could not be ingested. `.document` names it."""

    def __init__(self, message: str, *, document: str = "") -> None:
        self.document = document
        super().__init__(message)
