"""What a caller with a scope is told of failures: the source and the kind of failure.

Messages of failures name paths, addresses and other tenants. They are for operators, in the log, under the
request id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from contextrouter.errors import AllSourcesFailed, ContextRouterError, RequestRefused
from contextrouter.model import Context, Intent, Plan, SourceReport, Step
from contextrouter.pipeline.fan_out.entity_hints import NOT_SEARCHED
from contextrouter.pipeline.interpretation import FAILED
from contextrouter.serialization import plain, shorten_query
from contextrouter.server.auth import Caller
from contextrouter.server.error_responses import Refused
from contextrouter.server.logs import log

T = TypeVar("T")
MESSAGES = {
    "error": "the source failed",
    "timeout": "no answer in time",
    "open": "not asked, because it failed before",
    "partial": "a part of its answer is missing",
}
OWN_STEPS = frozenset(
    "plan interpret fan_out facts facets dedupe calibrate fuse prefer select merge assemble shadow".split()
)
"""Steps of the trace whose notes the router writes; the others are stages."""
PLUGIN_FAILED = "A plugin failed. The log of the server has more under this request id."


def hide_errors(value: T, caller: Caller) -> T:
    """Return a report, a plan or a context without the messages of failures, if the caller has a scope."""
    if caller.scope is None:
        return value
    hidden: Any = value
    if isinstance(value, SourceReport):
        hidden = _report(value)
    elif isinstance(value, Plan):
        hidden = value.replace(intent=_intent(value.intent))
    elif isinstance(value, Context):
        steps = map(_step, value.trace.steps)
        plan = value.trace.plan.replace(intent=_intent(value.trace.plan.intent))
        hidden = value.replace(
            coverage=_reports(value.coverage),
            intent=_intent(value.intent),
            trace=value.trace.replace(steps=tuple(steps), plan=plan),
        )
    result: T = hidden
    return result


def hide_refusal(refusal: Refused, error: Exception, caller: Caller) -> Refused:
    """Return the refusal that a caller gets: with a scope, without the message of a plugin."""
    if caller.scope is None or isinstance(error, Refused | RequestRefused):
        return refusal
    if isinstance(error, AllSourcesFailed):
        refusal.coverage = [plain(shorten_query(report)) for report in _reports(error.reports)]
    elif isinstance(error, ContextRouterError):
        log.info("plugin failed", extra={"fields": {"error": refusal.detail}})
        refusal.detail = PLUGIN_FAILED
    return refusal


def _reports(reports: Sequence[SourceReport]) -> tuple[SourceReport, ...]:
    return tuple([_report(report) for report in reports])


def _report(report: SourceReport) -> SourceReport:
    if NOT_SEARCHED in report.note:  # with the reason, which may be a message
        report = report.replace(note=report.note.partition(NOT_SEARCHED)[0] + NOT_SEARCHED)
    if report.status not in MESSAGES or not report.error:
        return report
    fields = {"source": report.source, "leg": report.leg, "status": report.status, "error": report.error}
    log.info("source failed", extra={"fields": fields})
    return report.replace(error=MESSAGES[report.status])


def _step(step: Step) -> Step:
    """Return a step without what a plugin wrote: a stage's note may hold the message of a failure."""
    if step.failed:
        return step.replace(note="failed")
    return step if step.name in OWN_STEPS else step.replace(note="")


def _intent(intent: Intent) -> Intent:
    failed = intent.attributes.get(FAILED)
    if not failed:
        return intent
    return intent.replace(attributes={**intent.attributes, FAILED: dict.fromkeys(failed, "failed")})
