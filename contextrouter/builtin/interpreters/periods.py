"""The period of a question, read from its words without a model: "since last month", "in March 2025"."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self
from zoneinfo import ZoneInfo

from contextrouter.contracts import Interpreter, InterpreterContext
from contextrouter.model import Intent, Period
from contextrouter.text.day_spans import Calendar
from contextrouter.text.periods import find_period

NOTE = "periods"
"""Key in `Intent.attributes`: which words of time of the question are not used, and why."""


class Periods(Interpreter):
    """Fills the period of the intent with the days that the question names, counted from the time of the
    request.

    `spans` says what "last week" means: "calendar" is the week before this one, "rolling" the seven days up
    to today; months, quarters and years alike. The days are those of `timezone`; "" takes the zone of the
    request's time. A period that the intent has stays.
    """

    def __init__(
        self,
        *,
        spans: Literal["calendar", "rolling"] = "calendar",
        timezone: str = "",
        week_starts: Literal["monday", "sunday"] = "monday",
    ) -> None:
        if spans not in ("calendar", "rolling"):
            raise ValueError(f"spans {spans!r} is neither 'calendar' nor 'rolling'.")
        if week_starts not in ("monday", "sunday"):
            raise ValueError(f"week_starts {week_starts!r} is neither 'monday' nor 'sunday'.")
        try:
            self._zone = ZoneInfo(timezone) if timezone else None
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"timezone {timezone!r} is not a time zone. Use a name such as 'Europe/Berlin'."
            ) from None
        self._spans, self._week_starts = spans, week_starts

    @classmethod
    def example(cls) -> Self:
        """As it is by default."""
        return cls()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with its period. Where words of time are not used, its attribute `periods` says
        why.
        """
        zone = self._zone or _zone_of(context.now)
        today = context.now.astimezone(zone).date()
        reading = find_period(intent.question, Calendar(today, self._spans, self._week_starts))
        if not reading.words:
            return intent
        note = reading.reason
        if intent.period is not None:
            note = f"a period is given, {', '.join(map(repr, reading.words))} is not used"
        elif reading.start or reading.end:
            intent = intent.replace(period=Period(start=reading.start, end=reading.end, zone=zone.key))
        return intent.replace(attributes={**intent.attributes, NOTE: note}) if note else intent


def _zone_of(now: datetime) -> ZoneInfo:
    """Return the named time zone of a time; one without a name counts as UTC."""
    zone = now.tzinfo
    return zone if isinstance(zone, ZoneInfo) and zone.key else ZoneInfo("UTC")
