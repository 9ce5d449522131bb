"""Periods of questions: each phrase of a table, operators, what is no period, spans, time zones, midnight and
days on which clocks change.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import ContextRouter, Document, Intent, Interpreter, Period, Request
from contextrouter.builtin.interpreters.normalize import Normalize
from contextrouter.builtin.interpreters.periods import Periods
from contextrouter.builtin.providers.memory import Memory
from contextrouter.cli.views.context_explanation import print_intent
from contextrouter.contracts import Entry
from contextrouter.testing.builders import interpreter_context
from contextrouter.text.day_spans import Calendar
from contextrouter.text.periods import find_period

LINES = (Path(__file__).parent / "fixtures" / "periods.tsv").read_text("utf-8").splitlines()[2:]
SUNDAY = date(2026, 3, 1)
BERLIN = ZoneInfo("Europe/Berlin")


def days(question: str, today: date = SUNDAY, **how: Any) -> str:
    reading = find_period(question, Calendar(today, **how))
    return f"{reading.start or '-'} {reading.end or '-'}"


def why(question: str) -> str:
    reading = find_period(question, Calendar(SUNDAY))
    return "" if reading.start or reading.end else reading.reason


@pytest.mark.parametrize("line", LINES)
@pytest.mark.case("NEW-08", "NEW-28", "NEW-29", "GRA-05")
def test_each_phrase_of_the_table_gives_its_days(line: str):
    question, start, end = line.split("\t")
    assert days(question) == f"{start} {end}"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("after 2026-01-31 before 2026-02-10", "2026-02-01 2026-02-09"),
        ("between March 5 and March 3 2025", "- -"),
        ("between November 5 and February 3 2026", "2025-11-05 2026-02-03"),
        ("what happened in week 53 of 2020", "2020-12-28 2021-01-03"),
        ("what happened in week 53 of 2021", "- -"),
        ("the report of 2026-W09", "2026-02-23 2026-03-01"),
        ("in der Kalenderwoche 7 2026", "2026-02-09 2026-02-15"),
        ("la semaine 7 de 2026", "2026-02-09 2026-02-15"),
        ("from week 3 of 2026 to week 5 of 2026", "2026-01-12 2026-02-01"),
        ("week 7 of the course", "- -"),
        ("since 1999 and until 2003", "1999-01-01 2003-12-31"),
        ("from Monday to Wednesday", "2026-02-23 2026-02-25"),
        ("between November and February", "2025-11-01 2026-02-28"),
        ("between March and May", "2025-03-01 2025-05-31"),
        ("between March and May 2025", "2025-03-01 2025-05-31"),
        ("in 2020-2021", "2020-01-01 2021-12-31"),
        ("in 2020 and 2021", "2020-01-01 2021-12-31"),
        ("in 2024 but not in March 2024", "2024-01-01 2024-12-31"),
        ("before the end of 2024", "- 2024-12-31"),
        ("after the beginning of 2024", "2024-01-01 -"),
        ("emails from last week", "2026-02-16 2026-02-22"),
        ("from 2026-01-31", "2026-01-31 -"),
        ("from 2024 onwards", "2024-01-01 -"),
        ("over the past two weeks", "2026-02-16 2026-03-01"),
        ("more than two weeks ago", "- 2026-02-08"),
        ("the week before last", "2026-02-09 2026-02-15"),
        ("the day before yesterday", "2026-02-27 2026-02-27"),
        ("in the last 24 hours", "2026-02-28 2026-03-01"),
        ("next week", "2026-03-02 2026-03-08"),
        ("the 2024 results", "2024-01-01 2024-12-31"),
        ("What did not happen last week?", "2026-02-16 2026-02-22"),
        ("the last day of February", "2026-02-01 2026-02-28"),
        ("the last Friday of 2024", "2024-01-01 2024-12-31"),
        ("the last three days of May 2025", "2025-05-01 2025-05-31"),
        ("the last week of work", "2026-02-16 2026-02-22"),
        ("WHAT HAPPENED YESTERDAY", "2026-02-28 2026-02-28"),
        ("Yesterday we met. Who came?", "2026-02-28 2026-02-28"),
        ("winter of 2025", "2025-12-01 2026-02-28"),
        ("on December 1,2023", "2023-12-01 2023-12-01"),
        ("the talk on 20260221", "2026-02-21 2026-02-21"),
        ("What did she paint recently in May 2025?", "2025-05-01 2025-05-31"),
        ("25/12/2021", "2021-12-25 2021-12-25"),
        ("vor drei Tagen", "2026-02-26 2026-02-26"),
        ("zwischen 2020 und 2021", "2020-01-01 2021-12-31"),
        ("vom 3. bis 9. Februar 2026", "2026-02-03 2026-02-09"),
        ("il y a trois jours", "2026-02-26 2026-02-26"),
        ("entre mars 2025 et mai 2025", "2025-03-01 2025-05-31"),
    ],
)
def test_operators_and_ranges(question: str, expected: str):
    assert days(question) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What happened after the incident in March?", "2026-03-01 -"),
        ("What did Anna do before the trip last week?", "- 2026-02-22"),
        ("between Monday and the release", "2026-02-23 -"),
    ],
)
def test_a_date_of_an_event_gives_the_wider_period(question: str, expected: str):
    """The end of the event itself is not known."""
    assert days(question) == expected


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("since 2026-02-31", "'since 2026-02-31' is not on the calendar"),
        ("last 9999 years", "'last 9999 years' is not on the calendar"),
        ("after the next 7973 years", "'after the next 7973 years' is not on the calendar"),
        ("05/06/2021", "'05/06/2021' may be either of two days"),
        ("between 2021 and 2020", "'between 2021 and 2020' ends before it begins"),
        ("after 2026-02-10 and before 2026-01-31", "'after 2026-02-10' and 'before 2026-01-31' leave no day"),
        ("What changed recently?", "'recently' names no days"),
        ("not from last week", "'not from last week' only excludes a time"),
    ],
)
def test_what_cannot_be_used_says_why(question: str, reason: str):
    assert why(question) == reason


@pytest.mark.parametrize(
    "question",
    [
        "Last Week Tonight with John Oliver",
        "the song Yesterday",
        "Theresa May and Brexit",
        "songs by April",
        "What happened on Black Friday?",
        "the plan for Thursday",
        "World Cup 2022",
        "Windows 2000 drivers",
        "room for 2000 guests",
        "in 2000 documents",
        "CVE-2021-0512",
        "most recent posts",
        "Who may march?",
        'Who wrote "last week"?',
    ],
)
def test_names_and_numbers_are_no_words_of_time(question: str):
    reading = find_period(question, Calendar(SUNDAY))
    assert not reading.words


@given(st.text(max_size=80), st.dates())
def test_any_text_on_any_day_can_be_read(text: str, today: date):
    for question in (text, f"since {text} last 3 years", f"before last month and {text} in May 2025"):
        reading = find_period(question, Calendar(today))
        assert not (reading.start and reading.end) or reading.start <= reading.end


def test_a_long_text_is_read_fast():
    assert days("in march of " * 20_000) == "2026-03-01 2026-03-31"


@pytest.mark.parametrize(
    ("question", "calendar", "rolling"),
    [
        ("last week", "2026-02-16 2026-02-22", "2026-02-23 2026-03-01"),
        ("last month", "2026-02-01 2026-02-28", "2026-02-02 2026-03-01"),
        ("last year", "2025-01-01 2025-12-31", "2025-03-02 2026-03-01"),
        ("last weekend", "2026-02-21 2026-02-22", "2026-02-21 2026-02-22"),
        ("this week", "2026-02-23 2026-03-01", "2026-02-23 2026-03-01"),
        ("last 7 days", "2026-02-23 2026-03-01", "2026-02-23 2026-03-01"),
    ],
)
def test_spans_are_of_the_calendar_or_rolling(question: str, calendar: str, rolling: str):
    assert days(question) == calendar
    assert days(question, spans="rolling") == rolling


def test_weeks_may_start_on_sunday():
    assert days("this week", week_starts="sunday") == "2026-03-01 2026-03-07"
    assert days("last week", week_starts="sunday") == "2026-02-22 2026-02-28"


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def ask(
    question: str, plugin: Interpreter, now: datetime = NOON, period: Period | None = None
) -> Intent:
    context = interpreter_context(Request(question=question), now=now)
    return await plugin.interpret(Intent(question=question, queries=(question,), period=period), context)


async def test_days_are_those_of_the_zone_of_the_request():
    """Without a zone of its own the interpreter takes that of `now`; one without a name is UTC."""
    late = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
    for plugin, now, day, zone in (
        (Periods(), late, date(2026, 3, 1), "UTC"),
        (Periods(), late.astimezone(BERLIN), date(2026, 3, 2), "Europe/Berlin"),
        (Periods(timezone="Asia/Tokyo"), late.astimezone(BERLIN), date(2026, 3, 2), "Asia/Tokyo"),
        (Periods(), late.astimezone(timezone(timedelta(hours=5))), date(2026, 3, 1), "UTC"),
        (Normalize(extract_period=True), late, date(2026, 3, 1), "UTC"),
    ):
        assert (await ask("today", plugin, now)).period == Period(start=day, end=day, zone=zone)


@pytest.mark.parametrize(
    ("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 10, 26), 24)]
)
async def test_days_on_which_clocks_change_are_whole(day: date, hours: int):
    for hour in (0, 1, 2, 3, 12, 23):
        now = datetime(day.year, day.month, day.day, hour, 30, tzinfo=BERLIN)
        period = (await ask("what happened today", Periods(), now)).period
        assert period == Period(start=day, end=day, zone="Europe/Berlin")
        begin, end = period.bounds()
        assert begin is not None
        assert end is not None
        assert end.astimezone(UTC) - begin.astimezone(UTC) == timedelta(hours=hours)
        before = (await ask("what happened yesterday", Periods(), now)).period
        assert before is not None
        assert before.start == before.end == day - timedelta(days=1)


async def test_words_that_are_not_used_are_named(capsys: pytest.CaptureFixture[str]):
    unclear = await ask("since 2026-02-31", Periods())
    assert unclear.period is None
    assert unclear.attributes["periods"] == "'since 2026-02-31' is not on the calendar"
    given_period = Period(start=date(2020, 1, 1))
    before = await ask("posts of last week", Periods(), period=given_period)
    assert before.period == given_period
    assert before.attributes["periods"] == "a period is given, 'of last week' is not used"
    assert "periods" not in (await ask("posts of last week", Periods())).attributes
    assert "periods" not in (await ask("posts", Periods())).attributes
    print_intent(unclear)
    assert "'since 2026-02-31' is not on the calendar" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spans": "loose"}, "spans 'loose' is neither"),
        ({"week_starts": "friday"}, "week_starts 'friday' is neither"),
        ({"timezone": "Mars/Olympus"}, "is not a time zone"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        Periods(**options)


@pytest.mark.case("NEW-02")
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland"])
async def test_over_midnight_a_kept_answer_is_not_given_again(zone: str):
    """Midnight is that of the time zone of the settings."""
    times = [datetime(2026, 3, 1, 23, 59, 50, tzinfo=ZoneInfo(zone))]
    store = Memory()
    for name, day in (("first", 28), ("second", 1)):
        written = datetime(2026, 2 if day == 28 else 3, day, 12, tzinfo=ZoneInfo(zone))
        document = Document(id=name, content="kestrels log", updated_at=written)
        await store.upsert([Entry(document=document, chunks=[document])])
    rag = {"interpreters": ["periods"], "period_boost": 0, "timezone": zone, "cache_ttl_seconds": 3600}
    router = ContextRouter(
        {"rag": rag}, providers={"m": store}, interpreters={"periods": Periods()}, clock=lambda: times[-1]
    )
    async with router:
        answers = []
        for seconds in (0, 5, 70):
            times.append(times[0] + timedelta(seconds=seconds))
            context = await router.route("kestrels log of yesterday")
            answers.append((context.cached, [envelope.document.id for envelope in context.envelopes]))
    assert answers == [(False, ["first"]), (True, ["first"]), (False, ["second"])]
