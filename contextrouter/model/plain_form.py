"""The plain form of nouns: mappings, lists and scalars, without vectors, in three levels of detail.

`brief` is what a program reads of a result: the text, what was found where, and what was asked. `full` has
every field, and the texts of the documents. `trace` has every step beside it, and what was lost there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, get_args

import msgspec

from contextrouter.model.document import Envelope, Hit, Provenance, RankedList
from contextrouter.model.noun import Noun
from contextrouter.model.request import Call, Plan, Query

Detail = Literal["brief", "full", "trace"]

LONGEST_QUERY = 200
"""Characters of a query that the coverage repeats."""
CUT = " […]"
DIGITS = 4
"""Digits behind the point of a number in the brief form: a score needs no more, nor do seconds."""


def encode_number(value: Any) -> Any:
    """Encode a number of another library (numpy) as a float, anything else as its text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def encode_json(value: Any) -> bytes:
    """Return plain values as JSON in UTF-8. A lone surrogate, which UTF-8 cannot encode, becomes "?"."""
    try:
        return msgspec.json.encode(value, enc_hook=encode_number)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replace_surrogates(msgspec.to_builtins(value, enc_hook=encode_number)))


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def builtins(value: Any) -> Any:
    """Return nouns as mappings, lists and scalars. Vectors are left out: they are large, and nobody reads
    them.
    """
    within = _WITH_VECTORS.get(type(value))
    if within is None:
        return msgspec.to_builtins(value, enc_hook=encode_number)
    fields = {}
    for name in value.__struct_fields__:
        if name != "vector":
            item = getattr(value, name)
            many = name == within and isinstance(item, Sequence)
            fields[name] = [builtins(element) for element in item] if many else builtins(item)
    return fields


_WITH_VECTORS: Mapping[type, str] = {
    Envelope: "",
    Hit: "",
    RankedList: "hits",
    Query: "",
    Call: "query",
    Plan: "calls",
}
"""The nouns that have vectors, and the field in which others of these stand."""


def number_queries(envelopes: Iterable[Mapping[str, Any]], numbers: Mapping[str, int]) -> None:
    """Name each query in the provenance of plain envelopes by its place."""
    for envelope in envelopes:
        for seal in envelope["provenance"]:
            seal["query"] = numbers[seal["query"]]


def shorten(query: str) -> str:
    """Return the beginning of a query."""
    return query if len(query) <= LONGEST_QUERY else query[:LONGEST_QUERY] + CUT


def check_detail(detail: str) -> None:
    """Raise ValueError for a level of detail that there is not."""
    if detail not in get_args(Detail):
        raise ValueError(f"There is no detail {detail!r}. Choose from {', '.join(get_args(Detail))}.")


def with_noun(number: int, noun: str) -> str:
    """Return a number of things: "1 document", "2 documents"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@cache
def _defaults(noun: Any) -> Mapping[str, Any]:
    """Return the default of each field that has one."""
    defaults = {}
    for field in msgspec.structs.fields(noun):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.name] = field.default_factory()
    return defaults


def brief(value: Any) -> Any:
    """Return a noun in its brief form: without the fields that are as they are by default, and of an envelope
    with the best place in each source alone.
    """
    kind: Any = type(value)
    if value is None or kind in (str, int, bool):
        return value
    if isinstance(value, Noun):
        defaults, short = _defaults(kind), kind.BRIEF
        fields = {}
        for name in kind.__struct_fields__:
            item = getattr(value, name)
            if (short is None or name in short) and (name not in defaults or item != defaults[name]):
                fields[name] = item
        if isinstance(value, Envelope):
            fields["provenance"] = _best_places(value.provenance)
        return {name: brief(item) for name, item in fields.items()}
    if isinstance(value, float):
        return round(value, DIGITS)
    if kind in (tuple, list):
        return [brief(item) for item in value]
    return msgspec.to_builtins(value, enc_hook=encode_number)


def _best_places(provenance: Sequence[Provenance]) -> list[Provenance]:
    best: dict[str, Provenance] = {}
    for seal in sorted(provenance, key=lambda seal: seal.rank):
        best.setdefault(seal.source, seal)
    return list(best.values())
