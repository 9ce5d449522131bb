"""`[telemetry]`: what the spans of OpenTelemetry say, and where the trace goes on."""

from __future__ import annotations

import msgspec


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """`[telemetry]`. Spans are made where the program has set a tracer provider, and nowhere else."""

    questions: bool = False  # put questions and queries into spans
    send_to: tuple[str, ...] = ()  # sources that get `traceparent`: those of your own
