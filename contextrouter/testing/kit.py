"""Laws and what is found of them: the conformance kit's own nouns."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from contextrouter.errors import MissingDependency
from contextrouter.testing.messages import Broken, explained
from contextrouter.testing.subject import Subject

Status = Literal["ok", "broken", "deviates", "not applicable"]
PATIENCE = 60.0
"""Seconds after which a law that has not ended is broken."""


class NotApplicable(Exception):
    """A law says nothing about this plugin. The message says why."""


class Law(msgspec.Struct, frozen=True, kw_only=True):
    """One law: its name, the law in a sentence, and the function that raises Broken where it does not
    hold.
    """

    name: str
    says: str
    holds: Callable[[Subject], Awaitable[None]]
    ability: type | None = None  # the Supports… protocol of plugins it is about; None: all of the kind


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one law. `why` explains every status but "ok"."""

    law: str
    says: str
    status: Status
    why: str = ""


def law(function: Callable[[Subject], Awaitable[None]]) -> Law:
    """Make a law of a function: its name is the law's name, its docstring the law."""
    return Law(name=function.__name__, says=_sentence(function), holds=function)


def law_of(ability: type) -> Callable[[Callable[[Subject], Awaitable[None]]], Law]:
    """As `law`, about plugins that have an ability only."""
    return lambda function: Law(
        name=function.__name__, says=_sentence(function), holds=function, ability=ability
    )


def _sentence(function: Callable[..., object]) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


async def find(law: Law, subject: Subject) -> Finding:
    """What is found of one law. Never raises for what the plugin does."""

    def found(status: Status, why: str = "") -> Finding:
        return Finding(law=law.name, says=law.says, status=status, why=why)

    if law.name in subject.deviations:
        return found("deviates", subject.deviations[law.name])
    try:
        async with asyncio.timeout(PATIENCE):
            if law.ability is not None and not isinstance(subject.make(), law.ability):
                return found("not applicable", f"it is no {law.ability.__name__}")
            await law.holds(subject)
    except NotApplicable as reason:
        return found("not applicable", str(reason))
    except Broken as error:
        return found("broken", str(error))
    except MissingDependency as error:
        return found("not applicable", str(error))
    except TimeoutError as error:
        return found("broken", str(error) or f"the plugin did not end within {PATIENCE:g} s")
    except Exception as error:
        return found("broken", explained(error))
    return found("ok")
