"""Prometheus metrics: requests, outcomes, source calls and tokens, of one process or of all workers.

Labels are names of the settings and of the table of endpoints, never the text of a question.

Workers count in files of a folder that they share, one file for each worker and kind of metric. Whichever of
them is asked adds all files up. A worker that starts in the place of one that died goes on with its files, so
nothing that was counted is lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

from contextrouter.model import Context, SourceReport
from contextrouter.runtime.threads import count_abandoned_threads
from contextrouter.server.worker_share import ALONE, Worker

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_ABANDONED = (
    ("calls", "plugin", "Calls of plugins that ignore their cancellation and have not ended."),
    ("threads", "pool", "Threads that go on with calls that nobody waits for."),
)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OF_LIVING: Final = "livesum"
"""The mode of a gauge: workers that have ended do not count."""


def _count_in_files(worker: Worker) -> None:
    """Make all metrics of this process count in the files of a worker. The client library has no other way
    than its global value class, and looks for the folder in the environment.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = worker.metrics
    by_number = values.MultiProcessValue(lambda: worker.number)  # type: ignore[no-untyped-call]  # the library has no types here
    values.ValueClass = by_number


class Metrics:
    """The metrics of one server; with a worker that has a folder, those of all workers."""

    def __init__(self, worker: Worker = ALONE) -> None:
        if worker.metrics:
            _count_in_files(worker)
        self._worker = worker
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests answered.", "method", "path", "status")
        self._seconds = self._histogram("request_seconds", "How long requests took.", "path")
        self.running = self._gauge("requests_running", "Requests being answered.")
        self._outcomes = self._counter("outcomes", "Results by outcome.", "outcome")
        self._calls = self._counter("source_calls", "Calls to sources.", "source", "leg", "status")
        self._source_seconds = self._histogram("source_seconds", "How long sources took.", "source", "leg")
        self._tokens = self._counter("generator_tokens", "Tokens of generators.", "generator", "direction")
        self._cached = self._counter("cached", "Results that were not computed.", "tier")
        self._abandoned = {
            label: self._gauge(f"abandoned_{name}", text, label) for name, label, text in _ABANDONED
        }
        self._named: dict[str, set[str]] = {label: set() for _, label, _ in _ABANDONED}
        self._of_workers = self._count_worker() if worker.number else None

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"contextrouter_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        registry = self._registry
        return Histogram(f"contextrouter_{name}", text, labels, buckets=_SECONDS, registry=registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        registry = self._registry
        return Gauge(f"contextrouter_{name}", text, labels, registry=registry, multiprocess_mode=OF_LIVING)

    def _count_worker(self) -> Counter:
        """Count the start of this worker. Return the counter of its requests."""
        number = str(self._worker.number)
        self._counter("worker_starts", "How often a worker was started.", "worker").labels(number).inc()
        requests = self._counter("worker_requests", "Requests answered by each worker.", "worker")
        requests.labels(number)
        return requests

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is the one of an endpoint."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        if self._of_workers is not None:
            self._of_workers.labels(str(self._worker.number)).inc()

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

    def abandoned(self, calls: Mapping[str, int]) -> None:
        """Set how many calls and threads of this process go on that nobody waits for. `calls`: such calls of
        each plugin.
        """
        for label, counts in (("plugin", calls), ("pool", count_abandoned_threads())):
            gauge = self._abandoned[label]
            for name in self._named[label] - counts.keys():
                gauge.labels(name).set(0)
            for name, count in counts.items():
                gauge.labels(name).set(count)
            self._named[label] |= counts.keys()

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        if not self._worker.metrics:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=self._worker.metrics)  # type: ignore[no-untyped-call]  # the library has no types here
        return generate_latest(registry)
