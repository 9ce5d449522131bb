"""Route choice: which route an intent takes. A route says what a question needs; without it, its fallback is
taken at once.
"""

from __future__ import annotations

from contextrouter.contracts import CLARIFY
from contextrouter.model import Context, Intent, Request
from contextrouter.settings import Settings

INFERRED = ("labels", "filters", "period")
"""What interpreters infer and a search may give up."""


def choose_route(intent: Intent, request: Request, settings: Settings) -> tuple[Intent, str]:
    """Return the intent with the kind whose route it takes, and why others were left, for the trace.

    A route whose needs are unmet leads to its fallback, or to "default" without one, or where its fallbacks
    lead back to it.
    """
    notes: list[str] = []
    tried: set[str] = set()
    while True:
        tried.add(intent.kind)
        route = settings.routes.get(intent.kind)
        missing = [need for need in route.needs if not _is_met(need, intent, request)] if route else []
        if route is None or not missing:
            break
        kind = route.fallback or "default"
        if kind in tried and "default" not in tried:
            kind = "default"
        elif kind in tried:  # the table [routes.default] has needs, too
            break
        notes.append(f"{intent.kind!r} needs {' and '.join(missing)}: {kind!r} instead")
        intent = intent.replace(kind=kind)
    return intent, "; ".join(notes)


def next_route(intent: Intent, tried: set[str], settings: Settings) -> tuple[Intent | None, str]:
    """Return the intent for the route to try after one that found nothing (None: there is no other), and the
    reason for the trace.

    A kind without a table of its own is tried once more without what was inferred.
    """
    kind = intent.kind
    if kind in settings.routes:
        fallback = settings.routes[kind].fallback
        if fallback is None or fallback in tried:
            return None, ""
        return intent.replace(kind=fallback), f"route {kind!r} found nothing: {fallback!r} instead"
    inferred = [name for name in INFERRED if getattr(intent, name)]
    if not inferred:
        return None, ""
    reason = f"nothing matches the inferred {' and '.join(inferred)}: searched without"
    return intent.replace(labels=(), filters={}, period=None), reason


def _is_met(need: str, intent: Intent, request: Request) -> bool:
    name, _, count = need.partition(":")
    demanded = getattr(request, name, None) if name in INFERRED else None
    value = demanded or getattr(intent, name)
    return len(value) >= int(count) if count else bool(value)


def join_contexts(before: Context, after: Context) -> Context:
    """Return the context of a fallback route, with what the route before it asked, cost and lost."""
    called = tuple(report for report in before.coverage if report.status != "skipped")
    names = {report.source for report in called}
    others = tuple(r for r in after.coverage if r.status != "skipped" or r.source not in names)
    before_usage, after_usage = before.usage, after.usage
    usage = after_usage.replace(
        calls=before_usage.calls + after_usage.calls,
        hits=before_usage.hits + after_usage.hits,
        seconds=before_usage.seconds + after_usage.seconds,
    )
    trace = after.trace.replace(steps=(*before.trace.steps, *after.trace.steps))
    if after.outcome == "empty" and before.clarification is not None:
        after = after.replace(outcome=CLARIFY, clarification=before.clarification)
    return after.replace(coverage=(*called, *others), usage=usage, trace=trace)
