"""The conformance kit: laws of plugins, and the check of one law against one plugin."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import MissingDependency
from contextrouter.testing import law_runs
from contextrouter.testing.messages import Broken, describe_error
from contextrouter.testing.subject import Subject

Status = Literal["ok", "broken", "deviates", "not applicable"]


class NotApplicable(Exception):
    """A law does not apply to this plugin. The message says why."""


class Law(msgspec.Struct, frozen=True, kw_only=True):
    """One law: its name, the law in a sentence, and a function that raises Broken where it is broken."""

    name: str
    says: str
    holds: Callable[[Subject], Awaitable[None]]
    ability: type | None = None  # the Supports… protocol of plugins it is about; None: all of the kind
    gate: bool = False  # while it is broken, no other law can be checked

    def applies_to(self, plugin: object) -> bool:
        """Whether an instance has the ability that the law is about."""
        return self.ability is None or isinstance(plugin, self.ability)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one law. `why` explains every status but "ok"."""

    law: str
    says: str
    status: Status
    why: str = ""


def law(function: Callable[[Subject], Awaitable[None]]) -> Law:
    """Make a law from a function. Its name names the law, and its docstring states the law."""
    return Law(name=function.__name__, says=_sentence(function), holds=function)


def gate(function: Callable[[Subject], Awaitable[None]]) -> Law:
    """Like `law`, for a law without which no other can be checked."""
    return Law(name=function.__name__, says=_sentence(function), holds=function, gate=True)


def law_of(ability: type) -> Callable[[Callable[[Subject], Awaitable[None]]], Law]:
    """Like `law`, for plugins that have an ability."""
    return lambda function: Law(
        name=function.__name__, says=_sentence(function), holds=function, ability=ability
    )


def _sentence(function: Callable[..., object]) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


async def check_law(law: Law, subject: Subject) -> Finding:
    """Check one law against a plugin. Never raises for what the plugin does."""
    status, reason = await _check(law, subject)
    return Finding(law=law.name, says=law.says, status=status, why=reason)


async def _check(law: Law, subject: Subject) -> tuple[Status, str]:
    if law.name in subject.deviations:
        return "deviates", subject.deviations[law.name]
    patience = asyncio.timeout(law_runs.PATIENCE)
    try:
        async with patience:
            if law.ability is not None and not law.applies_to(subject.make()):
                return "not applicable", f"it is no {law.ability.__name__}"
            if not subject.writes and SupportsUpsert in getattr(law.ability, "__mro__", ()):
                return "not applicable", "the kit writes nothing into a store of the settings"
            await law.holds(subject)
    except (NotApplicable, MissingDependency) as reason:
        return "not applicable", str(reason)
    except (Broken, law_runs.GivenUp) as error:
        return "broken", str(error)
    except TimeoutError as error:
        if patience.expired():
            return "broken", f"{law_runs.NO_END} {law_runs.PATIENCE:g} s"
        return "broken", describe_error(error)
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # the kit itself is stopped, not the plugin's call
        return "broken", describe_error(error)
    except BaseException as error:  # sys.exit(), or a library's panic: a finding like any other
        return "broken", describe_error(error)
    return "ok", ""
