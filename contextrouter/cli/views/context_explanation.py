"""Prints the explanation (`--explain`): plan, scores, steps with times, and where each document was lost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from contextrouter.cli import terminal
from contextrouter.model import Context, Envelope, Intent, Plan
from contextrouter.pipeline.explanation import explain_order, explain_score

_NAME = 44
"""Characters of a document's name that are shown in a table."""


def print_explanation(context: Context) -> None:
    """Print plan, scores, steps and losses of an answer."""
    print_plan(context.trace.plan)
    if context.envelopes:
        _print_scores(context)
    _print_steps(context)
    _print_lost(context)


def print_intent(intent: Intent) -> None:
    """Print the intent of a question."""
    period = intent.period
    days = f"{period.start or '…'} to {period.end or '…'} ({period.zone})" if period else ""
    fields: Mapping[str, str] = {
        "concepts": ", ".join(intent.concepts),
        "entities": ", ".join(intent.entities),
        "labels": ", ".join(intent.labels),
        "period": days,
        "words of time not used": str(intent.attributes.get("periods", "")),
        "language": intent.language or "",
        "facets": ", ".join(intent.facets),
        "lookup": intent.lookup or "",
    }
    for number, query in enumerate(intent.queries, 1):
        terminal.say((f"q{number}  ", "cyan"), query, indent=2)
    for name, value in fields.items():
        if value:
            terminal.say((f"{name}: ", "dim"), value, indent=2)


def print_plan(plan: Plan) -> None:
    """Print the calls of a plan, and the sources it excludes."""
    calls = terminal.count(len(plan.calls), "call")
    terminal.heading("Plan", f"Route {plan.route!r}: what was understood, and the {calls} made of it.")
    print_intent(plan.intent)
    terminal.out.print()
    names = {text: f"q{number}" for number, text in enumerate(plan.intent.queries, 1)}
    numbers = map(terminal.right, ("limit", "weight", "time limit"))
    table = terminal.table("source", "leg", "queries", *numbers, "note")
    grouped: dict[tuple[str, str, int, str, str], list[str]] = {}
    for call in plan.calls:
        limit = "" if call.timeout is None else terminal.milliseconds(call.timeout)
        key = (call.source, call.query.leg, call.query.limit, f"{call.weight:g}", limit)
        grouped.setdefault(key, []).append(names.get(call.query.text, call.query.text))
    for (source, leg, max_hits, weight, limit), texts in grouped.items():
        terminal.row(table, source, leg, " ".join(texts), max_hits, weight, limit, "")
    for name, reason in plan.excluded.items():
        source_name, _, leg_name = name.partition("/")
        terminal.row(table, source_name, leg_name, "not asked", "", "", "", reason, style="dim")
    terminal.show(table)


def _print_scores(context: Context) -> None:
    terminal.heading(
        "Scores",
        "The score of the last step, the share of the highest score possible (0 to 1), and the signals behind"
        " it.",
    )
    table = terminal.table("", "document", terminal.right("score"), terminal.right("share"), "signals")
    for number, envelope in enumerate(context.envelopes, 1):
        values = {n: v for n, v in envelope.signals.items() if n != "fused" or v != envelope.score}
        signals = "  ".join(map(_format_signal, values.items()))
        score, share = f"{envelope.score:.4f}", f"{envelope.normalized:.2f}"
        mark = terminal.style_text((f"[{number}]", "bold cyan"))
        terminal.row(table, mark, _document_label(envelope), score, share, signals)
    terminal.show(table)
    terminal.out.print()
    about = "How each source scored it. Scaled: the score of the leg from 0 to 1. A leg that did not return"
    more = " the document may add to its score, too. With several sources, the value of the place decides."
    terminal.say((about + more, "dim"))
    for number, envelope in enumerate(context.envelopes, 1):
        for line in explain_score(envelope):
            terminal.say((f"[{number}] ", "bold cyan"), line, indent=2)
    if len(context.envelopes) > 1:
        terminal.out.print()
        terminal.say(("Why each stands above the next: what speaks for it, and what against.", "dim"))
        for number, (higher, lower) in enumerate(itertools.pairwise(context.envelopes), 1):
            terminal.say((f"[{number}] ", "bold cyan"), explain_order(higher, lower), indent=2)
    _print_positions(context)


def _print_positions(context: Context) -> None:
    """Print the position of each document after fusion and after each stage."""
    steps = [step for step in context.trace.steps if step.order]
    if len(steps) < 2:
        return
    terminal.out.print()
    terminal.say(
        ("The place of each document after each step. – means: not among the first 50, or not yet.", "dim")
    )
    table = terminal.table("", "document", *[terminal.right(step.name) for step in steps])
    for number, envelope in enumerate(context.envelopes, 1):
        name = envelope.document.id or envelope.document.url
        positions = [str(step.order.index(name) + 1) if name in step.order else "–" for step in steps]
        mark = terminal.style_text((f"[{number}]", "bold cyan"))
        terminal.row(table, mark, _document_label(envelope), *positions)
    terminal.show(table)


def _format_signal(signal: tuple[str, float]) -> str:
    name, value = signal
    return f"({name.replace('_', ' ')})" if name.endswith("_missing") else f"{name} {terminal.number(value)}"


def _document_label(envelope: Envelope) -> str:
    document = envelope.document
    name = document.title or document.url or document.id or document.content[:60]
    heading = document.path[-1] if document.path else ""
    if not heading or heading == name:
        return _shorten(name, _NAME)
    return f"{_shorten(name, max(20, _NAME - 3 - len(heading)))} > {_shorten(heading, _NAME - 23)}"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _print_steps(context: Context) -> None:
    terminal.heading(
        "Steps", "What happened, in order, how long it took, and how many documents came out of each step."
    )
    table = terminal.table("step", *map(terminal.right, ("time", "live", "lost")), "note")
    for step in context.trace.steps:
        duration = f"{step.elapsed * 1000:.1f} ms"
        terminal.row(table, step.name, duration, step.live, len(step.lost) or "", step.note)
    terminal.show(table)


def _print_lost(context: Context) -> None:
    lost_groups: dict[tuple[str, str], list[Envelope]] = {}
    for step in context.trace.steps:
        for envelope in step.lost:
            lost_groups.setdefault((step.name, envelope.dropped or ""), []).append(envelope)
    facts = [(step, fact) for step in context.trace.steps for fact in step.lost_facts]
    about = "Every document that was found and is not in the answer: where it was lost, and why."
    terminal.heading(
        "Lost", about if lost_groups else "No document was lost." if facts else "Nothing was lost."
    )
    for (step_name, reason), envelopes in lost_groups.items():
        terminal.out.print()
        why = f" – {reason.partition(': ')[2] or reason}"
        terminal.say((step_name, "bold"), why, (f"  ({len(envelopes)})", "dim"), indent=2)
        table = terminal.table("document", terminal.right("score"), "found by")
        for envelope in envelopes:
            score, label = f"{envelope.score:.4f}", _document_label(envelope)
            terminal.row(table, label, score, _format_sources(envelope), style="dim")
        terminal.show(table, indent=4)
    if facts:
        terminal.out.print()
        table = terminal.table("fact", "lost in", "source")
        for step, fact in facts:
            triple = f"{fact.subject} — {fact.predicate} — {fact.object}"
            terminal.row(table, triple, step.name, fact.source, style="dim")
        terminal.show(table, indent=4)


def _format_sources(envelope: Envelope) -> str:
    """Format the sources and legs that returned a document: "library text, vector"."""
    legs: dict[str, list[str]] = {}
    for seal in envelope.provenance:
        if seal.leg not in legs.setdefault(seal.source, []):
            legs[seal.source].append(seal.leg)
    return "; ".join(f"{source} {', '.join(sorted(names))}" for source, names in sorted(legs.items()))
