"""What `contextrouter plugins check` judgement, for a terminal."""

from __future__ import annotations

from collections import Counter

import msgspec

from contextrouter.cli import terminal
from contextrouter.runtime.registry import Listed, Registry

_MARKS = {
    "ok": ("✓", "green"),
    "broken": ("✗", "red"),
    "deviates": ("!", "yellow"),
    "not applicable": ("–", "dim"),
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One law of a verdict. `status` is ok, broken, deviates or not applicable; `why` explains all but the
    first.
    """

    law: str
    says: str
    status: str
    why: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin's verdict. `problem` says why it could not be looked at; then there are no laws."""

    kind: str
    name: str
    origin: str
    problem: str = ""
    broken: int = 0
    laws: tuple[Line, ...] = ()


def judge(registry: Registry, listed: Listed) -> Judged:
    """The verdict of a listed plugin."""
    from contextrouter.testing import subject_of, verdict

    if listed.problem:
        at_fault = int("pip install" not in listed.problem)
        return Judged(
            kind=listed.kind, name=listed.name, origin=listed.origin, problem=listed.problem, broken=at_fault
        )
    try:
        judgement = verdict(subject_of(registry.load(listed.kind, listed.name)))
    except ValueError as error:  # a deviation from what is no law
        return Judged(kind=listed.kind, name=listed.name, origin=listed.origin, problem=str(error), broken=1)
    if judgement.findings[0].status == "not applicable":  # the example's package is not installed
        return Judged(
            kind=judgement.kind,
            name=listed.name,
            origin=listed.origin,
            problem=judgement.findings[0].why,
            broken=1,
        )
    laws = tuple(
        Line(law=each.law, says=each.says, status=each.status, why=each.why) for each in judgement.findings
    )
    return Judged(
        kind=judgement.kind, name=listed.name, origin=listed.origin, broken=len(judgement.broken), laws=laws
    )


def show(each: Judged) -> None:
    """Print a verdict: a line per law, then the sum."""
    terminal.heading(f"{each.kind} {each.name}", each.origin)
    terminal.out.print()
    if each.problem:
        terminal.say((each.problem, "red"))
        return
    table = terminal.table("", {"header": "law", "overflow": "fold"}, {"header": "finding", "ratio": 1})
    for line in each.laws:
        mark, style = _MARKS[line.status]
        finding = (
            terminal.styled(f"{line.says} ", (f"But {line.why}.", "red"))
            if line.status == "broken"
            else _status(line)
        )
        terminal.row(table, terminal.styled((mark, style)), terminal.styled((line.law, style)), finding)
    terminal.show(table, indent=0)
    terminal.out.print()
    terminal.say((_sum(each), "red" if each.broken else "green"))


def _status(line: Line) -> str:
    return line.status if line.status == "ok" else f"{line.status}: {line.why}"


def _sum(each: Judged) -> str:
    count = Counter(line.status for line in each.laws)
    parts = [f"{count['ok']} laws kept", f"{each.broken} broken", f"{count['deviates']} deviated from"]
    return ", ".join([*parts, f"{count['not applicable']} not applicable"]) + "."
