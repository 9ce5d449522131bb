"""Texts about entities, to be embedded: name, aliases and a description of one line, from the facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from contextrouter.builtin.providers.filtering import microseconds
from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.model import Vector
from contextrouter.text.fact_words import spaced

MOST_ALIASES, MOST_ROLES, MOST_STATEMENTS = 8, 3, 4
"""Of one entity: texts from its own facts, texts from facts with it as their object, and statements in its
description.
"""
PAGE = 2_000
"""How many entities are given their vectors at a time."""
NO_VECTORS = "Store has no vectors of entities; run `contextrouter ingest`, which makes them."
LONGEST = 200
"""Characters of a text."""
_ALIASES = frozenset(
    "alias|aliases|aka|a k a|also called|also known as|called|known as|nickname|nick name|other name|full"
    " name|short name|abbreviation|abbreviated as".split("|")
)
_IDENTITY = frozenset("is|is a|is an|is the|was|are|role|type|kind|occupation|profession|job".split("|"))
_NAMING = _ALIASES | _IDENTITY

Labels = tuple[str, str, str]
"""Tenant, compartment and sensitivity."""


class StoredFact(NamedTuple):
    """What a store says of a fact. `valid_to` is in microseconds since 1970."""

    subject: str
    predicate: str
    object: str
    subject_key: str
    object_key: str
    valid_to: int | None
    tenant: str
    compartment: str
    sensitivity: str

    @property
    def labels(self) -> Labels:
        """Its labels of access."""
        return self.tenant, self.compartment, self.sensitivity


class EntityTexts(NamedTuple):
    """An entity as facts of the same labels tell of it, its name, and the texts to embed.

    Without texts it is none that a hint may stand for: an object such as "wife of the user", which only says
    what another entity is.
    """

    key: str
    labels: Labels
    name: str
    texts: tuple[str, ...]


def check_threshold(threshold: float | None) -> float | None:
    """Return a threshold of cosines. Raises ValueError when it is out of range."""
    if threshold is not None and not -1 <= threshold <= 1:
        raise ValueError(f"entity_threshold {threshold!r} is no cosine; give a number from -1 to 1.")
    return threshold


def describe_entities(
    entities: Iterable[tuple[str, Labels]], facts: Iterable[StoredFact]
) -> list[EntityTexts]:
    """Return the texts about each entity. `facts` are all those with one of them as subject or object, the
    surest first.
    """
    as_subject: dict[tuple[str, Labels], list[StoredFact]] = {}
    as_object: dict[tuple[str, Labels], list[StoredFact]] = {}
    for fact in facts:
        as_subject.setdefault((fact.subject_key, fact.labels), []).append(fact)
        if fact.object_key != fact.subject_key:
            as_object.setdefault((fact.object_key, fact.labels), []).append(fact)
    return [_texts_of(entity, as_subject.get(entity, ()), as_object.get(entity, ())) for entity in entities]


def _texts_of(
    entity: tuple[str, Labels], as_subject: Sequence[StoredFact], as_object: Sequence[StoredFact]
) -> EntityTexts:
    names = [fact.subject for fact in as_subject] or [fact.object for fact in as_object]
    name = _text_line(min(names, default=""))
    only_says = not as_subject and all(_predicate_key(fact.predicate) in _NAMING for fact in as_object)
    if only_says or not any(map(str.isalpha, name)):
        return EntityTexts(*entity, name, ())
    now = microseconds(datetime.now(UTC)) or 0
    holding = [fact for fact in as_subject if fact.valid_to is None or fact.valid_to > now]
    aliases = [fact.object for fact in holding if _predicate_key(fact.predicate) in _NAMING]
    roles = _roles([fact for fact in as_object if fact.valid_to is None or fact.valid_to > now])
    statements = [fact.object for fact in holding if _predicate_key(fact.predicate) in _IDENTITY]
    statements += roles
    statements += [
        f"{_predicate_key(fact.predicate)} {fact.object}"
        for fact in holding
        if _predicate_key(fact.predicate) not in _NAMING
    ]
    line = ", ".join(dict.fromkeys(map(_text_line, statements[:MOST_STATEMENTS])))
    texts = [name, *aliases[:MOST_ALIASES], *roles, *([f"{name}: {line}"] if line else [])]
    return EntityTexts(*entity, name, tuple(dict.fromkeys(_text_line(text) for text in texts)))


def _roles(others: Sequence[StoredFact]) -> list[str]:
    """What an entity is to others, each relation once: `user wife Anna` makes Anna "wife of user"."""
    roles: dict[str, str] = {}
    for fact in others:
        relation = _predicate_key(fact.predicate)
        if relation not in _NAMING:
            roles.setdefault(relation, f"{relation} of {fact.subject}")
    return list(roles.values())[:MOST_ROLES]


def _predicate_key(predicate: str) -> str:
    """A predicate as words, folded: `bornIn` and `born_in` are "born in"."""
    return name_key(spaced(predicate)[len(predicate) :].strip() or predicate)


def _text_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST]


def distinct_texts(entities: Iterable[EntityTexts]) -> list[str]:
    """Return the texts of entities, each once."""
    return list(dict.fromkeys(text for entity in entities for text in entity.texts))


def ready_rows(
    entities: Iterable[EntityTexts], vectors: Mapping[str, Vector]
) -> list[tuple[EntityTexts, Sequence[Vector]]]:
    """Return the entities all of whose texts have a vector, with these."""
    return [
        (entity, [vectors[text] for text in entity.texts])
        for entity in entities
        if all(text in vectors for text in entity.texts)
    ]
