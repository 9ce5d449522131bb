"""What is checked of everything that arrives from a source: the contract, the labels, the scope, the
filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextrouter.errors import ContractError
from contextrouter.filters import passes
from contextrouter.model import Document, Entity, Facet, Fact, Hit, Query
from contextrouter.scope import SENSITIVITIES, SHARED
from contextrouter.settings import FactKeys, SourceKeys


class Arrival:
    """The gate behind one call. `withheld` counts what it kept back of what the caller may see."""

    def __init__(self, query: Query, keys: FactKeys | None) -> None:
        self.query, self.keys = query, keys
        self.withheld = 0
        self.labels = keys is not None and keys.labels
        self.checks = (
            query.scope is not None or query.period is not None or bool(query.filters or query.labels)
        )

    def hits(self, found: Sequence[Hit]) -> Sequence[Hit]:
        """Return the hits that may go on, at most `query.limit`. Raises ContractError for what is no answer
        at all.
        """
        return [hit for hit in map(self._hit, checked(found)) if hit is not None][: self.query.limit]

    def _hit(self, hit: Hit) -> Hit | None:
        document = hit.document
        if self.labels:
            labelled = self.label(document)
            if labelled is not document:
                hit = Hit(document=labelled, score=hit.score, vector=hit.vector, highlights=hit.highlights)
        if not self.checks:
            return hit
        scope = self.query.scope
        if scope is not None and not scope.allows(hit.document):
            return None  # and not counted: the caller is not to learn that there is something
        if not self._passes(hit.document):
            self.withheld += 1
            return None
        return hit

    def _passes(self, document: Document) -> bool:
        query = self.query
        if (
            query.period is not None
            and document.updated_at is not None
            and not query.period.contains(document.updated_at)
        ):
            return False
        return passes(document, query.filters, query.labels)

    def label(self, document: Document) -> Document:
        """Fill what the document does not say of itself from its source's table, which may only tighten what
        it does say.
        """
        keys = self.keys
        assert isinstance(keys, SourceKeys)
        changes: dict[str, Any] = {}
        if keys.kind and document.kind == "document":
            changes["kind"] = keys.kind
        if keys.trust and document.trust is None:
            changes["trust"] = keys.trust
        changes |= self._access(document)
        return document.replace(**changes) if changes else document

    def _access(self, item: Document | Fact | Entity) -> dict[str, Any]:
        keys = self.keys
        assert keys is not None
        changes: dict[str, Any] = {}
        if keys.tenant and item.tenant in (
            None,
            SHARED,
        ):  # what is everybody's says the table, not the document
            changes["tenant"] = keys.tenant
        if keys.compartment and not item.compartment:
            changes["compartment"] = keys.compartment
        if keys.sensitivity and _level(keys.sensitivity) > _level(item.sensitivity):
            changes["sensitivity"] = keys.sensitivity
        return changes

    def labelled(self, found: Sequence[Any]) -> list[Any]:
        """The same for facts, entities and facets."""
        if not isinstance(found, list | tuple) or not all(
            isinstance(item, Fact | Facet | Entity) for item in found
        ):
            raise ContractError(
                "facts(), facets() and entities() must return sequences of those", law="facts returns facts"
            )
        kept = []
        for item in found:
            if isinstance(item, Facet):
                kept.append(item)
                continue
            changes = self._access(item) if self.keys is not None else {}
            labelled = item.replace(**changes) if changes else item
            if self.query.scope is not None and not self.query.scope.allows(labelled):
                continue
            kept.append(labelled)
        return kept[: self.query.limit]


def checked(found: Sequence[Hit]) -> Sequence[Hit]:
    """Return what `search()` returned. Raises ContractError for what is no answer at all."""
    if not isinstance(found, _LISTED) or not {*map(type, found)} <= _HIT:
        raise ContractError("search() must return a sequence of hits", law="search returns hits")
    return found


_HIT = {Hit}
_LISTED = (list, tuple)


def _level(sensitivity: str | None) -> int:
    if not sensitivity:
        return 0
    return SENSITIVITIES.index(sensitivity) if sensitivity in SENSITIVITIES else len(SENSITIVITIES)
