"""Verdicts of the conformance kit: a plugin, checked by every law of its kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec

from contextrouter.contracts import Plugin
from contextrouter.runtime.plugin_calls import in_event_loop
from contextrouter.testing.kinds import kind_of
from contextrouter.testing.kit import Finding, Law, check_law
from contextrouter.testing.law_runs import NO_END, GivenUp, run_apart
from contextrouter.testing.laws import LAWS
from contextrouter.testing.messages import nearest_law
from contextrouter.testing.subject import Subject

MOST_WITHOUT_END = 3
"""After so many laws whose check did not end, no other is checked."""
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
    """Check one law in a thread and an event loop of its own. A plugin that does not end is given up, which
    is a finding. Raises RuntimeError where an event loop already runs.
    """
    if in_event_loop():
        raise RuntimeError("judge() waits for the law; call it where no event loop runs.")
    file = getattr(sys.modules.get(subject.cls.__module__), "__file__", None) or ""
    try:
        return run_apart(lambda: check_law(law, subject), file)
    except GivenUp as reason:
        return Finding(law=law.name, says=law.says, status="broken", why=str(reason))


def verdict(subject: Subject, progress: Progress | None = None) -> Verdict:
    """Check a subject by all laws of its kind.

    Where a gate is broken, such as the law of the example, the laws behind it are not applicable. So are
    the laws after three that did not end.
    """
    findings: list[Finding] = []
    closed: Finding | None = None  # the gate that is broken, or the last law that did not end
    endless = 0
    laws = laws_of(subject.cls)
    for number, law in enumerate(laws, 1):
        if progress is not None:
            progress(number, len(laws), law.name)
        if closed is None or law.name in subject.deviations:
            finding = judge(subject, law)
        else:
            finding = Finding(law=law.name, says=law.says, status="not applicable", why=reason_of(closed))
        endless += finding.status == "broken" and finding.why.startswith(NO_END)
        if closed is None and finding.status == "broken" and (law.gate or endless >= MOST_WITHOUT_END):
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
