"""Prints a context on one screen: the best documents first, then facts, and how the sources did in a line."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.cli import terminal
from contextrouter.cli.views.whole_context import excerpt, print_coverage, print_summary, where
from contextrouter.model import Citation, Context, Fact, SourceReport

LINES = 24
"""The lines of a screen where the terminal has fewer, or there is none that says."""
TALL = 36
"""A screen of so many lines has space between the documents."""
_FACTS = 3
_OTHERS = 10
"""Lines beside those of documents and facts: the summary, the coverage, the advice, and space between."""
_BLOCK = 3
"""Lines of a document: its title, its beginning, and where it opens."""
FAILED = ("timeout", "error", "open", "partial")


def print_screen(context: Context) -> None:
    """Print what fits on a screen of an answer."""
    print_summary(context)
    facts = min(len(context.facts), _FACTS)
    height = max(LINES, terminal.out.height)
    is_tall = height >= TALL
    room = height - _OTHERS - (facts + 2 if facts else 0)
    documents = max(3, room // (_BLOCK + is_tall))
    pairs = zip(context.citations[:documents], context.envelopes[:documents], strict=True)
    for number, (citation, envelope) in enumerate(pairs):
        if is_tall or number == 0:
            terminal.out.print()
        print_citation(citation, excerpt(envelope.document.content))
    if len(context.citations) > documents:
        number = len(context.citations)
        rest_count = terminal.count(number - documents, "more document")
        first = f"[{documents + 1}] to " if number > documents + 1 else ""
        terminal.say((f"{first}[{number}]: {rest_count}", "dim"))
    if facts:
        terminal.out.print()
        _print_facts(context.facts, facts if context.envelopes else max(facts, room))
    _print_counts(context)
    terminal.out.print()
    if any(report.status in FAILED for report in context.coverage):
        terminal.say(("Coverage: something failed, and is missing from the answer.", "red"))
        print_coverage(context.coverage)
    elif context.coverage:
        terminal.line((coverage_line(context.coverage), "dim"))
    terminal.line(("--explain shows all of it, and how it came about; --text the context as it is.", "dim"))


def print_citation(citation: Citation, beginning: str = "") -> None:
    """Print a citation in at most three lines: what it is, how it begins, and where it opens."""
    heading = citation.path[-1] if citation.path and citation.path[-1] != citation.title else ""
    position = citation.place if citation.line is None or citation.page else ""
    about = " · ".join(part for part in (heading, position) if part)
    terminal.line(
        (f"[{citation.number}] ", "bold cyan"), (citation.title, "bold"), (f"  {about}" if about else "", "")
    )
    if beginning:
        terminal.line(beginning, indent=4)
    origin = citation.job or citation.source
    terminal.line((" · ".join(part for part in (where(citation), origin) if part), "dim"), indent=4)


def coverage_line(reports: Sequence[SourceReport]) -> str:
    """Return how the calls ended, in a sentence: no call failed."""
    answers = [report for report in reports if report.status == "ok"]
    unasked = {report.source for report in reports if report.status == "skipped"}
    sources = terminal.count(len({report.source for report in answers}), "source")
    line = f"Coverage: all of {terminal.count(len(answers), 'call')} to {sources} answered"
    if answers:
        slowest = max(answers, key=lambda report: report.elapsed)
        line += f"; the slowest, {slowest.source}, in {terminal.milliseconds(slowest.elapsed)}"
    return f"{line}; not asked: {', '.join(sorted(unasked))}." if unasked else f"{line}."


def _print_facts(facts: Sequence[Fact], limit: int) -> None:
    for fact in facts[:limit]:
        terminal.line(("• ", "cyan"), f"{fact.subject} — {fact.predicate} — {fact.object}")
    if len(facts) > limit:
        terminal.line((f"  {terminal.count(len(facts) - limit, 'more fact')}", "dim"))


def _print_counts(context: Context) -> None:
    for entity in context.entities[:_FACTS]:
        values = "; ".join(f"{name}: {value}" for name, value in entity.attributes.items())
        terminal.line(("• ", "cyan"), f"{entity.name}  {values}")
    for dimension in list(dict.fromkeys(facet.dimension for facet in context.facets))[:_FACTS]:
        counts = [f"{f.value} ({f.count})" for f in context.facets if f.dimension == dimension]
        terminal.line(("• ", "cyan"), f"{dimension}: {', '.join(counts)}")
