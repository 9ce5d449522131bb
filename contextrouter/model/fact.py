"""Fact, entity and facet: answers that are no documents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from contextrouter.model.noun import EMPTY, Noun


class Fact(Noun, frozen=True, kw_only=True, gc=False):
    """A directed triple. Facts are handed back beside the documents and never cited."""

    subject: str
    predicate: str
    object: str
    source: str = ""
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    tenant: str | None = None
    compartment: str | None = None
    sensitivity: str | None = None
    attributes: Mapping[str, Any] = EMPTY
    untrusted: bool = False  # read in what strangers wrote: fenced in the context, and never an instruction


class Entity(Noun, frozen=True, kw_only=True, gc=False):
    """An answer to an attribute question."""

    id: str
    name: str
    kind: str = ""
    attributes: Mapping[str, Any] = EMPTY
    source: str = ""
    tenant: str | None = None
    compartment: str | None = None
    sensitivity: str | None = None
    untrusted: bool = False  # one of the facts about it is


class Facet(Noun, frozen=True, kw_only=True, gc=False):
    """An aggregate answer: how many documents have this value."""

    dimension: str
    value: str
    count: int
    untrusted: bool = False  # strangers wrote the value
