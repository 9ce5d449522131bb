"""Date phrases of a question: a pattern for each form, such as "March 2025", and the days it means."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from contextrouter.text.day_spans import SEASONS, Calendar, Span, half, iso_week, years
from contextrouter.text.period_words import COUNTS, MONTHS, ORDINALS, WEEKDAYS, to_count

Reader: TypeAlias = "Callable[[re.Match[str], Calendar], Span]"


class Form(NamedTuple):
    """One form of time expressions.

    `led`: it counts only behind a word such as "in" or "since", for alone it may be a name, a verb or a
    number. `named`: capitalised within a sentence, it is a name. `vague`: it names no days.
    """

    pattern: re.Pattern[str]
    read: Reader
    led: bool = False
    named: bool = False
    vague: bool = False


_MONTH = "|".join((*MONTHS, r"(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"))
_FULL_MONTH = "|".join(MONTHS)
_WEEKDAY = "|".join(WEEKDAYS)
_COUNT = "|".join((r"\d{1,6}", *sorted(COUNTS, key=len, reverse=True)))
_ORDINAL = "|".join(ORDINALS)
_SEASON = "|".join(SEASONS)
_YEAR = r"[12]\d{3}"
_TH = r"(?:st|nd|rd|th|\.)?"
_PART = rf"(?! of (?:the )?(?:{_MONTH}|{_YEAR}|q[1-4]\b|year\b|quarter\b|month\b))"
"""Not before "of February": the last day of a month is no yesterday."""
_COMMA = r"(?:,\s?|\s)"
_UNIT = "day|week|month|quarter|year"
_TO = r"\s*(?:to|until|till|through|and|-|–|—)\s*"
_DOCUMENTS = (
    "posts?|news|articles?|changes?|papers?|talks?|updates?|messages?|e-?mails?|documents?|reports?|events?"
    "|publications?|releases?|videos?|notes?|discussions?|developments?|issues?|commits?|meetings?"
)
_BACK = {"last": 1, "past": 1, "previous": 1, "this": 0, "current": 0, "next": -1, "coming": -1}
_DAY_NAMES = {
    "today": (0, 0),
    "yesterday": (1, 1),
    "tomorrow": (-1, -1),
    "tonight": (0, 0),
    "this morning": (0, 0),
    "this afternoon": (0, 0),
    "this evening": (0, 0),
    "last night": (1, 0),
    "day before yesterday": (2, 2),
    "day after tomorrow": (-2, -2),
}


def _form(pattern: str, read: Reader, **how: Any) -> Form:
    return Form(re.compile(rf"(?<![\w./-])(?:{pattern})(?![\w/])(?!-\d|\.\d)"), read, **how)


def _month_number(name: str) -> int:
    return next(number for number, month in enumerate(MONTHS, 1) if month.startswith(name[:3]))


def _optional_year(text: str | None) -> int | None:
    return int(text) if text else None


def _day(match: re.Match[str], calendar: Calendar) -> Span:
    month = match["month"]
    number = int(month) if month.isdecimal() else _month_number(month)
    return calendar.day(int(match["day"]), number, _optional_year(match.groupdict().get("year")))


def _slashes(match: re.Match[str], calendar: Calendar) -> Span:
    day, month, year = map(int, match.groups())
    if day <= 12 and month <= 12 and day != month:
        raise ValueError("may be either of two days")
    return calendar.day(day, month, year) if month <= 12 else calendar.day(month, day, year)


def _days_of_month(match: re.Match[str], calendar: Calendar) -> Span:
    month, year = _month_number(match["month"]), _optional_year(match["year"])
    end = calendar.day(int(match["until"]), month, year).end
    return Span(calendar.day(int(match["day"]), month, end.year).start, end)


def _month(match: re.Match[str], calendar: Calendar) -> Span:
    month = match["month"]
    number = int(month) if month.isdecimal() else _month_number(month)
    return calendar.month(number, _optional_year(match.groupdict().get("year")))


def _quarter(match: re.Match[str], calendar: Calendar) -> Span:
    number = match["number"]
    quarter = ORDINALS[number] if number in ORDINALS else int(number)
    return calendar.quarter(quarter, _optional_year(match.groupdict().get("year")))


def _half(match: re.Match[str], calendar: Calendar) -> Span:
    number = match["number"]
    return half(ORDINALS[number] if number in ORDINALS else int(number), int(match["year"]))


def _season(match: re.Match[str], calendar: Calendar) -> Span:
    return calendar.season(match["season"], _optional_year(match.groupdict().get("year")))


def _this_season(match: re.Match[str], calendar: Calendar) -> Span:
    return calendar.season(match["season"], calendar.today.year)


def _iso_week(match: re.Match[str], calendar: Calendar) -> Span:
    return iso_week(int(match["year"]), int(match["week"]))


def _decade(match: re.Match[str], calendar: Calendar) -> Span:
    decade = int(match["decade"])
    start = decade if decade >= 1000 else 1900 + decade if decade > 20 else 2000 + decade
    return years(start, start + 9)


def _century(match: re.Match[str], calendar: Calendar) -> Span:
    end = int(match["number"]) * 100
    return years(end - 99, end)


def _year(match: re.Match[str], calendar: Calendar) -> Span:
    return years(int(match["year"]), int(match["until"] or match["year"]))


def _year_to_date(match: re.Match[str], calendar: Calendar) -> Span:
    return Span(calendar.unit("year", 0).start, calendar.today)


def _recent(match: re.Match[str], calendar: Calendar) -> Span:
    count, unit = to_count(match["count"]), match["unit"]
    if match["which"] != "next":
        return calendar.recent(count, unit)
    if unit == "hour":
        raise ValueError("is not read in hours to come")
    return Span(calendar.today, calendar.unit(unit, -count).end)


def _ago(match: re.Match[str], calendar: Calendar) -> Span:
    return calendar.unit(match["unit"], to_count(match["count"]))


def _relative(match: re.Match[str], calendar: Calendar) -> Span:
    which, unit = match["which"], match["unit"]
    if which == "past" and unit != "weekend":
        return calendar.recent(1, unit)
    back = _BACK[which]
    return calendar.before(unit) if back == 1 else calendar.unit(unit, back)


def _weekday(match: re.Match[str], calendar: Calendar) -> Span:
    weeks = -_BACK[match.groupdict().get("which") or "last"]
    return calendar.weekday(WEEKDAYS.index(match["weekday"]), weeks)


def _day_by_name(match: re.Match[str], calendar: Calendar) -> Span:
    back, until = _DAY_NAMES[match["name"]]
    return Span(calendar.unit("day", back).start, calendar.unit("day", until).end)


def _lately(match: re.Match[str], calendar: Calendar) -> Span:
    return calendar.recent(7, "day")


FORMS = (
    _form(rf"(?P<year>{_YEAR})[-/](?P<month>\d\d?)[-/](?P<day>\d\d?)(?:t[\d:.]+z?)?", _day),
    _form(r"(?P<year>19\d\d|20\d\d)(?P<month>0[1-9]|1[0-2])(?P<day>[0-2]\d|3[01])", _day, led=True),
    _form(rf"(?P<day>\d\d?)\.\s?(?P<month>\d\d?)\.\s?(?P<year>{_YEAR})", _day),
    _form(rf"(\d\d?)/(\d\d?)/({_YEAR})", _slashes),
    _form(
        rf"(?P<day>\d\d?){_TH}{_TO}(?P<until>\d\d?){_TH} (?:of )?(?P<month>{_MONTH})"
        rf"(?:{_COMMA}(?P<year>{_YEAR}))?",
        _days_of_month,
    ),
    _form(
        rf"(?P<month>{_MONTH}) (?P<day>\d\d?){_TH}{_TO}(?P<until>\d\d?){_TH}(?:{_COMMA}(?P<year>{_YEAR}))?",
        _days_of_month,
    ),
    _form(rf"(?P<day>\d\d?){_TH} (?:day )?(?:of )?(?P<month>{_MONTH}){_COMMA}(?P<year>{_YEAR})", _day),
    _form(rf"(?P<month>{_MONTH}) (?P<day>\d\d?){_TH}{_COMMA}(?P<year>{_YEAR})", _day),
    _form(rf"(?P<day>\d\d?){_TH} (?:of )?(?P<month>{_FULL_MONTH})", _day, led=True),
    _form(rf"(?P<month>{_FULL_MONTH}) (?P<day>\d\d?){_TH}", _day, led=True),
    _form(rf"(?P<year>{_YEAR})-(?P<month>0[1-9]|1[0-2])", _month),
    _form(rf"(?P<month>{_MONTH}),? (?:of )?(?P<year>{_YEAR})", _month),
    _form(rf"(?P<month>{_FULL_MONTH})", _month, led=True),
    _form(rf"q(?P<number>[1-4])[ /-]?(?:of )?(?P<year>{_YEAR})", _quarter),
    _form(rf"(?P<year>{_YEAR})[ /-]?q(?P<number>[1-4])", _quarter),
    _form(rf"(?P<number>{_ORDINAL}) quarter(?: of| in)? (?P<year>{_YEAR})", _quarter),
    _form(r"q(?P<number>[1-4])", _quarter, led=True),
    _form(rf"h(?P<number>[12])[ /-]?(?:of )?(?P<year>{_YEAR})", _half),
    _form(rf"(?P<number>first|second|1st|2nd) half(?: of| in)? (?P<year>{_YEAR})", _half),
    _form(rf"(?P<season>{_SEASON})(?: of| in)? (?P<year>{_YEAR})", _season),
    _form(
        rf"(?:(?:calendar )?week|cw|kw) ?(?P<week>\d\d?)(?:,? (?:of |in |de )?|/)(?P<year>{_YEAR})", _iso_week
    ),
    _form(rf"(?P<year>{_YEAR})[- ]?w(?P<week>\d\d)", _iso_week),
    _form(rf"last (?P<season>{_SEASON})", _season, named=True),
    _form(rf"this (?P<season>{_SEASON})", _this_season, named=True),
    _form(r"(?P<decade>[12]\d\d0)s", _decade),
    _form(r"(?P<decade>[2-9]0)s", _decade, led=True),
    _form(r"(?P<number>[1-9]|1\d|2[01])(?:st|nd|rd|th) century", _century),
    _form(rf"(?P<year>{_YEAR})(?:[-–](?P<until>{_YEAR}))?", _year, led=True),
    _form("year to date|ytd", _year_to_date),
    _form(
        rf"(?P<which>last|past|previous|next) (?P<count>{_COUNT}) (?P<unit>{_UNIT}|hour)s?{_PART}",
        _recent,
        named=True,
    ),
    _form(rf"(?P<count>{_COUNT}) (?P<unit>{_UNIT})s? ago", _ago),
    _form(r"(?P<unit>week|month|year) before last", lambda match, days: days.unit(match["unit"], 2)),
    _form(
        rf"(?P<which>last|past|previous|this|current|next|coming) (?P<unit>week|weekend|{_UNIT}){_PART}",
        _relative,
        named=True,
    ),
    _form(rf"(?P<which>last|past|this|next|coming) (?P<weekday>{_WEEKDAY}){_PART}", _weekday),
    _form(rf"(?P<weekday>{_WEEKDAY})", _weekday, led=True),
    _form(rf"(?P<name>{'|'.join(sorted(_DAY_NAMES, key=len, reverse=True))})", _day_by_name, named=True),
    _form("recently|lately", _lately, named=True, vague=True),
    _form(rf"(?<!most )recent(?= (?:{_DOCUMENTS})\b)", _lately, named=True),
)


class Expression(NamedTuple):
    """A time expression, and where it stands in the question."""

    start: int
    end: int
    match: re.Match[str]
    form: Form

    def read(self, calendar: Calendar) -> Span:
        """Return its days. Raises ValueError or OverflowError where there are none."""
        return self.form.read(self.match, calendar)


def find_expressions(text: str) -> list[Expression]:
    """Find the time expressions of a text in small letters; of those that overlap, the first and longest."""
    matches = [
        Expression(match.start(), match.end(), match, form)
        for form in FORMS
        for match in form.pattern.finditer(text)
    ]
    matches.sort(key=lambda expression: (expression.start, -expression.end))
    expressions: list[Expression] = []
    for expression in matches:
        if not expressions or expression.start >= expressions[-1].end:
            expressions.append(expression)
    return expressions
