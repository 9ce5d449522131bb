"""Queries as stores read them: the leg, the vector and the terms; said once for all stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from contextrouter.errors import SourceError
from contextrouter.model import Query, Vector
from contextrouter.text.languages import LanguageTerms, language_terms

V = TypeVar("V")


def refuse_other_leg(query: Query, legs: Sequence[str]) -> None:
    """Raise SourceError for a query on a leg that a store does not have."""
    if query.leg not in legs:
        raise SourceError(f"Leg {query.leg!r} is not one of this store's legs: {', '.join(legs)}.")


def query_direction(query: Query, to_unit: Callable[[Vector], V | None]) -> V | None:
    """Return the vector of a query at length 1, as `unit` or `unit_array` makes it; None for the zero vector.
    Raises SourceError for a query without a vector, or with one that is none.
    """
    if query.vector is None:
        raise SourceError(
            f"Leg {query.leg!r} needs a query vector and got none; set `embedder` to a defined embedder."
        )
    try:
        return to_unit(query.vector)
    except (ValueError, TypeError) as error:
        raise SourceError(f"Query on the leg {query.leg!r} {error}.") from error


def terms_of(query: Query, languages: Iterable[str]) -> LanguageTerms:
    """Return a query in the terms of an index, for the languages of the texts in it."""
    return language_terms(query.text, languages, required=query.required, excluded=query.excluded)
