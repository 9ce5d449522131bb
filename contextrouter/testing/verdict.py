"""Verdicts of the conformance kit: a plugin, checked by every law of its kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from contextrouter.contracts import Plugin
from contextrouter.testing.kinds import kind_of
from contextrouter.testing.kit import Finding, Law, check_law
from contextrouter.testing.laws import LAWS
from contextrouter.testing.messages import nearest_law
from contextrouter.testing.subject import Subject

Progress = Callable[[int, int, str], None]
"""Called before each law with its number from 1, the number of laws, and its name."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about one plugin, in the order of the laws."""

    kind: str
    plugin: str  # the class's name
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Return the findings of broken laws."""
        return tuple(finding for finding in self.findings if finding.status == "broken")


def laws_of(cls: type[Plugin]) -> tuple[Law, ...]:
    """Return the laws of a class. Raises TypeError for a class that is no plugin."""
    return LAWS[kind_of(cls)]


def find_law(cls: type[Plugin], name: str) -> Law:
    """Return the law of a class by its name. Raises ValueError with the nearest name for an unknown one."""
    laws = {law.name: law for law in laws_of(cls)}
    if name not in laws:
        hint = nearest_law(name, tuple(laws))
        raise ValueError(f"{name!r} is no law of a {kind_of(cls)}.{hint} Laws: {', '.join(laws)}.")
    return laws[name]


def subject_of(
    cls: type[Plugin],
    make: Callable[[], Plugin] | None = None,
    *,
    questions: Sequence[str] = (),
    dimensions: int = 16,
    deviations: Mapping[str, str] | None = None,
    writes: bool = True,
) -> Subject:
    """Make a subject. Raises ValueError for a deviation without a reason, or from an unknown law."""
    subject = Subject(
        cls, make, questions=questions, dimensions=dimensions, deviations=deviations, writes=writes
    )
    for name, reason in subject.deviations.items():
        find_law(cls, name)
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(
                f"Deviation of {cls.__name__} from {name!r} has no reason; say why the law does not fit."
            )
    return subject


def judge(subject: Subject, law: Law) -> Finding:
    """Check one law in a new event loop. Raises RuntimeError where a loop already runs."""
    return asyncio.run(check_law(law, subject))


def verdict(subject: Subject, progress: Progress | None = None) -> Verdict:
    """Check a subject by all laws of its kind.

    Where a gate is broken, such as the law of the example, the laws behind it are not applicable.
    """
    findings: list[Finding] = []
    closed: Finding | None = None  # the gate that is broken
    laws = laws_of(subject.cls)
    for number, law in enumerate(laws, 1):
        if progress is not None:
            progress(number, len(laws), law.name)
        if closed is None or law.name in subject.deviations:
            finding = judge(subject, law)
        else:
            finding = Finding(law=law.name, says=law.says, status="not applicable", why=reason_of(closed))
        if closed is None and law.gate and finding.status == "broken":
            closed = finding
        findings.append(finding)
    return Verdict(kind=subject.kind, plugin=subject.cls.__name__, findings=tuple(findings))


def reason_of(gate: Finding) -> str:
    """Return why the laws behind a broken gate are not checked."""
    return f"nothing else can be checked while the law {gate.law} is broken"


def broken_gate(subject: Subject) -> Finding | None:
    """Return the first broken gate of a subject; None: the other laws can be checked."""
    gates = [law for law in laws_of(subject.cls) if law.gate and law.name not in subject.deviations]
    return next((finding for law in gates if (finding := judge(subject, law)).status == "broken"), None)
