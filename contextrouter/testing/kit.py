"""Laws and what is found of them: the conformance kit's own nouns."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from contextrouter.contracts import KINDS, Reranker, Stage
from contextrouter.errors import MissingDependency

if TYPE_CHECKING:
    from contextrouter.testing.subject import Subject

Status = Literal["ok", "broken", "deviates", "not applicable"]
PATIENCE = 60.0
"""Seconds after which a law that has not ended is broken."""
C = TypeVar("C", bound=type)


class Broken(AssertionError):
    """A law does not hold. The message says what was asked, what came, and what should have."""


class NotApplicable(Exception):
    """A law says nothing about this plugin. The message says why."""


class Law(msgspec.Struct, frozen=True, kw_only=True):
    """One law: its name, the law in a sentence, and the function that raises Broken where it does not hold."""

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
    return lambda function: Law(name=function.__name__, says=_sentence(function), holds=function, ability=ability)


def _sentence(function: Callable[..., object]) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


def deviates(reason: str, *, law: str) -> Callable[[C], C]:
    """Say that a plugin, or a suite of tests, does not keep the law named `law`, and why.

    For classes. The law is not checked, and every verdict shows the reason. Raises ValueError for a blank reason.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError(f"Deviation from {law!r} has no reason; say why the law does not fit.")

    def mark(cls: C) -> C:
        cls.deviations = {**getattr(cls, "deviations", {}), law: " ".join(reason.split())}  # type: ignore[attr-defined]
        return cls

    return mark


def kind_of(cls: type) -> str:
    """The kind whose laws a class is under: a kind of plugin, or "reranker". Raises TypeError for a class that is of none."""
    if issubclass(cls, Reranker):
        return "reranker"
    found = next((kind for kind, contract in KINDS.items() if issubclass(cls, contract)), None)
    if found is None:
        raise TypeError(f"{cls.__name__} is no plugin of any kind; derive it from one of {', '.join(KINDS)}.")
    return found


def settings_kind(cls: type) -> str:
    """The kind in whose tables the class stands: as `kind_of`, rerankers being stages."""
    return "stage" if issubclass(cls, Stage) else kind_of(cls)


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


def explained(error: BaseException) -> str:
    """An exception in one line, that of a group's first member for a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Broken):
        return str(error)
    place = _place(error)
    return f"it raised {type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"


def _place(error: BaseException) -> str:
    trace, last = error.__traceback__, None
    while trace is not None:
        last, trace = trace, trace.tb_next
    return f" ({last.tb_frame.f_code.co_name}, line {last.tb_lineno})" if last is not None else ""


def said(value: object, most: int = 80) -> str:
    """A value for a message, cut."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


@functools.cache
def nearest_law(name: str, known: tuple[str, ...]) -> str:
    """A hint at the law that was meant."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
