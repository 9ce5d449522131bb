"""A context as a person reads it: the numbered pieces, facts, where each came from, and how each source
did.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from contextrouter.cli import terminal
from contextrouter.model import Context, Envelope, Fact, Provenance, SourceReport
from contextrouter.settings import CALIBRATED

EXCERPT = 260
"""Characters of a document that are shown; `--text` shows all."""
_HEADING = re.compile(r"\A\s*#{1,6} .*\n")  # the heading path says it already
_COLOURS = {
    "ok": "green",
    "partial": "yellow",
    "skipped": "dim",
    "timeout": "red",
    "error": "red",
    "open": "red",
}
_LEVELS = {"strong": "green", "weak": "yellow", "none": "red", "skipped": "dim"}
_OUTCOMES = {
    "answered": "",
    "facts_only": "No document was found; there are facts.",
    "empty": "Nothing was found. Ask in other words, or see with --explain what was asked and what was lost.",
    "confidence_gated_fallback": (
        "What was found is not near enough to the question. See with --explain what the gate read."
    ),
    "not_searched": "The question needs no search, so no source was asked.",
}


def show(context: Context) -> None:
    """Print the whole answer."""
    queries = _numbered(context)
    _summary(context)
    if context.envelopes:
        _pieces(context)
    if context.facts:
        _facts(context.facts)
    if context.envelopes:
        _provenance(context, queries)
    terminal.heading(
        "Coverage", "How each source did. A source that failed or was late is missing from the answer."
    )
    show_coverage(context.coverage)


def _numbered(context: Context) -> dict[str, str]:
    """Query -> q1, q2, … in the order of the intent; the question is q1."""
    texts = dict.fromkeys(
        (*context.intent.queries, *(p.query for e in context.envelopes for p in e.provenance))
    )
    return {text: f"q{number}" for number, text in enumerate(texts, 1)}


def _summary(context: Context) -> None:
    terminal.say((context.question, "bold"))
    sources = {p.source for e in context.envelopes for p in e.provenance} | {f.source for f in context.facts}
    sources.discard(CALIBRATED)
    found = (
        f"{terminal.count(len(context.envelopes), 'document')} and"
        f" {terminal.count(len(context.facts), 'fact')}"
    )
    taken = (
        f" from {terminal.count(len(sources), 'source')} in {terminal.milliseconds(context.usage.seconds)}"
    )
    tokens = "" if context.usage.tokens is None else f", {context.usage.tokens} tokens"
    terminal.say(found + taken + tokens, ("  (from the cache)" if context.cached else "", "dim"))
    if _OUTCOMES.get(context.outcome):
        terminal.say((_OUTCOMES[context.outcome], "yellow"))
    judged = context.answerability
    if context.envelopes:
        terminal.say(
            ("Answerable: ", "dim"),
            (judged.level, _LEVELS.get(judged.level, "")),
            (f" – {judged.reason}", "dim"),
        )
    if context.degraded:
        terminal.say(
            ("Degraded: ", "red"), "something failed, so a part of the answer may be missing; see Coverage."
        )


def _pieces(context: Context) -> None:
    terminal.heading(
        "Context",
        f"The best pieces, best first, shortened to {EXCERPT} characters. [n] is the citation number.",
    )
    for citation, envelope in zip(context.citations, context.envelopes, strict=True):
        document = envelope.document
        where = " > ".join(document.path)
        about = " · ".join(
            part for part in (document.kind, citation.source, document.compartment or "") if part
        )
        terminal.out.print()
        terminal.say((f"[{citation.number}] ", "bold cyan"), (citation.title, "bold"), (f"  {about}", "dim"))
        if where and where != citation.title:
            terminal.say((where, "italic dim"), indent=4)
        terminal.say(_excerpt(document.content), indent=4)


def _excerpt(content: str) -> str:
    text = " ".join(_HEADING.sub("", content, count=1).split()) or content.strip()
    return text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " …"


def _facts(facts: Sequence[Fact]) -> None:
    terminal.heading(
        "Facts", "Triples about what the question names. They stand beside the documents and are not cited."
    )
    made = terminal.table("subject", "predicate", "object", "valid", terminal.right("sure"), "source")
    for fact in facts:
        since = f"from {fact.valid_from.date()}" if fact.valid_from else ""
        until = f"to {fact.valid_to.date()}" if fact.valid_to else ""
        valid = f"{since} {until}".strip()
        terminal.row(
            made, fact.subject, fact.predicate, fact.object, valid, f"{fact.confidence:.2f}", fact.source
        )
    terminal.show(made)


def _provenance(context: Context, queries: Mapping[str, str]) -> None:
    terminal.heading(
        "Citations",
        "What [n] stands for, and where it came from: its rank in each source, and the source's own score.",
    )
    for citation in context.citations:
        link = f"  {citation.url}" if citation.url and citation.url != citation.title else ""
        number = f"[{citation.number}]"
        terminal.say((f"{number:<5}", "bold cyan"), citation.title, indent=2)
        if link:
            terminal.say((link.strip(), "dim"), indent=7)
    names = list(queries.values())
    terminal.out.print()
    made = terminal.table("", "source", "leg", *({"header": name, "no_wrap": True} for name in names))
    for citation, envelope in zip(context.citations, context.envelopes, strict=True):
        head = terminal.styled((f"[{citation.number}]", "bold cyan"))
        for source, leg, cells in _by_leg(envelope, queries):
            made.add_row(
                head,
                *(terminal.styled(cell) for cell in (source, leg, *(cells.get(name, "") for name in names))),
            )
            head = Text()
    terminal.show(made)
    terminal.out.print()
    for text, name in queries.items():
        terminal.say((f"{name}  ", "cyan"), (text, "dim"), indent=2)


def _by_leg(envelope: Envelope, queries: Mapping[str, str]) -> list[tuple[str, str, dict[str, str]]]:
    """One line per source and leg, best rank first: query name -> rank and raw score."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for seal in envelope.provenance:
        lines.setdefault((seal.source, seal.leg), {})[queries[seal.query]] = _rank(seal)
    return [(source, leg, cells) for (source, leg), cells in lines.items()]


def _rank(seal: Provenance) -> str:
    return f"#{seal.rank} ({terminal.number(seal.score)})" if seal.score is not None else f"#{seal.rank}"


def show_coverage(reports: Sequence[SourceReport], console: Console = terminal.out) -> None:
    """Print a line per source, leg and status: queries, hits, the slowest call; and below, what was wrong, in
    full.
    """
    made = terminal.table(
        "source",
        "leg",
        "status",
        terminal.right("queries"),
        terminal.right("hits"),
        terminal.right("slowest"),
        "note",
    )
    grouped: dict[tuple[str, str, str], list[SourceReport]] = {}
    for report in reports:
        grouped.setdefault((report.source, report.leg, report.status), []).append(report)
    for (source, leg, status), same in grouped.items():
        asked = status != "skipped"
        numbers = (len(same), sum(r.count for r in same), terminal.milliseconds(max(r.elapsed for r in same)))
        withheld = sum(report.withheld for report in same)
        remark = (f"{withheld} withheld" if withheld else "") if asked else same[0].error
        status_cell = terminal.styled((status, _COLOURS.get(status, "")))
        terminal.row(made, source, leg, status_cell, *(numbers if asked else ("", "", "")), remark)
    console.print(Padding(made, (0, 0, 0, 2), expand=False))
    _wrong(reports, console)


def _wrong(reports: Sequence[SourceReport], console: Console) -> None:
    """Each thing that went wrong once, with the sources and legs that said it."""
    said: dict[str, dict[str, list[str]]] = {}
    for report in reports:
        if report.error and report.status != "skipped":
            legs = said.setdefault(report.error, {}).setdefault(report.source, [])
            if report.leg not in legs:
                legs.append(report.leg)
    for error, sources in said.items():
        who = "; ".join(f"{source} {', '.join(legs)}" for source, legs in sources.items())
        console.print(Padding(terminal.styled((f"{who}: ", "red"), error), (1, 0, 0, 2), expand=False))
