"""`contextrouter plugins check`: runs the contract tests of a plugin and prints the verdict."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from contextrouter.cli import terminal
from contextrouter.contracts import Plugin
from contextrouter.runtime.registry import PluginListing, Registry

_MARKS = {
    "ok": ("✓", "green"),
    "broken": ("✗", "red"),
    "deviates": ("!", "yellow"),
    "not applicable": ("–", "dim"),
}

GATE = "nothing else can be checked"
"""How the reason begins for which a law behind a broken gate was not checked."""


class LawResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one law. `status` is ok, broken, deviates or not applicable; `why` explains the last
    three.
    """

    law: str
    says: str
    status: str
    why: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about one plugin. `problem` says why it could not be tested; then `laws` is empty."""

    kind: str
    name: str
    origin: str
    problem: str = ""
    broken: int = 0
    laws: tuple[LawResult, ...] = ()


def judge(registry: Registry, line: PluginListing) -> Verdict:
    """Return the verdict about the plugin of one line, by its example()."""
    if line.problem:
        at_fault = int("pip install" not in line.problem)
        return Verdict(
            kind=line.kind, name=line.name, origin=line.origin, problem=line.problem, broken=at_fault
        )
    return check_class(registry.load(line.kind, line.name), line)


def check_class(cls: type[Plugin], line: PluginListing, **subject: Any) -> Verdict:
    """Check a class by the laws of its kind. `subject` are keywords of `testing.subject_of`."""
    from contextrouter.testing import subject_of, verdict

    try:
        with terminal.progress() as show:
            judgement = verdict(subject_of(cls, **subject), show)
    except ValueError as error:  # a deviation from what is no law
        return Verdict(kind=line.kind, name=line.name, origin=line.origin, problem=str(error), broken=1)
    example = next(finding for finding in judgement.findings if finding.law == "example_works")
    if example.status == "not applicable" and not example.why.startswith(GATE):  # a package is absent
        return Verdict(kind=judgement.kind, name=line.name, origin=line.origin, problem=example.why, broken=1)
    laws = tuple(
        LawResult(law=finding.law, says=finding.says, status=finding.status, why=finding.why)
        for finding in judgement.findings
    )
    return Verdict(
        kind=judgement.kind, name=line.name, origin=line.origin, broken=len(judgement.broken), laws=laws
    )


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict: one line per law, then a summary."""
    terminal.heading(f"{verdict.kind} {verdict.name}", verdict.origin)
    terminal.out.print()
    if verdict.problem:
        terminal.say((verdict.problem, "red"))
        return
    table = terminal.table("", {"header": "law", "overflow": "fold"}, {"header": "finding", "ratio": 1})
    unchecked = [result for result in verdict.laws if result.why.startswith(GATE)]
    for result in verdict.laws:
        if result in unchecked:
            continue
        mark, style = _MARKS[result.status]
        cells = [terminal.style_text((text, style)) for text in (mark, result.law)]
        terminal.row(table, *cells, _format_finding(result))
    terminal.show(table, indent=0)
    terminal.out.print()
    if unchecked:
        terminal.say(f"{terminal.count(len(unchecked), 'more law')}: {unchecked[0].why}.")
    terminal.say((_summarize(verdict), "red" if verdict.broken else "green"))


def _format_finding(result: LawResult) -> object:
    if result.status == "broken":
        return terminal.style_text(f"{result.says} ", (f"But {result.why}.", "red"))
    return result.status if result.status == "ok" else f"{result.status}: {result.why}"


def _summarize(verdict: Verdict) -> str:
    count = Counter(result.status for result in verdict.laws)
    parts = [f"{count['ok']} laws kept", f"{verdict.broken} broken", f"{count['deviates']} deviated from"]
    return ", ".join([*parts, f"{count['not applicable']} not applicable"]) + "."
