"""The period that a question names: its time expressions with their operators, as a first and a last day.

An operator is a word such as "before", "since" or "not". A period is a filter, so whatever may be meant in
two ways gives the wider one, or none with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from contextrouter.text.day_spans import Calendar, Span
from contextrouter.text.period_words import in_english
from contextrouter.text.time_expressions import Expression, find_expressions

_READ = 2_000  # characters of a question in which time expressions are looked for
_NEAR = 100  # characters before a time expression in which its operator is looked for
_DAY = timedelta(days=1)
_QUOTED = re.compile(
    r"\"[^\"]{2,80}\"|“[^”]{2,80}”|«[^»]{2,80}»|„[^“”]{2,80}[“”]|‘[^’]{2,80}’(?!\w)|(?<!\w)'[^']{2,80}'(?!\w)|`[^`]{2,80}`"
)
_WORDS = {
    "before": r"before|prior to|earlier than|older than|more than|over",
    "since": r"since|starting(?: in| on| from)?|as from|less than",
    "after": r"after|later than|newer than",
    "until": r"until|till|up to|up until|through|by|as of|no later than|not later than",
    "range": r"between|from",
    "in": r"in|on|at|during|of|within|throughout|for|about|around",
}
_OPERATORS = {name: re.compile(rf"(?:{words})") for name, words in _WORDS.items()}
_NOT = r"not|n['’]t|except(?: for| from)?|excluding|without|other than|rather than|instead of|outside(?: of)?"
_LEAD = re.compile(
    rf"(?:(?:\b|(?=n['’]t))(?P<negation>{_NOT})\s+(?:just |only )?)?"
    rf"(?:\b(?P<operator>{'|'.join(_WORDS.values())})\s+)?"
    r"(?P<part>(?:the )?(?:very )?(?:end|beginning|start|middle|rest|course) of\s+)?"
    r"(?:\b(?:in|on|from|during|of)\s+)?"
    r"(?P<article>(?:the|my|our|their|his|her|its)\s+|\w['’]s?\s+)?"
    r"(?:(?:early|late|mid|middle)[ -])?(?:month of |year |quarter )?$"
)
_LINK = re.compile(
    r"(?:['’]s)?\s*,?\s*(?P<link>and|or|vs\.?|versus|to|until|till|through|-|–|—|,)\s*"
    r"(?:from |in |on |of |the |with )*$"
)
_RANGE_LINKS = frozenset({"to", "until", "till", "through", "-", "–", "—"})
_EVENT = re.compile(r"\b(before|after|since|until|till)\b(?!\s*$)")
_CLAUSE = re.compile(r"[,;:.?!()]")
_OPEN_TO = re.compile(r"\s+(?:on|onwards?|forwards?)\b(?!\s+(?:the|my|our|this|that)\b)")
_COUNTED = re.compile(
    r"\s*(?:[$€£%°]|(?:bytes?|[kmg]b|users?|people|persons?|words?|characters?|documents?|files?|items?|lines?|rows?"
    r"|tokens?|dollars?|euros?|pounds?|meters?|metres?|km|miles?|hours?|minutes?|seconds?|times|pages?|points?)\b)"
)
_LOOSE_WORDS = frozenset({"at", "for", "about", "around", "over", "more than", "less than"})
_FIRST_NAMES = frozenset({"april", "may", "june", "august"})
_NAME_WORDS = frozenset({"by", "about", "for", "from", "of", "at"})
_EXCLUDES, _VAGUE = "only excludes a time", "names no days"
_WORK = re.compile(r"\s+(?:by\b|[A-Z])")


class PeriodReading(NamedTuple):
    """What a question says of time. `words` are its time expressions; `reason` is why some are not used."""

    start: date | None = None
    end: date | None = None
    words: tuple[str, ...] = ()
    reason: str = ""


class _Bound(NamedTuple):
    """A time expression with its operator, and its days."""

    words: str
    operator: str
    span: Span


def find_period(question: str, calendar: Calendar) -> PeriodReading:
    """Return the days that a question restricts itself to, counted from the calendar's reference day."""
    plain = " ".join(_QUOTED.sub(lambda match: "¤" * len(match[0]), question[:_READ]).split())
    english = in_english(plain)
    text = plain if english is None else english
    low = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
    try:
        bounds, refused = _bounds(text, low, calendar, names=english is None)
    except _Unclear as unclear:
        return PeriodReading(words=unclear.words, reason=f"{unclear.words[0]!r} {unclear}")
    words = (*(bound.words for bound in bounds), *refused)
    reason = "; ".join(f"{text!r} {why_not}" for text, why_not in refused.items())
    if not bounds:
        return PeriodReading(words=words, reason=reason)
    try:
        start, end = _combine(bounds)
    except OverflowError:
        return PeriodReading(words=words, reason=f"{words[0]!r} is not on the calendar")
    if start and end and start > end:
        together = " and ".join(repr(bound.words) for bound in bounds)
        verb = "leaves" if len(bounds) == 1 else "leave"
        return PeriodReading(words=words, reason=f"{together} {verb} no day")
    return PeriodReading(start, end, words, reason)


class _Unclear(ValueError):
    """A time expression that is not on the calendar, or not clear."""

    def __init__(self, words: str, reason: str) -> None:
        super().__init__(reason)
        self.words = (words,)


def _bounds(text: str, low: str, calendar: Calendar, *, names: bool) -> tuple[list[_Bound], dict[str, str]]:
    """Return the expressions that count; and those that are negated or vague, with the reason."""
    bounds: list[_Bound] = []
    refused: dict[str, str] = {}
    end = 0  # of the expression before
    previous: Expression | None = None
    for expression in find_expressions(low):
        near = max(end, expression.start - _NEAR)
        between = low[near : expression.start]
        lead = _LEAD.search(between)
        link = _LINK.match(between) if previous and near == end else None
        if not _counts(expression, lead, low, linked=bool(link)) or (names and _is_name(expression, text)):
            continue
        negated = lead and lead["negation"]
        if negated or expression.form.vague:
            begin = near + lead.start() if lead and negated else expression.start
            refused[text[begin : expression.end].strip()] = _EXCLUDES if negated else _VAGUE
            end, previous = expression.end, None
            continue
        begin = near + lead.start() if lead and lead["operator"] else expression.start
        words = text[begin : expression.end].strip()
        span = _days_of(expression, words, calendar)
        if link and previous and _is_range(link["link"], bounds[-1].operator):
            words = f"{bounds[-1].words} {link['link']} {words}"
            bounds[-1] = _Bound(words, "in", _join(previous, bounds[-1].span, span, calendar))
            if bounds[-1].span.start > span.end:
                raise _Unclear(words, "ends before it begins")
        else:
            inherits = link and not (lead and lead["operator"])
            operator = bounds[-1].operator if inherits else _operator(expression, lead, between, low)
            bounds.append(_Bound(words, operator, span))
        end, previous = expression.end, expression
    return [_without_range(bound) for bound in bounds], refused


def _counts(expression: Expression, lead: re.Match[str] | None, low: str, *, linked: bool) -> bool:
    """Whether an expression is one of time where it stands, and not a number, a verb or a name."""
    words, after = expression.match[0], low[expression.end :]
    if not expression.form.led or low.strip(" ?!.") == words:
        return True
    number = words[0].isdecimal() and words.isdecimal()
    if number and (_COUNTED.match(after) or not "1500" <= words <= "2199"):
        return False
    operator = lead["operator"] if lead else None
    if linked:
        return True
    if operator in _LOOSE_WORDS:
        return False
    if words in _FIRST_NAMES and operator in _NAME_WORDS and not re.match(r"\s+(?:to|until|and)\b", after):
        return False
    if operator:
        return True
    return number and bool(lead and lead["article"]) and bool(re.match(r"\s+\w", after))


def _is_name(expression: Expression, text: str) -> bool:
    """Whether capitals say that words such as "today" belong to a name: "USA Today", "This Week in Rust"."""
    words = text[expression.start : expression.end]
    if not expression.form.named or text.upper() == text or not any(letter.isupper() for letter in words):
        return False
    if any(word[0].isupper() for word in words.split()[1:]):
        return True
    begins = not text[: expression.start].strip() or text[: expression.start].rstrip()[-1] in ".?!:;"
    return not begins or bool(_WORK.match(text, expression.end) and " " not in words)


def _days_of(expression: Expression, words: str, calendar: Calendar) -> Span:
    try:
        return expression.read(calendar)
    except OverflowError:
        raise _Unclear(words, "is not on the calendar") from None
    except ValueError as error:
        reason = str(error) if str(error).startswith(("may be", "is not")) else "is not on the calendar"
        raise _Unclear(words, reason) from None


def _operator(expression: Expression, lead: re.Match[str] | None, between: str, low: str) -> str:
    """Return the operator of an expression; of an event that it dates, the wider one: after the fire in May
    is since May.
    """
    word = (lead and lead["operator"]) or ""
    name = next((name for name, words in _OPERATORS.items() if word and words.fullmatch(word)), "in")
    if word in ("over", "more than", "less than") and not expression.match[0].endswith("ago"):
        return "in"
    dated = expression.match.groupdict()
    if name == "range" and dated.get("until"):
        return "in"
    if word == "from":
        day = dated.get("day") and dated.get("year")
        return "from_day" if day or _OPEN_TO.match(low, expression.end) else "from"
    if lead and lead["part"]:
        if name == "before" and "end" in lead["part"]:
            return "until"
        if name == "after" and "end" not in lead["part"]:
            return "since"
    if name == "in":
        clause = _CLAUSE.split(between)[-1][: lead.start() - len(between) if lead and word else None]
        events = _EVENT.findall(" ".join(clause.split()[-7:]))
        if events:
            return "since" if events[-1] in ("after", "since") else "until"
    return name


def _is_range(link: str, operator: str) -> bool:
    if link in _RANGE_LINKS:
        return operator in ("in", "range", "from", "from_day")
    return link == "and" and operator == "range"


def _join(previous: Expression, before: Span, span: Span, calendar: Calendar) -> Span:
    """Return the days from one expression to the next. One without a year, or a day of the week, is the
    latest before the other; but March 5 to March 3 is in the wrong order, and not nearly a year.
    """
    start = before.start
    if start > span.end:
        start = previous.read(calendar._replace(today=span.end)).start
    elif previous.form.led and not re.search(r"\d{4}", previous.match[0]):
        start = previous.read(calendar._replace(today=max(span.start, start))).start
    if previous.match.groupdict().get("day") and (start.year, start.month) == (
        span.end.year - 1,
        span.end.month,
    ):
        start = start.replace(year=span.end.year)
    return Span(start, span.end)


def _without_range(bound: _Bound) -> _Bound:
    """Return a bound whose "between" or "from" has no second end on the calendar: "between Monday and the
    release" is since Monday, "from a day" is since it, "from last week" is in it.
    """
    operator = {"range": "since", "from": "in", "from_day": "since"}.get(bound.operator, bound.operator)
    return bound._replace(operator=operator)


def _combine(bounds: Sequence[_Bound]) -> tuple[date | None, date | None]:
    """Return the days that all operators leave; several spans count from the first to the last of them."""
    spans = [bound.span for bound in bounds if bound.operator == "in"]
    starts = [min(span.start for span in spans)] if spans else []
    ends = [max(span.end for span in spans)] if spans else []
    for bound in bounds:
        if bound.operator == "since":
            starts.append(bound.span.start)
        elif bound.operator == "after":
            starts.append(bound.span.end + _DAY)
        elif bound.operator == "until":
            ends.append(bound.span.end)
        elif bound.operator == "before":
            ends.append(bound.span.start - _DAY)
    return max(starts, default=None), min(ends, default=None)
