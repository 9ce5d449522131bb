"""Prints a whole context for people: numbered passages, facts, citations and the coverage of sources."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from contextrouter.cli import terminal
from contextrouter.model import Citation, Context, Envelope, Fact, Provenance, SourceReport

EXCERPT = 260
"""Characters of a document, and of the question, that are shown; `--text` and `--json` show all."""
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
    "facts_only": "No document was found; there are facts, entities or counts.",
    "empty": "Nothing was found. Ask in other words, or see with --explain what was asked and what was lost.",
    "confidence_gated_fallback": (
        "What was found is not near enough to the question. See with --explain what the gate read."
    ),
    "not_searched": "The question needs no search, or has nothing to look for, so no source was asked.",
    "clarify": "The question has to be clearer:",
}
_NO_SOURCES = (
    "The settings define no source, so nothing was asked. Add a table such as [connectors.files], or run"
    " `contextrouter init` for an example."
)


def print_context(context: Context) -> None:
    """Print the whole answer."""
    queries = _number_queries(context)
    print_summary(context)
    if context.envelopes:
        _print_pieces(context)
    if context.facts:
        _print_facts(context.facts)
    _print_entities_and_counts(context)
    if context.envelopes:
        _print_citations(context, queries)
    terminal.heading(
        "Coverage", "How each source did. A source that failed or was late is missing from the answer."
    )
    print_coverage(context.coverage)


def _number_queries(context: Context) -> dict[str, str]:
    """Map each query to q1, q2, … in the order of the intent; the question is q1."""
    texts = dict.fromkeys(
        (*context.intent.queries, *(p.query for e in context.envelopes for p in e.provenance))
    )
    return {text: f"q{number}" for number, text in enumerate(texts, 1)}


def print_summary(context: Context) -> None:
    """Print what was asked, how much was found, and how well it can answer."""
    terminal.say((_beginning(context.question), "bold"))
    sources = {p.source for e in context.envelopes for p in e.provenance} | {f.source for f in context.facts}
    documents = terminal.count(len(context.envelopes), "document")
    counts = f"{documents} and {terminal.count(len(context.facts), 'fact')}"
    time = f"{terminal.count(len(sources), 'source')} in {terminal.milliseconds(context.usage.seconds)}"
    tokens = "" if context.usage.tokens is None else f", {context.usage.tokens} tokens"
    terminal.say(f"{counts} from {time}{tokens}", ("  (from the cache)" if context.cached else "", "dim"))
    if not context.coverage:
        terminal.say((_NO_SOURCES, "yellow"))
    elif _OUTCOMES.get(context.outcome):
        terminal.say((_OUTCOMES[context.outcome], "yellow"))
    verdict = context.answerability
    if context.clarification is not None:
        terminal.say((context.clarification.question, "bold"), indent=2)
    if context.envelopes:
        terminal.say(
            ("Answerable: ", "dim"),
            (verdict.level, _LEVELS.get(verdict.level, "")),
            (f" – {verdict.reason}", "dim"),
        )
    if context.degraded:
        terminal.say(
            ("Degraded: ", "red"),
            "something failed; a part of the answer may be missing. See Coverage, and Steps of --explain.",
        )


def _print_pieces(context: Context) -> None:
    terminal.heading(
        "Context",
        f"The best pieces, best first, shortened to {EXCERPT} characters. [n] is the citation number.",
    )
    for citation, envelope in zip(context.citations, context.envelopes, strict=True):
        document = envelope.document
        path = " > ".join(document.path)
        about = " · ".join(filter(None, (document.kind, citation.source, document.compartment)))
        terminal.out.print()
        terminal.say((f"[{citation.number}] ", "bold cyan"), (citation.title, "bold"), (f"  {about}", "dim"))
        if path and path != citation.title:
            terminal.say((path, "italic dim"), indent=4)
        terminal.say(excerpt(document.content), indent=4)


def _print_entities_and_counts(context: Context) -> None:
    if context.entities:
        terminal.heading("Entities", "What is known of the names in the question.")
        for entity in context.entities:
            values = "; ".join(f"{name}: {value}" for name, value in entity.attributes.items())
            terminal.say(f"{entity.name}  {values}", indent=2)
    if context.facets:
        terminal.heading("Counts", "How many documents or facts have each value.")
        for dimension in dict.fromkeys(facet.dimension for facet in context.facets):
            counts = [f"{f.value} ({f.count})" for f in context.facets if f.dimension == dimension]
            terminal.say(f"{dimension}: {', '.join(counts)}", indent=2)


def excerpt(content: str) -> str:
    """Return the beginning of a document, in one paragraph."""
    return _beginning(" ".join(_HEADING.sub("", content, count=1).split()) or content.strip())


def _beginning(text: str) -> str:
    return text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " …"


def _print_facts(facts: Sequence[Fact]) -> None:
    terminal.heading(
        "Facts", "Triples about what the question names. They stand beside the documents and are not cited."
    )
    table = terminal.table("subject", "predicate", "object", "valid", terminal.right("sure"), "source")
    for fact in facts:
        since = f"from {fact.valid_from.date()}" if fact.valid_from else ""
        until = f"to {fact.valid_to.date()}" if fact.valid_to else ""
        valid = f"{since} {until}".strip()
        terminal.row(
            table, fact.subject, fact.predicate, fact.object, valid, f"{fact.confidence:.2f}", fact.source
        )
    terminal.show(table)


def _print_citations(context: Context, queries: Mapping[str, str]) -> None:
    terminal.heading(
        "Citations",
        "What [n] stands for, and where it came from: its rank in each source, and the source's own score.",
    )
    for citation in context.citations:
        link = where(citation)
        number = f"[{citation.number}]"
        terminal.say((f"{number:<5}", "bold cyan"), citation.title, indent=2)
        about = [citation.place if citation.page or citation.seconds is not None else "", citation.job]
        parts = [part for part in (link if link != citation.title else "", *about) if part]
        if parts:
            terminal.say((" · ".join(parts), "dim"), indent=7)
    names = list(queries.values())
    terminal.out.print()
    table = terminal.table("", "source", "leg", *({"header": name, "no_wrap": True} for name in names))
    for citation, envelope in zip(context.citations, context.envelopes, strict=True):
        head = terminal.style_text((f"[{citation.number}]", "bold cyan"))
        for source, leg, cells in _group_by_leg(envelope, queries):
            terminal.row(table, head, source, leg, *(cells.get(name, "") for name in names))
            head = Text()
    terminal.show(table)
    terminal.out.print()
    for text, name in queries.items():
        terminal.say((f"{name}  ", "cyan"), (text, "dim"), indent=2)


def where(citation: Citation) -> str:
    """Return where a citation opens: the address, or the path of its file with the line, as seen from the
    current folder.
    """
    if not citation.file or not citation.url.startswith("file:"):
        return citation.url
    path = Path(citation.file)
    try:
        name = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    except OSError:  # the current folder is gone
        name = str(path)
    return f"{name}:{citation.line}" if citation.line is not None else name


def _group_by_leg(envelope: Envelope, queries: Mapping[str, str]) -> list[tuple[str, str, dict[str, str]]]:
    """One line per source and leg, best rank first: query name -> rank and raw score."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for seal in envelope.provenance:
        lines.setdefault((seal.source, seal.leg), {})[queries[seal.query]] = _format_rank(seal)
    return [(source, leg, cells) for (source, leg), cells in lines.items()]


def _format_rank(seal: Provenance) -> str:
    return f"#{seal.rank} ({terminal.number(seal.score)})" if seal.score is not None else f"#{seal.rank}"


def print_coverage(reports: Sequence[SourceReport], console: Console = terminal.out) -> None:
    """Print one line per source, leg and status (queries, hits, slowest call), then the full errors."""
    numbered = map(terminal.right, ("queries", "hits", "slowest"))
    table = terminal.table("source", "leg", "status", *numbered, "note")
    grouped: dict[tuple[str, str, str], list[SourceReport]] = {}
    for report in reports:
        grouped.setdefault((report.source, report.leg, report.status), []).append(report)
    for (source, leg, status), group in grouped.items():
        queried = status != "skipped"
        slowest = terminal.milliseconds(max(report.elapsed for report in group))
        numbers = (len(group), sum(report.count for report in group), slowest)
        withheld = sum(report.withheld for report in group)
        remark = (f"{withheld} withheld" if withheld else "") if queried else group[0].error
        status_cell = terminal.style_text((status, _COLOURS.get(status, "")))
        terminal.row(table, source, leg, status_cell, *(numbers if queried else ("", "", "")), remark)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    _print_errors(reports, console)


def _print_errors(reports: Sequence[SourceReport], console: Console) -> None:
    """Print each error once, with the sources and legs that reported it."""
    errors: dict[str, dict[str, list[str]]] = {}
    for report in reports:
        if report.error and report.status != "skipped":
            legs = errors.setdefault(report.error, {}).setdefault(report.source, [])
            if report.leg not in legs:
                legs.append(report.leg)
    for error, sources in errors.items():
        origin = "; ".join(f"{source} {', '.join(legs)}" for source, legs in sources.items())
        console.print(Padding(terminal.style_text((f"{origin}: ", "red"), error), (1, 0, 0, 2), expand=False))
