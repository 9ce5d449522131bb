"""Hits that are not what their types say, found and left out, so that one careless source never costs the
answer.

Sources are programs of many hands: a JSON API gives `null` for a title, and the plugin passes it on. To look
at every field of every hit would cost more than the rest of the router; so it is looked at where something is
about to be handed on, and at all of them only once something was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from contextrouter.model import Document, Harvest, SourceReport

_TEXTS = ("content", "id", "url", "title", "snippet", "kind", "media_type")
_LABELS = ("parent", "language", "tenant", "compartment", "sensitivity", "trust")
_TUPLES = ("path", "keywords", "labels", "links")
_EMPTY = ()


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
        if (
            value and (type(value) not in (tuple, list) or not all(type(item) is str for item in value))
        ) or value is None:
            return f"{name} is not a tuple of texts"
    for name in ("updated_at", "synced_at"):
        value = getattr(document, name)
        if value is not None and not isinstance(value, datetime):
            return f"{name} is {_name(value)}, not a datetime"
    if type(getattr(document, "untrusted")) is not bool:  # noqa: B009 - mypy takes the type for granted
        return f"untrusted is {_name(document.untrusted)}, not true or false"
    return (
        ""
        if isinstance(document.metadata, Mapping)
        else f"metadata is {_name(document.metadata)}, not a mapping"
    )


def all_sound(documents: Sequence[Document]) -> bool:
    """Whether nothing is wrong with the types of any of them."""
    return all(map(_plain, documents)) or not any(map(flaw, documents))


def _plain(d: Document) -> bool:
    """Whether a document is surely sound: its fields, one by one, are of the types that most documents
    have.
    """
    return (
        type(d) is Document
        and type(d.content)
        is type(d.id)
        is type(d.url)
        is type(d.title)
        is type(d.snippet)
        is type(d.kind)
        is str
        and type(d.media_type) is str
        and (d.parent is None or type(d.parent) is str)
        and (d.language is None or type(d.language) is str)
        and (d.tenant is None or type(d.tenant) is str)
        and (d.compartment is None or type(d.compartment) is str)
        and (d.sensitivity is None or type(d.sensitivity) is str)
        and (d.trust is None or type(d.trust) is str)
        and d.path is d.keywords is d.labels is d.links is _EMPTY
        and (d.updated_at is None or isinstance(d.updated_at, datetime))
        and (d.synced_at is None or isinstance(d.synced_at, datetime))
        and type(d.metadata) is dict
        and type(d.untrusted) is bool
    )


def _name(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__}"


def without_flawed(harvest: Harvest) -> Harvest:
    """The harvest without hits that are not what their types say; their call's report becomes "partial" and
    names the flaw.
    """
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
    reports = tuple(
        _reported(report, flaws.get((report.source, report.leg, report.query))) for report in harvest.reports
    )
    return harvest.replace(lists=tuple(lists), reports=reports)


def _reported(report: SourceReport, flaws: list[str] | None) -> SourceReport:
    if not flaws:
        return report
    error = f"{len(flaws)} of {report.count} hits were left out; the first: {flaws[0]}"
    return report.replace(
        status="partial",
        count=report.count - len(flaws),
        error="; ".join(filter(None, (report.error, error))),
    )
