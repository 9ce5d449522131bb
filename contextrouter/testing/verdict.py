"""A plugin's verdict: what is found of each law of its kind."""

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

_FIRST = "example_works"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one plugin, in the order of the laws."""

    kind: str
    plugin: str  # the class's name
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The laws that do not hold."""
        return tuple(finding for finding in self.findings if finding.status == "broken")


def laws_of(cls: type[Plugin]) -> tuple[Law, ...]:
    """The laws a class is under. Raises TypeError for a class that is no plugin."""
    return LAWS[kind_of(cls)]


def law_named(cls: type[Plugin], name: str) -> Law:
    """The law of that name, one the class is under. Raises ValueError that names the one meant."""
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
) -> Subject:
    """A subject whose deviations are all from laws of its kind, each with a reason. Raises ValueError for
    others.
    """
    subject = Subject(cls, make, questions=questions, dimensions=dimensions, deviations=deviations)
    for name, reason in subject.deviations.items():
        law_named(cls, name)
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(
                f"Deviation of {cls.__name__} from {name!r} has no reason; say why the law does not fit."
            )
    return subject


def judge(subject: Subject, law: Law) -> Finding:
    """What is found of one law, in an event loop of its own. Not to be called where a loop runs."""
    return asyncio.run(check_law(law, subject))


def verdict(subject: Subject) -> Verdict:
    """Check a subject by all laws of its kind. Where its example does not work, the laws that need it are not
    applicable.
    """
    findings: list[Finding] = []
    works = True
    for law in laws_of(subject.cls):
        if works or law.name in subject.deviations:
            finding = judge(subject, law)
        else:
            why = f"the example does not work (law {_FIRST})"
            finding = Finding(law=law.name, says=law.says, status="not applicable", why=why)
        works = works and not (law.name == _FIRST and finding.status == "broken")
        findings.append(finding)
    return Verdict(kind=subject.kind, plugin=subject.cls.__name__, findings=tuple(findings))
