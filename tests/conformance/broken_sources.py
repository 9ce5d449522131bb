"""Sources that break one law of sources, or of what sources may be able to do, each."""

from __future__ import annotations

import asyncio
from collections import Counter, UserList
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any

from breaking import breaks
from broken_common import Shelf

from contextrouter.contracts import LinkDegrees, TermStatistics
from contextrouter.model import Document, Facet, Hit, Query
from contextrouter.scope import Scope
from contextrouter.testing import admits


class Changing(Shelf):
    """Changes what was found."""

    def found(self, query: Query) -> list[Hit]:
        return [hit.replace(document=self.changed(hit.document, query)) for hit in super().found(query)]

    def changed(self, document: Document, query: Query) -> Document:
        return document


@breaks("legs_are_named")
class SameLegTwice(Shelf):
    legs = ("text", "text")
    phrase_legs = ()


@breaks("phrases_are_honoured")
class IgnoresPhrases(Shelf):
    legs = ("text",)


@breaks("example_has_answers")
class FindsNothing(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return []


@breaks("answers_are_hits")
class NoList(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        return UserList(await super().search(query))


@breaks("no_more_than_the_limit")
class OneMore(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        return self.found(query)[: query.limit + 1]


@breaks("best_come_first")
class WorstFirst(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        return (await super().search(query))[::-1]


@breaks("best_come_first")
class AnotherBestAlone(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        found = [hit.replace(score=None) for hit in self.found(query)]
        return (found[::-1] if query.limit == 1 else found)[: query.limit]


@breaks("scores_are_finite")
class NoNumber(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return [
            *super().found(query)[:-1],
            *(hit.replace(score=float("nan")) for hit in super().found(query)[-1:]),
        ]


@breaks("scores_are_in_their_range")
class OutOfRange(Shelf):
    score_range = (0.0, 1.0)


@breaks("documents_have_ids_of_their_own")
class Twice(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return [hit for each in super().found(query) for hit in (each, each)]


@breaks("documents_have_ids_of_their_own")
class NoIds(Changing):
    def changed(self, document: Document, query: Query) -> Document:
        return document.replace(id="") if document.id == "sea" else document


@breaks("one_document_has_one_id")
class IdOfTheQuery(Changing):
    def changed(self, document: Document, query: Query) -> Document:
        return document.replace(id=f"{document.id}-{len(query.text)}")


@breaks("snippet_does_not_depend_on_the_query")
class SnippetOfTheQuery(Changing):
    def changed(self, document: Document, query: Query) -> Document:
        return document.replace(snippet=f"about {query.text[:20]}")


@breaks("document_does_not_depend_on_the_query")
class TitleOfTheQuery(Changing):
    def changed(self, document: Document, query: Query) -> Document:
        return document.replace(title=f"{document.title}: {query.text[:20]}")


@breaks("blank_questions_are_no_errors")
class NeedsWords(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        if not query.text.strip():
            raise ValueError("empty query")
        return await super().search(query)


@breaks("deadline_is_kept")
class TakesItsTime(Shelf):
    async def search(self, query: Query) -> Sequence[Hit]:
        if query.deadline is not None and query.deadline < monotonic() + 1:
            await asyncio.sleep(0.4)
        return await super().search(query)


@breaks("deadline_is_kept")
class LessWithADeadline(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return super().found(query)[query.deadline is not None :]


@breaks("scope_is_never_widened")
class NoScope(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return super().found(query.replace(scope=None))


@breaks("filters_are_honoured")
class NoFilters(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return super().found(query.replace(filters={}))


@breaks("labels_are_honoured")
class NoLabels(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return super().found(query.replace(labels=()))


@breaks("period_is_honoured")
class NoPeriod(Shelf):
    def found(self, query: Query) -> list[Hit]:
        return super().found(query.replace(period=None))


class Library(Shelf):
    """Keeps the laws of every ability of a source."""

    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            yield document

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        known = {
            document.id: document
            for document in self.documents
            if admits(document, Query(text="", scope=scope))
        }
        return [known[id] for id in ids if id in known]

    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        if not set(ids) & {document.id for document in self.documents}:
            return []
        return [Hit(document=d) for d in self.documents if admits(d, Query(text="", scope=scope))][:limit]

    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        shown = {d.id for d in self.documents if admits(d, Query(text="", scope=scope))}
        return LinkDegrees(degrees={id: len(shown) - 1 for id in ids if id in shown}, mean=1.0)

    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        facets = self.counted(self.found(query), dimensions)
        return [
            each for name in dimensions for each in [f for f in facets if f.dimension == name][: query.limit]
        ]

    def counted(self, hits: Sequence[Hit], dimensions: Sequence[str]) -> list[Facet]:
        counts = Counter((name, str(getattr(hit.document, name))) for hit in hits for name in dimensions)
        return [
            Facet(dimension=name, value=value, count=count)
            for name in dimensions
            for (dimension, value), count in counts.most_common()
            if dimension == name
        ]

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        shown = [document for document in self.documents if admits(document, Query(text="", scope=scope))]
        counts = {term: sum(term.casefold() in d.content.casefold().split() for d in shown) for term in terms}
        return TermStatistics(documents=len(shown), average_length=9.0, frequencies=counts)

    async def version(self) -> str:
        return "1"


@breaks("crawl_lists_every_document_once")
class CrawlsAPart(Library):
    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents[1:]:
            yield document


@breaks("crawl_lists_every_document_once")
class CrawlsTwice(Library):
    async def crawl(self) -> AsyncIterator[Document]:
        for document in (*self.documents, self.documents[0]):
            yield document


@breaks("crawl_says_the_same_twice")
class CrawlsWithTheTime(Library):
    async def crawl(self) -> AsyncIterator[Document]:
        for document in self.documents:
            yield document.replace(metadata={"read": monotonic()})


@breaks("fetch_returns_what_was_found")
class FetchesInItsOrder(Library):
    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        return sorted(await super().fetch(ids, scope), key=lambda document: document.id)


@breaks("fetch_returns_what_was_found")
class FetchesForAnyone(Library):
    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        return await super().fetch(ids, None)


@breaks("neighbours_keep_limit_and_scope")
class NeighboursWithoutLimit(Library):
    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        return await super().neighbours(ids, 100, scope)


@breaks("neighbours_keep_limit_and_scope")
class NeighboursForAnyone(Library):
    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        return await super().neighbours(ids, limit, None)


@breaks("degrees_are_counts")
class DegreesOfStrangers(Library):
    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        counted = await super().degrees(ids, scope)
        return LinkDegrees(degrees={**dict.fromkeys(ids, 0), **counted.degrees}, mean=counted.mean)


@breaks("degrees_are_counts")
class MoreLinksInAScope(Library):
    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        counted = await super().degrees(ids, None)
        return LinkDegrees(
            degrees={id: many + (scope is not None) for id, many in counted.degrees.items()}, mean=1.0
        )


@breaks("degrees_are_counts")
class MeanOfNothing(Library):
    async def degrees(self, ids: Sequence[str], scope: Scope | None = None) -> LinkDegrees:
        return LinkDegrees(degrees={}, mean=float("nan"))


@breaks("facets_count_before_any_limit")
class CountsTheFirst(Library):
    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        return self.counted(await self.search(query), dimensions)


@breaks("facets_count_before_any_limit")
class CutsOverAllDimensions(Library):
    async def facets(self, query: Query, dimensions: Sequence[str]) -> Sequence[Facet]:
        return (await super().facets(query, dimensions))[: query.limit]


@breaks("statistics_are_of_the_terms_asked")
class CountsWords(Library):
    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        told = await super().statistics(terms, scope)
        return told.__class__(
            documents=1, average_length=9.0, frequencies={t: n * 10 for t, n in told.frequencies.items()}
        )


@breaks("version_is_stable")
class AnotherVersionEachTime(Library):
    async def version(self) -> str:
        return str(monotonic())


OBEYING: tuple[type[Any], ...] = (Shelf, Changing, Library)
