"""The object that a model fills in: a pydantic model of closed sets, made from settings, routes and labels.

A value that is none of the allowed ones drops its field with a note, not the whole object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

Fill = Literal[
    "queries",
    "text",
    "kind",
    "labels",
    "filters",
    "period",
    "entities",
    "attribute",
    "facets",
    "should_search",
    "confidence",
]
_SHOWN = 60  # characters of a value in a note
_MOST_VALUES = 50  # of a list, and keys of a mapping: nobody asks for more


class Choices(NamedTuple):
    """What one call asks for, and what the model may choose from."""

    fields: tuple[str, ...]  # of `Fill`, and "language" where the translation depends on it
    alternatives: int = 2
    kinds: Mapping[str, str] = {}  # name -> description
    labels: tuple[str, ...] = ()
    filters: Mapping[str, tuple[str, ...]] = {}  # metadata key -> values
    facets: tuple[str, ...] = ()
    language: str = ""  # of the documents; "": that of the question


def make_shape(choices: Choices, notes: list[str]) -> type[Any]:
    """Return the pydantic model of an answer. Validation adds to `notes` what it drops, and why."""
    from pydantic import create_model

    types: Mapping[str, Callable[[], Any]] = {
        "queries": _listed_texts,
        "text": lambda: str,
        "language": lambda: str,
        "kind": lambda: _one_of(choices.kinds),
        "labels": lambda: _some_of(choices.labels, "labels", notes),
        "filters": lambda: _filters(choices.filters, notes),
        "period": _period,
        "entities": _listed_texts,
        "attribute": lambda: str,
        "facets": lambda: _some_of(choices.facets, "facets", notes),
        "should_search": lambda: bool,
        "confidence": _confidence,
    }
    fields: dict[str, Any] = {name: (_or_none(types[name](), name, notes), None) for name in choices.fields}
    shape: type[Any] = create_model("Understanding", **fields)
    return shape


def show_value(value: Any) -> str:
    """Return a value of a model's answer for a note."""
    return repr(value if len(str(value)) <= _SHOWN else f"{str(value)[:_SHOWN]}…")


def _or_none(hint: Any, name: str, notes: list[str]) -> Any:
    """Return the type, or None: also in place of a value that is none of the type."""
    from pydantic import WrapValidator

    def drop(value: Any, validate: Callable[[Any], Any]) -> Any:
        if isinstance(value, list | dict) and len(value) > _MOST_VALUES:
            notes.append(f"{name}: only the first {_MOST_VALUES} of {len(value):,} are read")
            value = (
                dict(islice(value.items(), _MOST_VALUES)) if isinstance(value, dict) else value[:_MOST_VALUES]
            )
        try:
            return validate(value)
        except ValueError:
            notes.append(f"{name}: {show_value(value)} is dropped")
            return None

    return Annotated[hint | None, WrapValidator(drop)]


def _one_of(names: Iterable[str]) -> Any:
    from pydantic import BeforeValidator

    closed = _by_spelling(names)
    literal: Any = Literal
    return Annotated[
        literal[tuple(closed.values())], BeforeValidator(lambda value: closed.get(_plain(value), value))
    ]


def _some_of(names: Sequence[str], field: str, notes: list[str]) -> Any:
    from pydantic import BeforeValidator

    closed = _by_spelling(names)

    def choose(values: Any) -> Any:
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list):
            return values
        for value in values:
            if _plain(value) not in closed:
                notes.append(f"{field}: {show_value(value)} is dropped")
        chosen = [closed[_plain(value)] for value in values if _plain(value) in closed]
        if values and not chosen:
            raise ValueError("none of them is allowed")
        return list(dict.fromkeys(chosen))

    literal: Any = Literal
    listed: Any = list
    return Annotated[listed[literal[tuple(names)]], BeforeValidator(choose)]


def _listed_texts() -> Any:
    from pydantic import BeforeValidator

    return Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


def _filters(filters: Mapping[str, Sequence[str]], notes: list[str]) -> Any:
    from pydantic import BeforeValidator, Field, create_model

    def note_others(value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in filters:
                notes.append(f"filters: {show_value(key)} is dropped")
        return value

    parts: dict[str, Any] = {}
    for number, (key, values) in enumerate(filters.items()):  # a key may be no name of a field
        hint = _or_none(_some_of(values, f"filters.{key}", notes), f"filters.{key}", notes)
        parts[f"filter{number}"] = (hint, Field(default=None, alias=key))
    shape: Any = create_model("Filters", **parts)
    annotated: Any = Annotated
    return annotated[shape, BeforeValidator(note_others)]


def _period() -> Any:
    from pydantic import Field, create_model

    day: Any = (Annotated[str, Field(json_schema_extra={"format": "date"})] | None, None)
    return create_model("Days", start=day, end=day)


def _confidence() -> Any:
    from pydantic import BeforeValidator, Field

    def refuse_truth(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("true and false are no numbers")
        return value

    return Annotated[float, Field(ge=0, le=1), BeforeValidator(refuse_truth)]


def _by_spelling(names: Iterable[str]) -> dict[str, str]:
    return {_plain(name): name for name in names}


def _plain(value: Any) -> str:
    """Return a name without what models change in it: case, and "_", "-" and spaces for each other."""
    return re.sub(r"[\s_-]+", " ", value).strip().casefold() if isinstance(value, str) else repr(value)
