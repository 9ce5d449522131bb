"""Laws of every plugin on the fields of its answers: each has the type that the data model says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from contextrouter.contracts import (
    Embedder,
    Reranker,
    Source,
    SupportsCrawl,
    SupportsEntities,
    SupportsFacets,
    SupportsFetch,
    SupportsGraph,
    SupportsNeighbours,
    SupportsStatistics,
    Transform,
)
from contextrouter.model import Document, Fact, Query
from contextrouter.testing import texts
from contextrouter.testing.exercise import make_query
from contextrouter.testing.kit import Law, law
from contextrouter.testing.laws.sources import hits_of
from contextrouter.testing.messages import Broken
from contextrouter.testing.subject import Subject
from contextrouter.testing.type_flaws import flaw, is_number, type_name


@law
async def fields_have_their_types(subject: Subject) -> None:
    """Every field of an answer has the type that the data model says; the router leaves out what has not."""
    async with subject.open_plugin() as plugin:
        for item in await subject.exercise.inputs(subject, plugin):
            answer = await subject.exercise.call(plugin, item)
            if isinstance(plugin, Embedder):
                for vector in answer:
                    _check_numbers(vector, "a vector holds")
            else:
                _check_answer(answer)
            if isinstance(plugin, Transform):
                _check_findings(answer)
        if isinstance(plugin, Reranker):
            _check_numbers(await plugin.score("moon", texts.library()), "a score is")


@law
async def fields_of_abilities_have_their_types(subject: Subject) -> None:
    """Every field that a method beside the required one returns has the type that the data model says."""
    async with subject.open_plugin() as plugin:
        async for answer in _answers_of_abilities(subject, plugin):
            _check_answer(answer)


async def _answers_of_abilities(subject: Subject, plugin: Any) -> AsyncIterator[Any]:
    """Yield the answers of every ability of a source or a fact source."""
    queries = await subject.exercise.inputs(subject, plugin)
    if isinstance(plugin, SupportsCrawl):
        yield [document async for document in plugin.crawl()]
    if isinstance(plugin, SupportsFacets):
        legs = plugin.legs if isinstance(plugin, Source) else ()
        question = make_query(plugin, queries[0].text, legs[0], subject) if legs else queries[0]  # type: ignore[arg-type]  # it has legs
        yield list(await plugin.facets(question, ["kind"]))
    if isinstance(plugin, SupportsStatistics):
        yield await plugin.statistics(queries[0].text.split()[:2])
    if isinstance(plugin, SupportsEntities):
        for query in queries:
            yield list(await plugin.entities(query))
    if isinstance(plugin, Source):
        answers = [await plugin.search(query) for query in queries]
        ids = [hit.document.id for answer in answers for hit in hits_of(answer)]
        if isinstance(plugin, SupportsFetch):
            yield list(await plugin.fetch(ids))
        if isinstance(plugin, SupportsNeighbours):
            yield list(await plugin.neighbours(ids, 10))
    if isinstance(plugin, SupportsGraph):
        for fact in [fact for query in queries for fact in await plugin.facts(query)]:  # type: ignore[attr-defined]  # it is a fact source
            yield list(await plugin.path(fact.subject, fact.object, Query(text="")))
            yield list(await plugin.related(fact.subject, Query(text="")))


def _check_answer(answer: Any) -> None:
    for item in answer if isinstance(answer, list | tuple) else [answer]:
        if isinstance(item, msgspec.Struct) and (message := flaw(item)):
            raise Broken(f"in a {type(item).__name__}, {message}")


def _check_findings(documents: Iterable[Any]) -> None:
    """Check the facts and problems that a transform hands on in metadata."""
    for document in documents:
        metadata = document.metadata if isinstance(document, Document) else {}
        for key, kind, words in (("facts", Fact, "a Fact"), ("problems", str, "a text")):
            items = metadata.get(key, ())
            odd = [item for item in items if not isinstance(item, kind)] if _is_list(items) else [items]
            if odd:
                raise Broken(f"metadata[{key!r}] holds {type_name(odd[0])}, not {words} in a list")


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _check_numbers(values: Iterable[Any], subject_words: str) -> None:
    for value in values:
        if not is_number(value):
            raise Broken(f"{subject_words} {type_name(value)}, not a number")


LAWS: tuple[Law, ...] = (fields_have_their_types,)
OF_ABILITIES: tuple[Law, ...] = (fields_of_abilities_have_their_types,)
