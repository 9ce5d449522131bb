"""Hit validation (admission): checks every hit and fact once, on arrival: types, labels, scope, period,
filters.

Sources are programs of many hands: a JSON API gives `null` for a title, and the plugin passes it on. One
careless source must not cost the answer, and no source decides what a caller may see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import isfinite
from numbers import Real
from typing import Any

from contextrouter.errors import ContractError
from contextrouter.filters import passes
from contextrouter.model import Document, Entity, Facet, Fact, Hit, Query
from contextrouter.runtime.plugin_calls import as_plain
from contextrouter.runtime.threads import work_aside
from contextrouter.scope import SENSITIVITIES, SHARED
from contextrouter.settings import FactKeys, SourceKeys
from contextrouter.text.characters import whole_characters
from contextrouter.text.fact_words import spaced
from contextrouter.text.query_syntax import holds_any

READ_AT_ONCE = 100_000
"""Characters in which excluded words are looked for in one step of the event loop; in more in a thread."""
_TEXTS = ("content", "id", "url", "title", "snippet", "kind", "media_type")
_OPTIONAL_TEXTS = ("parent", "language", "tenant", "compartment", "sensitivity", "trust", "job")
_TEXT_TUPLES = ("path", "keywords", "labels", "links")


class Admission:
    """Checks the answer to one query. `keys` are the router's own keys in the table of its source.

    `withheld` counts the hits in scope that the kinds, filters, labels, period or excluded words kept
    back, and the facts that excluded words or the period did; `flaws` says what was wrong with the types of
    hits that were left out.
    """

    def __init__(self, query: Query, keys: FactKeys | None) -> None:
        self.query, self.keys = query, keys
        self.withheld = 0
        self.flaws: list[str] = []
        self._labels = keys is not None and keys.labels
        self._restricted = (
            query.scope is not None
            or query.period is not None
            or bool(query.filters or query.labels or query.excluded)
        )

    def hits(self, answer: Sequence[Hit]) -> Sequence[Hit]:
        """Return the hits that may go on, at most `query.limit`. Raises ContractError for an answer of other
        types.
        """
        answer = as_plain(answer)
        if not isinstance(answer, list | tuple):
            raise _no_hits()
        sound = list(answer) if all(map(_is_plain, answer)) else self._sound(answer)
        if self._labels or self._restricted:
            sound = [admitted for hit in sound if (admitted := self._admit(hit)) is not None]
        limit = self.query.limit
        return sound if len(sound) <= limit else sound[:limit]

    def _sound(self, answer: Sequence[Hit]) -> list[Hit]:
        """Return the hits whose types are right or can be made so; note what is wrong with the others."""
        if not {*map(type, answer)} <= {Hit}:
            raise _no_hits()
        return [_with_number(hit) for hit in answer if not self._note(flaw_of(hit.document))]

    def facts(self, answer: Sequence[Any]) -> list[Any]:
        """Return the facts, entities or facets that may go on. Raises ContractError for an answer of other
        types.
        """
        answer = as_plain(answer)
        if not isinstance(answer, list | tuple) or not {*map(type, answer)} <= {*_FACT_TEXTS}:
            message = "facts(), facets() and entities() must return sequences of those"
            raise ContractError(message, law="facts returns facts")
        sound = [whole_characters(item) for item in answer if not self._note(flaw_of_fact(item))]
        admitted = [item if isinstance(item, Facet) else self._labelled(item) for item in sound]
        scope = self.query.scope
        if scope is not None:
            admitted = [item for item in admitted if isinstance(item, Facet) or scope.allows(item)]
        admitted = [
            item for item in admitted if not (self._is_excluded(item) or self._is_of_other_time(item))
        ]
        return self._cut(admitted)

    def note(self, admitted: int, items: str = "hits") -> str:
        """Say how many items were left out because of their types, beside those admitted; empty: none."""
        if not self.flaws:
            return ""
        flawed = len(self.flaws)
        return f"{flawed} of {admitted + flawed} {items} were left out; the first: {self.flaws[0]}"

    def _note(self, flaw: str) -> str:
        if flaw:
            self.flaws.append(flaw)
        return flaw

    def _admit(self, hit: Hit) -> Hit | None:
        document = self.label(hit.document) if self._labels else hit.document
        scope = self.query.scope
        if scope is not None and not scope.allows(document):
            return None  # not counted: the caller must not learn that there is something
        if self._restricted and not self._passes(document):
            self.withheld += 1
            return None
        return hit if document is hit.document else hit.replace(document=document)

    def _passes(self, document: Document) -> bool:
        query = self.query
        if (
            query.period is not None
            and document.updated_at is not None
            and not query.period.contains(document.updated_at)
        ):
            return False
        if not passes(document, query.filters, query.labels):
            return False
        texts = (document.title, " ".join(document.path), document.content)
        return not (query.excluded and holds_any(query.excluded, texts, document.language))

    def _cut(self, items: Sequence[Any]) -> list[Any]:
        """Return the first items, at most `query.limit`; of facets so many of each dimension."""
        limit = max(self.query.limit, 0)
        counts: Counter[str] = Counter()
        cut = []
        for item in items:
            dimension = item.dimension if isinstance(item, Facet) else ""
            counts[dimension] += 1
            if counts[dimension] <= limit:
                cut.append(item)
        return cut

    def _is_of_other_time(self, item: Fact | Entity | Facet) -> bool:
        """Whether a fact holds neither in the query's period nor, without one, now. It is counted."""
        if not isinstance(item, Fact) or item.valid_from is item.valid_to is None:
            return False
        start, end = self._bounds
        starts_later = end is not None and item.valid_from is not None and _aware(item.valid_from) >= end
        ended_before = start is not None and item.valid_to is not None and _aware(item.valid_to) <= start
        self.withheld += starts_later or ended_before
        return starts_later or ended_before

    @cached_property
    def _bounds(self) -> tuple[datetime | None, datetime | None]:
        """The time in which facts must hold: the query's period, or this moment."""
        if self.query.period is not None:
            return self.query.period.bounds()
        now = datetime.now(UTC)
        return now, now + timedelta(microseconds=1)

    def _is_excluded(self, item: Fact | Entity | Facet) -> bool:
        """Whether a fact has an excluded word. It is counted, as a document is."""
        if not self.query.excluded or not isinstance(item, Fact):
            return False
        texts = (item.subject, spaced(item.predicate), item.object)
        excluded = holds_any(self.query.excluded, texts, self.query.language)
        self.withheld += excluded
        return excluded

    def label(self, document: Document) -> Document:
        """Fill labels a document lacks from the table of its source, which may only tighten those it has."""
        keys = self.keys
        if not isinstance(keys, SourceKeys):
            return document
        changes: dict[str, Any] = {}
        if keys.kind and document.kind == "document":
            changes["kind"] = keys.kind
        if keys.trust and document.trust is None:
            changes["trust"] = keys.trust
        changes |= self._access_labels(document)
        return document.replace(**changes) if changes else document

    def _labelled(self, item: Fact | Entity) -> Fact | Entity:
        changes = self._access_labels(item) if self.keys is not None else {}
        return item.replace(**changes) if changes else item

    def _access_labels(self, item: Document | Fact | Entity) -> dict[str, Any]:
        keys = self.keys
        changes: dict[str, Any] = {}
        if keys is None:
            return changes
        if keys.tenant and item.tenant in (None, SHARED):  # only the table may say that something is shared
            changes["tenant"] = keys.tenant
        if keys.compartment and not item.compartment:
            changes["compartment"] = keys.compartment
        if keys.sensitivity and _level(keys.sensitivity) > _level(item.sensitivity):
            changes["sensitivity"] = keys.sensitivity
        return changes


def _no_hits() -> ContractError:
    return ContractError("search() must return a sequence of hits", law="search returns hits")


def _aware(moment: datetime) -> datetime:
    """A moment; a naive one is of UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _level(sensitivity: str | None) -> int:
    if not sensitivity:
        return 0
    return SENSITIVITIES.index(sensitivity) if sensitivity in SENSITIVITIES else len(SENSITIVITIES)


def flaw_of(document: Any) -> str:
    """Say what is wrong with the types of a document's fields; empty: nothing."""
    if type(document) is not Document:
        return f"the document is {_type_name(document)}, not a Document"
    for name in _TEXTS:
        value = getattr(document, name)
        if type(value) is not str:
            return f"{name} is {_type_name(value)}, not a text"
    for name in _OPTIONAL_TEXTS:
        value = getattr(document, name)
        if value is not None and type(value) is not str:
            return f"{name} is {_type_name(value)}, not a text"
    for name in _TEXT_TUPLES:
        if not _is_texts(getattr(document, name)):
            return f"{name} is not a tuple of texts"
    for name in ("updated_at", "synced_at"):
        value = getattr(document, name)
        if value is not None and not isinstance(value, datetime):
            return f"{name} is {_type_name(value)}, not a datetime"
    untrusted: object = document.untrusted
    if type(untrusted) is not bool:
        return f"untrusted is {_type_name(untrusted)}, not true or false"
    number: object = document.tokens
    if number is not None and (type(number) is not int or number < 0):
        return f"tokens is {number!r}, not a whole number of 0 or more"
    metadata: object = document.metadata
    return "" if isinstance(metadata, Mapping) else f"metadata is {_type_name(metadata)}, not a mapping"


def _is_texts(value: Any) -> bool:
    return type(value) in (tuple, list) and all([type(item) is str for item in value])


def _are_texts(d: Document) -> bool:
    path, keywords, labels, links = d.path, d.keywords, d.labels, d.links
    if type(path) is type(keywords) is type(labels) is type(links) is tuple:
        return _TEXT.issuperset(map(type, path + keywords + labels + links))
    return _is_texts(path) and _is_texts(keywords) and _is_texts(labels) and _is_texts(links)


_EMPTY: tuple[str, ...] = ()  # there is one empty tuple
_TEXT = frozenset((str,))


def _is_plain(hit: Any) -> bool:
    """Whether the types of a hit and its document are those that nearly all have: `flaw_of` decides about the
    others.
    """
    return (
        type(hit) is Hit
        and (hit.score is None or type(hit.score) is float)
        and type(d := hit.document) is Document
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
        and (d.job is None or type(d.job) is str)
        and (d.path is d.keywords is d.labels is d.links is _EMPTY or _are_texts(d))
        and (d.updated_at is None or type(d.updated_at) is datetime)
        and (d.synced_at is None or type(d.synced_at) is datetime)
        and type(d.metadata) is dict
        and type(d.untrusted) is bool
        and (d.tokens is None or (type(d.tokens) is int and d.tokens >= 0))
    )


async def admit_hits(admission: Admission, answer: Sequence[Hit]) -> Sequence[Hit]:
    """Return the hits of an answer that may go on. Where excluded words are looked for in long texts, a
    thread reads them, while the event loop answers others.
    """
    answer = as_plain(answer)
    if admission.query.excluded and isinstance(answer, list | tuple):
        texts = [getattr(getattr(hit, "document", None), "content", "") for hit in answer]
        if sum([len(text) for text in texts if isinstance(text, str)]) > READ_AT_ONCE:
            return await work_aside(admission.hits, answer)
    return admission.hits(answer)


def _type_name(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__}"


def _with_number(hit: Hit) -> Hit:
    """Make a float of a score; one that is no number, or too large for a float, is taken away."""
    score: object = hit.score
    if score is None or type(score) is float:
        return hit
    if isinstance(score, bool) or not isinstance(score, Real):
        return hit.replace(score=None)
    try:
        return hit.replace(score=float(score))
    except (OverflowError, ValueError):
        return hit.replace(score=None)


_FACT_TEXTS: dict[Any, tuple[str, ...]] = {
    Fact: ("subject", "predicate", "object", "source"),
    Entity: ("id", "name", "kind", "source"),
    Facet: ("dimension", "value"),
}


def flaw_of_fact(item: Any) -> str:
    """Say what is wrong with the types of the fields of a fact, an entity or a facet; empty: nothing."""
    for name in _FACT_TEXTS[type(item)]:
        value = getattr(item, name)
        if type(value) is not str:
            return f"{name} is {_type_name(value)}, not a text"
    if isinstance(item, Facet):
        return "" if type(item.count) is int else f"count is {_type_name(item.count)}, not a whole number"
    for name in ("tenant", "compartment", "sensitivity"):
        value = getattr(item, name)
        if value is not None and type(value) is not str:
            return f"{name} is {_type_name(value)}, not a text"
    if isinstance(item, Fact):
        confidence: object = item.confidence
        if not isinstance(confidence, Real):
            return f"confidence is {_type_name(confidence)}, not a finite number"
        if not isfinite(confidence):
            return f"confidence is {confidence}, not a finite number"
        for name in ("valid_from", "valid_to"):
            value = getattr(item, name)
            if value is not None and not isinstance(value, datetime):
                return f"{name} is {_type_name(value)}, not a datetime"
    attributes: object = item.attributes
    return "" if isinstance(attributes, Mapping) else f"attributes is {_type_name(attributes)}, not a mapping"
