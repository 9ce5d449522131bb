"""What a query lets through, before any limit, said once for all stores; and what an entry has to be to be
stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from contextrouter.builtin.providers.name_candidates import name_key
from contextrouter.contracts import Entry
from contextrouter.errors import IngestError
from contextrouter.filters import attributes, passes
from contextrouter.model import Document, Facet, Query

COLUMNS = ("id", "tenant", "compartment", "sensitivity")
"""Fields that stores keep in columns of their own, and filter by there."""
PHRASES = "\x1fphrases"
"""The key under which stores have the key phrases of a chunk, as names are compared."""
UNTRUSTED = "\x1funtrusted"
"""The key under which stores have that strangers wrote a chunk."""
_LONGEST = 200  # characters of a key phrase that is looked up
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def matches(document: Document, query: Query) -> bool:
    """Whether `document` is in the query's scope and period, passes its filters and bears one of its
    labels.
    """
    if query.scope is not None and not query.scope.allows(document):
        return False
    if query.period is not None and (
        document.updated_at is None or not query.period.contains(document.updated_at)
    ):
        return False
    return passes(document, query.filters, query.labels)


def indexed(document: Document) -> dict[str, set[str]]:
    """The values a filter can meet, by key, but those of `COLUMNS`; under `PHRASES` the key phrases as names;
    and `UNTRUSTED`, where strangers wrote the document.
    """
    own = (*COLUMNS, PHRASES, UNTRUSTED)
    values = {key: values for key, values in attributes(document).items() if key not in own}
    if document.untrusted:
        values[UNTRUSTED] = {"1"}
    if keys := phrase_keys(document):
        values[PHRASES] = keys
    return values


def phrase_keys(document: Document) -> set[str]:
    """The key phrases of a document, as names are compared."""
    return {key for phrase in document.keywords if 0 < len(key := name_key(phrase)) <= _LONGEST}


def names(value: Any) -> list[str]:
    """The texts among the values asked for in one of `COLUMNS`; empty stands for a label that is missing and
    is found by none.
    """
    given = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return [each.encode("utf-8", "replace").decode() for each in given if isinstance(each, str) and each]


def microseconds(moment: datetime | None) -> int | None:
    """Microseconds since 1970 in UTC; a naive moment is taken as UTC."""
    if moment is None:
        return None
    delta = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def moment(value: int | None) -> datetime | None:
    """The inverse of `microseconds`."""
    return (
        None
        if value is None
        else datetime.fromtimestamp(value // 1_000_000, UTC).replace(microsecond=value % 1_000_000)
    )


def make_facet(dimension: str, form: str, count: int, *, untrusted: bool) -> Facet:
    """Return the facet of a value from its canonical form (see `forms`), without the mark of what is no
    text.
    """
    return Facet(dimension=dimension, value=form.lstrip("\x1f"), count=count, untrusted=untrusted)


@contextmanager
def storable(document: Document) -> Iterator[None]:
    """Turn an error inside the block into an IngestError that names the document and what is wrong with it;
    also raised for a document without an id.
    """
    if not document.id:
        raise IngestError("Document without an id cannot be stored; give it one.")
    try:
        yield
    except UnicodeEncodeError as error:
        problem = "holds a lone surrogate, which is no character; decode its text with errors='replace'"
        raise IngestError(f"Document {document.id!r} {problem}.", document=document.id) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise IngestError(f"Document {document.id!r} {error}.", document=document.id) from error


def labelled(document: Document, chunks: Sequence[Document]) -> list[Document]:
    """The chunks with id, parent, language and the labels of access that they lack taken from their
    document.

    A chunk never has laxer labels by omission. Raises ValueError where two chunks have one id.
    """
    done: list[Document] = []
    for number, chunk in enumerate(chunks):
        name = chunk.id or f"{document.id}#{number}"
        done.append(
            chunk.replace(
                id=name,
                parent=chunk.parent or (None if name == document.id else document.id),
                tenant=chunk.tenant or document.tenant,
                compartment=chunk.compartment or document.compartment,
                sensitivity=chunk.sensitivity or document.sensitivity,
                language=chunk.language or document.language,
            )
        )
    names = [chunk.id for chunk in done]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has two chunks with the id {twice!r}; give each chunk an id of its own")
    return done


def aligned(entry: Entry, legs: Sequence[str]) -> None:
    """Raise ValueError when an entry's vectors are of no leg in `legs`, or not one per chunk."""
    by_model = (entry.vectors, *entry.other_vectors.values())
    for leg, vectors in chain.from_iterable(by_leg.items() for by_leg in by_model):
        if leg not in legs:
            raise ValueError(
                f"has vectors for the leg {leg!r}, which this store does not have; name an `embedder`"
            )
        if len(vectors) != len(entry.chunks):
            counts = f"{len(vectors)} vectors for {len(entry.chunks)} chunks"
            raise ValueError(f"has {counts} on the leg {leg!r}; give one, or None, per chunk")
