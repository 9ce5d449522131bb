"""Periods: days and moments up to the ends of the calendar, and what is no period refused where it is
made.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import ContextRouter, Document, Intent, Interpreter, InterpreterContext, Period
from contextrouter.builtin.providers.filtering import microseconds
from contextrouter.builtin.providers.memory import Memory
from contextrouter.contracts import Entry

ZONES = ("UTC", "Pacific/Auckland", "America/New_York", "Pacific/Kiritimati")
moments = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))])
)


def test_the_last_day_of_the_calendar_is_a_day_like_others() -> None:
    last = Period(start=date(9999, 12, 31), end=date(9999, 12, 31))
    assert last.bounds() == (datetime(9999, 12, 31, tzinfo=UTC), None)
    assert last.contains(datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
    assert not last.contains(datetime(9999, 12, 30, 23, 59, tzinfo=UTC))
    assert Period(end=datetime.max).contains(datetime.max.replace(tzinfo=UTC))


@given(
    st.one_of(st.none(), st.dates(), st.datetimes()),
    st.one_of(st.none(), st.dates(), st.datetimes()),
    moments,
)
def test_no_period_overflows_at_any_moment(start: Any, end: Any, moment: datetime) -> None:
    for zone in ZONES:
        period = Period(start=start, end=end, zone=zone)
        assert period.contains(moment) in (True, False)
        assert all(bound is None or isinstance(microseconds(bound), int) for bound in period.bounds())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"zone": "Mars/Olympus"}, "Period.zone 'Mars/Olympus' is not a time zone"),
        ({"zone": "../../etc/passwd"}, "is not a time zone"),
        ({"zone": ""}, "is not a time zone"),
        ({"zone": None}, "not a time"),
        ({"start": "2025-01-01"}, "Period.start is a date, a datetime or None, not str"),
        ({"end": 2025}, "Period.end is a date"),
    ],
)
def test_what_is_no_period_is_refused_where_it_is_made(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Period(**fields)


class Named(Interpreter):
    """Takes the period from a zone and an end."""

    def __init__(self, *, zone: str = "UTC", end: date = date(9999, 12, 31)) -> None:
        self.zone, self.end = zone, end

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return intent.replace(period=Period(start=date(2020, 1, 1), end=self.end, zone=self.zone))


async def test_a_period_without_an_end_finds_documents() -> None:
    """An unknown time zone is an error of the interpreter."""
    store = Memory()
    document = Document(id="d", content="tides", updated_at=datetime(2024, 1, 1, tzinfo=UTC))
    await store.upsert([Entry(document=document, chunks=[document])])
    for zone, said in (("UTC", ""), ("Mars/Olympus", "Period.zone 'Mars/Olympus'")):
        settings = {"rag": {"interpreters": ["named"]}}
        async with ContextRouter(
            settings, providers={"m": store}, interpreters={"named": Named(zone=zone)}
        ) as router:
            context = await router.route("tides")
        assert {report.status for report in context.coverage} == {"ok"}
        assert len(context.envelopes) == 1
        assert said in str(context.trace.steps[0].note) + str(context.intent.attributes)
