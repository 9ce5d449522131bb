"""What `--explain` adds: the plan, the scores, the steps with their times, and where every document was
lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from contextrouter.cli import terminal
from contextrouter.model import Context, Envelope, Intent, Plan
from contextrouter.pipeline.explanation import explain_order

_NAME = 44
"""Characters of a document's name that are shown in a table."""


def show(context: Context) -> None:
    """Print what lies behind the answer."""
    show_plan(context.trace.plan)
    if context.envelopes:
        _scores(context)
    _steps(context)
    _lost(context)


def show_intent(intent: Intent) -> None:
    """Print what the question was understood as."""
    period = intent.period
    days = f"{period.start or '…'} to {period.end or '…'} ({period.zone})" if period else ""
    known: Mapping[str, str] = {
        "concepts": ", ".join(intent.concepts),
        "entities": ", ".join(intent.entities),
        "labels": ", ".join(intent.labels),
        "period": days,
        "language": intent.language or "",
        "facets": ", ".join(intent.facets),
        "lookup": intent.lookup or "",
    }
    for number, query in enumerate(intent.queries, 1):
        terminal.say((f"q{number}  ", "cyan"), query, indent=2)
    for name, value in known.items():
        if value:
            terminal.say((f"{name}: ", "dim"), value, indent=2)


def show_plan(plan: Plan) -> None:
    """Print which source is asked what, and what is not asked."""
    calls = terminal.count(len(plan.calls), "call")
    terminal.heading("Plan", f"Route {plan.route!r}: what was understood, and the {calls} made of it.")
    show_intent(plan.intent)
    terminal.out.print()
    names = {text: f"q{number}" for number, text in enumerate(plan.intent.queries, 1)}
    made = terminal.table(
        "source",
        "leg",
        "queries",
        terminal.right("limit"),
        terminal.right("weight"),
        terminal.right("time limit"),
        "note",
    )
    grouped: dict[tuple[str, str, int, str, str], list[str]] = {}
    for call in plan.calls:
        limit = "" if call.timeout is None else terminal.milliseconds(call.timeout)
        key = (call.source, call.query.leg, call.query.limit, f"{call.weight:g}", limit)
        grouped.setdefault(key, []).append(names.get(call.query.text, call.query.text))
    for (source, leg, most, weight, limit), texts in grouped.items():
        terminal.row(made, source, leg, " ".join(texts), most, weight, limit, "")
    for name, why in plan.excluded.items():
        left_out, _, way = name.partition("/")
        terminal.row(made, left_out, way, "not asked", "", "", "", why, style="dim")
    terminal.show(made)


def _scores(context: Context) -> None:
    terminal.heading(
        "Scores",
        "The score of the last step, what it is of the most it could be (0 to 1), and the signals that"
        " made it.",
    )
    made = terminal.table("", "document", terminal.right("score"), terminal.right("of most"), "signals")
    for number, envelope in enumerate(context.envelopes, 1):
        signals = "  ".join(map(_signal, envelope.signals.items()))
        score, share = f"{envelope.score:.4f}", f"{envelope.normalized:.2f}"
        terminal.row(
            made, terminal.styled((f"[{number}]", "bold cyan")), _name(envelope), score, share, signals
        )
    terminal.show(made)
    if len(context.envelopes) > 1:
        terminal.out.print()
        terminal.say(("Why each stands above the next: what speaks for it, and what against.", "dim"))
        for number, (one, other) in enumerate(itertools.pairwise(context.envelopes), 1):
            terminal.say((f"[{number}] ", "bold cyan"), explain_order(one, other), indent=2)
    _places(context)


def _places(context: Context) -> None:
    """Where each document stood behind the fusion and behind each stage: what the stages did."""
    steps = [step for step in context.trace.steps if step.order]
    if len(steps) < 2:
        return
    terminal.out.print()
    terminal.say(("Where each stood behind each step; – is behind the first 50, or not there yet.", "dim"))
    made = terminal.table("", "document", *[terminal.right(step.name) for step in steps])
    for number, envelope in enumerate(context.envelopes, 1):
        name = envelope.document.id or envelope.document.url
        places = [str(step.order.index(name) + 1) if name in step.order else "–" for step in steps]
        terminal.row(made, terminal.styled((f"[{number}]", "bold cyan")), _name(envelope), *places)
    terminal.show(made)


def _signal(signal: tuple[str, float]) -> str:
    name, value = signal
    return f"({name.replace('_', ' ')})" if name.endswith("_missing") else f"{name} {terminal.number(value)}"


def _name(envelope: Envelope) -> str:
    document = envelope.document
    name = document.title or document.url or document.id or document.content[:60]
    last = document.path[-1] if document.path else ""
    if not last or last == name:
        return _cut(name, _NAME)
    return f"{_cut(name, max(20, _NAME - 3 - len(last)))} > {_cut(last, _NAME - 23)}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _steps(context: Context) -> None:
    terminal.heading(
        "Steps", "What happened, in order, how long it took, and how many documents came out of each step."
    )
    made = terminal.table(
        "step", terminal.right("time"), terminal.right("live"), terminal.right("lost"), "note"
    )
    for step in context.trace.steps:
        took = f"{step.elapsed * 1000:.1f} ms"
        terminal.row(made, step.name, took, step.live, len(step.lost) or "", step.note)
    terminal.show(made)


def _lost(context: Context) -> None:
    lost: dict[tuple[str, str], list[Envelope]] = {}
    for step in context.trace.steps:
        for envelope in step.lost:
            lost.setdefault((step.name, envelope.dropped or ""), []).append(envelope)
    facts = [(step, fact) for step in context.trace.steps for fact in step.lost_facts]
    about = "Every document that was found and is not in the answer: where it was lost, and why."
    terminal.heading("Lost", about if lost else "No document was lost." if facts else "Nothing was lost.")
    for (step_name, why), envelopes in lost.items():
        terminal.out.print()
        terminal.say(
            (step_name, "bold"),
            f" – {why.partition(': ')[2] or why}",
            (f"  ({len(envelopes)})", "dim"),
            indent=2,
        )
        made = terminal.table("document", terminal.right("score"), "found by")
        for envelope in envelopes:
            terminal.row(made, _name(envelope), f"{envelope.score:.4f}", _found_by(envelope), style="dim")
        terminal.show(made, indent=4)
    if facts:
        terminal.out.print()
        made = terminal.table("fact", "lost in", "source")
        for step, fact in facts:
            terminal.row(
                made,
                f"{fact.subject} — {fact.predicate} — {fact.object}",
                step.name,
                fact.source,
                style="dim",
            )
        terminal.show(made, indent=4)


def _found_by(envelope: Envelope) -> str:
    """ "library text, vector": the sources and legs that returned it."""
    legs: dict[str, list[str]] = {}
    for seal in envelope.provenance:
        if seal.leg not in legs.setdefault(seal.source, []):
            legs[seal.source].append(seal.leg)
    return "; ".join(f"{source} {', '.join(sorted(names))}" for source, names in sorted(legs.items()))
