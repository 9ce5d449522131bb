"""Hits that are not what their types say, found and left out, so that one careless source never costs the answer.

Sources are programs of many hands: a JSON API gives `null` for a title, and the plugin passes it on. To look at every field of
every hit would cost more than the rest of the router; so it is looked at where something is about to be handed on, and at all of
them only once something was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import attrgetter
from types import NoneType
from typing import Any

from contextrouter.model import Document, Harvest, SourceReport

_TEXTS = ("content", "id", "url", "title", "snippet", "kind", "media_type")
_LABELS = ("parent", "language", "tenant", "compartment", "sensitivity", "trust")
_TUPLES = ("path", "keywords", "labels", "links")
_texts_of, _labels_of, _metadata_of = attrgetter(*_TEXTS), attrgetter(*_LABELS), attrgetter("metadata")
_others_of = attrgetter(*_TUPLES, "updated_at", "synced_at")
_PLAIN = ((), (), (), (), None, None)


def flaw(document: Any) -> str:
    """What is wrong with the types of a document; empty: nothing."""
    if type(document) is not Document:
        return f"the document is {_name(document)}, not a Document"
    for name in _TEXTS:
        value = getattr(document, name)
        if type(value) is not str:
            return f"{name} is {_name(value)}, not a text"
    for name in _LABELS:
        value = getattr(document, name)
        if value is not None and type(value) is not str:
            return f"{name} is {_name(value)}, not a text"
    for name in _TUPLES:
        value = getattr(document, name)
        if (value and (type(value) not in (tuple, list) or not all(type(item) is str for item in value))) or value is None:
            return f"{name} is not a tuple of texts"
    for name in ("updated_at", "synced_at"):
        value = getattr(document, name)
        if value is not None and not isinstance(value, datetime):
            return f"{name} is {_name(value)}, not a datetime"
    return "" if isinstance(document.metadata, Mapping) else f"metadata is {_name(document.metadata)}, not a mapping"


def all_sound(documents: Sequence[Document]) -> bool:
    """Whether `flaw` finds nothing in any of them; most often known by the types of the same fields of all of them at once."""
    return (
        {*map(type, documents)} <= {Document}
        and {*map(type, chain.from_iterable(map(_texts_of, documents)))} <= {str}
        and {*map(type, chain.from_iterable(map(_labels_of, documents)))} <= {str, NoneType}
        and {*map(type, map(_metadata_of, documents))} <= {dict}
        and [*map(_others_of, documents)].count(_PLAIN) == len(documents)
    ) or not any(map(flaw, documents))


def _name(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__}"


def without_flawed(harvest: Harvest) -> Harvest:
    """The harvest without hits that are not what their types say; their call's report becomes "partial" and names the flaw."""
    lists = []
    flaws: dict[tuple[str, str, str], list[str]] = {}
    for ranked in harvest.lists:
        kept = []
        for hit in ranked.hits:
            found = flaw(hit.document)
            if found:
                flaws.setdefault((ranked.source, ranked.leg, ranked.query), []).append(found)
            else:
                kept.append(hit)
        lists.append(ranked if len(kept) == len(ranked.hits) else ranked.replace(hits=kept))
    if not flaws:
        return harvest
    reports = tuple(_reported(report, flaws.get((report.source, report.leg, report.query))) for report in harvest.reports)
    return harvest.replace(lists=tuple(lists), reports=reports)


def _reported(report: SourceReport, flaws: list[str] | None) -> SourceReport:
    if not flaws:
        return report
    error = f"{len(flaws)} of {report.count} hits were left out; the first: {flaws[0]}"
    return report.replace(status="partial", count=report.count - len(flaws), error="; ".join(filter(None, (report.error, error))))
