"""Spans of days on the calendar, counted from a reference day: weeks, months, quarters, seasons and years."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal, NamedTuple

SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""Seasons of the northern half of the earth, and their first months; a winter ends in the next year."""
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DAY = timedelta(days=1)


class Span(NamedTuple):
    """Days, both inclusive."""

    start: date
    end: date


class Calendar(NamedTuple):
    """A reference day, and how weeks and "last week" are meant. Its methods raise ValueError or OverflowError
    for what is not on the calendar.
    """

    today: date
    spans: Literal["calendar", "rolling"] = "calendar"
    week_starts: Literal["monday", "sunday"] = "monday"

    def unit(self, name: str, back: int) -> Span:
        """Return the day, week, weekend, month, quarter or year `back` before the current one."""
        if name == "day":
            day = self.today - back * _DAY
            return Span(day, day)
        if name == "weekend":
            saturday = self.today - timedelta(days=self.today.weekday() - 5 + 7 * back)
            return Span(saturday, saturday + _DAY)
        if name == "week":
            into = (self.today.weekday() + (self.week_starts == "sunday")) % 7
            start = self.today - timedelta(days=into + 7 * back)
            return Span(start, start + timedelta(days=6))
        size = _MONTHS[name]
        index = self.today.year * 12 + self.today.month - 1
        return _months(index - index % size - back * size, size)

    def before(self, name: str) -> Span:
        """Return the last week, month, quarter or year: before the current one, or up to today."""
        if self.spans == "rolling" and name not in ("day", "weekend"):
            return self.recent(1, name)
        return self.unit(name, 1)

    def recent(self, count: int, name: str) -> Span:
        """Return so many days, weeks, months, quarters or years up to today."""
        if name == "hour":
            return Span(self.today - timedelta(days=(count + 23) // 24), self.today)
        if name in _MONTHS:
            return Span(_months_before(self.today, count * _MONTHS[name]) + _DAY, self.today)
        return Span(self.today - timedelta(days=count * {"day": 1, "week": 7}[name] - 1), self.today)

    def month(self, month: int, year: int | None) -> Span:
        """Return a month; without a year the latest that has begun."""
        return _months((self._year(month) if year is None else year) * 12 + month - 1, 1)

    def quarter(self, number: int, year: int | None) -> Span:
        """Return a quarter; without a year the latest that has begun."""
        month = number * 3 - 2
        return _months((self._year(month) if year is None else year) * 12 + month - 1, 3)

    def season(self, name: str, year: int | None) -> Span:
        """Return a season; without a year the latest that is over."""
        month = SEASONS[name]
        if year is not None:
            return _months(year * 12 + month - 1, 3)
        span = _months(self.today.year * 12 + month - 1, 3)
        return span if span.end < self.today else _months((self.today.year - 1) * 12 + month - 1, 3)

    def day(self, day: int, month: int, year: int | None) -> Span:
        """Return a day; without a year the latest that has begun."""
        if year is None:
            year = (
                self.today.year if (month, day) <= (self.today.month, self.today.day) else self.today.year - 1
            )
        named = date(year, month, day)
        return Span(named, named)

    def weekday(self, number: int, weeks: int = -1) -> Span:
        """Return a day of the week, 0 is Monday: the latest before today; 0: of this week; 1: the next."""
        back = (self.today.weekday() - number - 1) % 7 + 1
        if weeks == 0:
            back = self.today.weekday() - number
        elif weeks > 0:
            back = (self.today.weekday() - number) % 7 - 7
        day = self.today - back * _DAY
        return Span(day, day)

    def _year(self, month: int) -> int:
        return self.today.year if month <= self.today.month else self.today.year - 1


def years(start: int, end: int) -> Span:
    """Return whole years, both inclusive."""
    return Span(date(start, 1, 1), date(end, 12, 31))


def iso_week(year: int, number: int) -> Span:
    """Return a week by its number (ISO 8601): from Monday, week 1 has the first Thursday of the year."""
    monday = date.fromisocalendar(year, number, 1)
    return Span(monday, monday + timedelta(days=6))


def half(number: int, year: int) -> Span:
    """Return the first or the second half of a year."""
    return _months(year * 12 + (number - 1) * 6, 6)


def _months(index: int, count: int) -> Span:
    """Return `count` months from month `index`, counted from year 0."""
    start = date(index // 12, index % 12 + 1, 1)
    after = index + count
    if after >= 120_000:
        return Span(start, date(9999, 12, 31))
    return Span(start, date(after // 12, after % 12 + 1, 1) - _DAY)


def _months_before(day: date, count: int) -> date:
    index = day.year * 12 + day.month - 1 - count
    month = _months(index, 1)
    return min(month.end, month.start + timedelta(days=day.day - 1))
