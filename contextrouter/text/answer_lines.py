"""The lines that stand beside the documents in a context: facts, entities and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from contextrouter.model import Entity, Facet, Fact
from contextrouter.text.prompt_injection import clean_line


def fact_line(fact: Fact) -> str:
    """A fact as one line of a list, without what no reader sees."""
    parts = (fact.subject, fact.predicate, fact.object)
    return f"- {' — '.join(map(clean_line, parts))}{_validity(fact)}"


def entity_line(entity: Entity) -> str:
    """An entity with its attributes: `- Anna — birthday: 5 May; child: Ben, Mia`."""
    attributes = [
        f"{clean_line(str(name))}: {_join_values(value)}" for name, value in entity.attributes.items()
    ]
    return f"- {clean_line(entity.name)}" + (f" — {'; '.join(attributes)}" if attributes else "")


def _join_values(value: object) -> str:
    values: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
    return ", ".join([clean_line(str(item)) for item in values])


class CountLine(NamedTuple):
    """A value of a dimension as it is written, or a whole line of them. `place` is its place among all."""

    place: int
    text: str
    untrusted: bool


def count_text(value: CountLine) -> str:
    """What is written of it."""
    return value.text


def foreign_dimensions(facets: Iterable[Facet]) -> set[str]:
    """The dimensions with a value that strangers wrote: the whole line of one stands within the fence."""
    return {facet.dimension for facet in facets if facet.untrusted}


def count_lines(facets: Sequence[Facet], foreign: set[str]) -> list[CountLine]:
    """A line for each dimension: `- labels: work (12), home (3)`."""
    dimensions: dict[str, list[str]] = {}
    for facet in facets:
        values = dimensions.setdefault(facet.dimension, [])
        values.append(f"{clean_line(facet.value)} ({facet.count})")
    return [
        CountLine(place, f"- {clean_line(dimension)}: {', '.join(values)}", dimension in foreign)
        for place, (dimension, values) in enumerate(dimensions.items())
    ]


def has_ended(fact: Fact, now: datetime | None) -> bool:
    """Whether a fact stopped being true."""
    end = fact.valid_to
    if end is None or now is None:
        return False
    return (end if end.tzinfo else end.replace(tzinfo=UTC)) <= now


def split_ended(facts: Sequence[Fact], now: datetime | None) -> tuple[list[Fact], list[Fact]]:
    """Facts that hold, and those that stopped being true."""
    ended = [fact for fact in facts if has_ended(fact, now)]
    return [fact for fact in facts if not has_ended(fact, now)], ended


def _validity(fact: Fact) -> str:
    if fact.valid_from is None and fact.valid_to is None:
        return ""
    start = fact.valid_from.date().isoformat() if fact.valid_from else "…"
    end = fact.valid_to.date().isoformat() if fact.valid_to else "…"
    return f" ({start} to {end})"
