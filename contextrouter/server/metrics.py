"""Prometheus metrics: requests, outcomes, source calls and tokens.

Labels are names of the settings and of the table of endpoints, never the text of a question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from contextrouter.model import Context, SourceReport
from contextrouter.runtime.threads import count_abandoned_threads

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_ABANDONED = (
    ("calls", "plugin", "Calls of plugins that ignore their cancellation and have not ended."),
    ("threads", "pool", "Threads that go on with calls that nobody waits for."),
)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "contextrouter_requests",
            "Requests answered.",
            ("method", "path", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "contextrouter_request_seconds",
            "How long requests took.",
            ("path",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.running = Gauge(
            "contextrouter_requests_running", "Requests being answered.", registry=self._registry
        )
        self._outcomes = Counter(
            "contextrouter_outcomes", "Results by outcome.", ("outcome",), registry=self._registry
        )
        self._cached = Counter(
            "contextrouter_cached", "Results that were not computed.", ("tier",), registry=self._registry
        )
        self._calls = Counter(
            "contextrouter_source_calls",
            "Calls to sources.",
            ("source", "leg", "status"),
            registry=self._registry,
        )
        self._source_seconds = Histogram(
            "contextrouter_source_seconds",
            "How long sources took.",
            ("source", "leg"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter(
            "contextrouter_generator_tokens",
            "Tokens of generators.",
            ("generator", "direction"),
            registry=self._registry,
        )
        self._abandoned = {
            label: Gauge(f"contextrouter_abandoned_{name}", text, (label,), registry=self._registry)
            for name, label, text in _ABANDONED
        }

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is the one of an endpoint."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def context(self, context: Context) -> None:
        """Count a result, and the calls made for it."""
        self._outcomes.labels(context.outcome).inc()
        if context.cached:
            self._cached.labels(context.usage.cache).inc()
        else:
            self.reports(context.coverage)

    def reports(self, reports: Sequence[SourceReport]) -> None:
        """Count calls to sources."""
        for report in reports:
            self._calls.labels(report.source, report.leg, report.status).inc()
            if report.status not in ("skipped", "open"):
                self._source_seconds.labels(report.source, report.leg).observe(report.elapsed)

    def tokens(self, generator: str, tokens_in: int | None, tokens_out: int | None) -> None:
        """Count the tokens that a generator read and wrote."""
        for direction, count in (("in", tokens_in), ("out", tokens_out)):
            if count:
                self._tokens.labels(generator, direction).inc(count)

    def text(self, abandoned: Mapping[str, int]) -> bytes:
        """Return all metrics in the text format of Prometheus. `abandoned`: such calls of each plugin."""
        for label, counts in (("plugin", abandoned), ("pool", count_abandoned_threads())):
            gauge = self._abandoned[label]
            gauge.clear()
            for name, count in counts.items():
                gauge.labels(name).set(count)
        return generate_latest(self._registry)
