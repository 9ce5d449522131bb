"""Laws of sources, the providers and connectors: hits, scores, ids, deadlines, scopes, filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from time import monotonic
from typing import Any

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import SourceTimeout
from contextrouter.model import Document, Hit, Period, Query
from contextrouter.scope import SHARED, Scope
from contextrouter.testing import measure
from contextrouter.testing.exercise import make_query
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject
from contextrouter.testing.texts import BLANK

LATE = 0.25
"""Seconds by which an answer may miss its deadline."""
_LONG_AGO = Period(end=datetime(1971, 1, 1))


async def _ask(subject: Subject, plugin: Any, **fields: Any) -> list[tuple[Query, Sequence[Hit]]]:
    """Return each question on each leg, with its hits. Other answers break the law `answers_are_hits`."""
    return [(query, hits_of(answer)) for query, answer in await _answers(subject, plugin, **fields)]


async def _answers(subject: Subject, plugin: Any, **fields: Any) -> list[tuple[Query, Any]]:
    """Return each question on each leg, with its answer as it is."""
    inputs = [query.replace(**fields) for query in await subject.exercise.inputs(subject, plugin)]
    return [(query, await plugin.search(query)) for query in inputs]


def hits_of(answer: Any) -> list[Hit]:
    """Return the hits of an answer."""
    return [hit for hit in answer if isinstance(hit, Hit)] if isinstance(answer, list | tuple) else []


@law
async def legs_are_named(subject: Subject) -> None:
    """`legs` holds at least one name, none twice, and all of `vector_legs`."""
    async with subject.open_plugin() as plugin:
        legs = list(plugin.legs)
        if isinstance(plugin.legs, str) or not legs or not all(isinstance(leg, str) and leg for leg in legs):
            raise Broken(f"legs is {shorten(plugin.legs)}")
        if len(set(legs)) < len(legs) or not set(plugin.vector_legs) <= set(legs):
            raise Broken(f"legs are {legs}, vector_legs {list(plugin.vector_legs)}")


@law
async def example_has_answers(subject: Subject) -> None:
    """Some question finds something on each leg; `example_questions` names some where the kit cannot
    guess.
    """
    async with subject.open_plugin() as plugin:
        answers = await _answers(subject, plugin)
        silent = [leg for leg in plugin.legs if not any(hits for query, hits in answers if query.leg == leg)]
        if silent:
            questions = ", ".join(shorten(text, 40) for text in subject.active_questions)
            raise Broken(
                f"leg {silent[0]!r} found nothing for {questions}; name questions with answers in"
                " `example_questions`"
            )


@law
async def answers_are_hits(subject: Subject) -> None:
    """search() returns a list or tuple of Hits around Documents."""
    async with subject.open_plugin() as plugin:
        answers = await _answers(subject, plugin)
        answers += await _answers(subject, plugin, labels=("no such label",))
        for query, hits in answers:
            if not isinstance(hits, list | tuple) or not all(isinstance(hit, Hit) for hit in hits):
                raise Broken(f"{shorten(query.text)} on {query.leg!r} was answered with {shorten(hits)}")


@law
async def no_more_than_the_limit(subject: Subject) -> None:
    """At most `query.limit` hits come back, for any limit from 0."""
    async with subject.open_plugin() as plugin:
        for limit in (0, 1, 2, 1000):
            for query, hits in await _ask(subject, plugin, limit=limit):
                if len(hits) > limit:
                    raise Broken(
                        f"{len(hits)} hits for {shorten(query.text)} on {query.leg!r} with limit {limit}"
                    )


@law
async def best_come_first(subject: Subject) -> None:
    """Scores never rise down a list, and a smaller limit returns its beginning."""
    async with subject.open_plugin() as plugin:
        for query, hits in await _ask(subject, plugin):
            scores = [hit.score for hit in hits if hit.score is not None]
            if any(low < high for low, high in pairwise(scores)):
                raise Broken(f"scores of {shorten(query.text)} on {query.leg!r} are {scores}")
            single = hits_of(await plugin.search(query.replace(limit=1)))
            if hits and single and single[0].document.id != hits[0].document.id:
                raise Broken(
                    f"with limit 1 {single[0].document.id!r} is best, with {query.limit}"
                    f" {hits[0].document.id!r}"
                )


@law
async def scores_are_finite(subject: Subject) -> None:
    """A score is a finite number, or None."""
    async with subject.open_plugin() as plugin:
        for query, hits in await _ask(subject, plugin):
            for hit in hits:
                if hit.score is not None and not (
                    isinstance(hit.score, int | float) and math.isfinite(hit.score)
                ):
                    raise Broken(f"{hit.document.id!r} has the score {hit.score!r} on {query.leg!r}")


@law
async def scores_are_in_their_range(subject: Subject) -> None:
    """Scores lie within `score_range`, where it is declared."""
    async with subject.open_plugin() as plugin:
        for query, hits in await _ask(subject, plugin):
            declared = plugin.score_range
            scale = declared.get(query.leg) if isinstance(declared, Mapping) else declared
            if scale is None:
                continue
            low, high = scale
            outside = [
                h.score
                for h in hits
                if h.score is not None and (h.score < low - 1e-6 or h.score > high + 1e-6)
            ]
            if outside:
                raise Broken(f"score {outside[0]!r} on {query.leg!r} is outside score_range {tuple(scale)!r}")


@law
async def documents_have_ids_of_their_own(subject: Subject) -> None:
    """Every document has an id, and none comes twice in one answer."""
    async with subject.open_plugin() as plugin:
        for query, hits in await _ask(subject, plugin):
            ids = [hit.document.id for hit in hits]
            if not all(ids):
                raise Broken(f"a document of {shorten(query.text)} has no id")
            if len(set(ids)) < len(ids):
                raise Broken(
                    f"{next(i for i in ids if ids.count(i) > 1)!r} comes twice for {shorten(query.text)} on"
                    f" {query.leg!r}"
                )


async def _documents(subject: Subject, plugin: Any) -> dict[str, list[tuple[Query, Document]]]:
    documents: dict[str, list[tuple[Query, Document]]] = {}
    for query, hits in await _ask(subject, plugin):
        for hit in hits:
            documents.setdefault(hit.document.id, []).append((query, hit.document))
    return documents


@law
async def one_document_has_one_id(subject: Subject) -> None:
    """A document has the same id on every leg and for every question."""
    async with subject.open_plugin() as plugin:
        ids: dict[tuple[str | None, str, str], str] = {}
        for id, versions in (await _documents(subject, plugin)).items():
            for query, document in versions:
                key = (document.tenant, document.url or document.title, document.content)
                if ids.setdefault(key, id) != id:
                    raise Broken(f"{ids[key]!r} is called {id!r} on {query.leg!r}")


@law
async def snippet_does_not_depend_on_the_query(subject: Subject) -> None:
    """A document's snippet is the same for every query; excerpts for a query are `highlights`."""
    async with subject.open_plugin() as plugin:
        for id, versions in (await _documents(subject, plugin)).items():
            snippets = {document.snippet: query.text for query, document in versions}
            if len(snippets) > 1:
                pair = [
                    f"{shorten(snippet, 40)} for {shorten(text, 40)}" for snippet, text in snippets.items()
                ][:2]
                raise Broken(f"{id!r} has the snippet {', and '.join(pair)}")


@law
async def document_does_not_depend_on_the_query(subject: Subject) -> None:
    """Every other field of a document is also the same on every leg and for every query."""
    async with subject.open_plugin() as plugin:
        for id, versions in (await _documents(subject, plugin)).items():
            reference = versions[0][1]
            for query, document in versions[1:]:
                differing = [
                    f for f in Document.__struct_fields__ if getattr(reference, f) != getattr(document, f)
                ]
                if differing and differing != ["snippet"]:
                    name = next(f for f in differing if f != "snippet")
                    raise Broken(f"{name} of {id!r} is another for {shorten(query.text)} on {query.leg!r}")


@law
async def blank_questions_are_no_errors(subject: Subject) -> None:
    """A blank question raises no error; a text leg of a store finds nothing for it."""
    async with subject.open_plugin() as plugin:
        for text in (*BLANK, "the of and"):
            for leg in plugin.legs:
                hits = await plugin.search(make_query(plugin, text, leg, subject))
                if (
                    hits
                    and text.isspace()
                    and isinstance(plugin, SupportsUpsert)
                    and leg not in plugin.vector_legs
                ):
                    raise Broken(f"{text!r} on {leg!r} found {hits[0].document.id!r}")


@law
async def deadline_is_kept(subject: Subject) -> None:
    """A source answers by `query.deadline` or raises SourceTimeout; a distant deadline changes no answer."""
    async with subject.open_plugin() as plugin:
        inputs = await subject.exercise.inputs(subject, plugin)
        calm = [subject.summarize(await plugin.search(query)) for query in inputs]
        timed = [subject.summarize(await plugin.search(q.replace(deadline=monotonic() + 30))) for q in inputs]
        if calm != timed:
            raise Broken("with a deadline 30 s away the answer is another than with none")
        for seconds in (0.05, -1.0):
            took = await measure.shortest(lambda seconds=seconds: _overtime(plugin, inputs[0], seconds), LATE)  # type: ignore[misc]  # mypy cannot infer a lambda that has a default
            if took > LATE:
                raise Broken(f"the answer came {took:.2f} s after a deadline that was {seconds:g} s away")


async def _overtime(plugin: Any, query: Query, seconds: float) -> float:
    """Return the seconds by which an answer is late."""
    deadline = monotonic() + seconds
    with suppress(SourceTimeout):
        await plugin.search(query.replace(deadline=deadline))
    return monotonic() - max(deadline, deadline - seconds)


@law
async def scope_is_never_widened(subject: Subject) -> None:
    """No leg returns a document that the scope forbids; a document without a tenant belongs to its source."""
    async with subject.open_plugin() as plugin:
        labelled = {hit.document.tenant for _, hits in await _ask(subject, plugin) for hit in hits}
        tenants = {None, "kit-tenant", *labelled} - {SHARED}
        for scope in (
            Scope(tenant=tenant, ceiling=ceiling) for tenant in tenants for ceiling in ("public", "internal")
        ):
            for query, hits in await _ask(subject, plugin, scope=scope):
                for hit in hits:
                    document = hit.document
                    if not scope.allows(
                        document if document.tenant else document.replace(tenant=scope.tenant)
                    ):
                        raise Broken(
                            f"{document.id!r} came back on {query.leg!r} in the scope {shorten(scope, 120)}"
                        )


@law
async def filters_are_honoured(subject: Subject) -> None:
    """A search returns only what passes `query.filters`, by document fields and by metadata keys."""
    async with subject.open_plugin() as plugin:
        for name in ("kind", "no_such_key"):
            for query, hits in await _ask(subject, plugin, filters={name: "no such value"}):
                if hits:
                    raise Broken(
                        f"{hits[0].document.id!r} came back on {query.leg!r} though {name} is not 'no such"
                        " value'"
                    )


@law
async def labels_are_honoured(subject: Subject) -> None:
    """A query with labels returns only documents that have at least one of them."""
    async with subject.open_plugin() as plugin:
        for query, hits in await _ask(subject, plugin, labels=("no such label",)):
            for hit in hits:
                if "no such label" not in hit.document.labels:
                    raise Broken(
                        f"{hit.document.id!r} came back on {query.leg!r} with the labels"
                        f" {shorten(hit.document.labels)}"
                    )


@law
async def period_is_honoured(subject: Subject) -> None:
    """A search returns no document dated outside `query.period`."""
    async with subject.open_plugin() as plugin:
        for query, hits in await _ask(subject, plugin, period=_LONG_AGO):
            for hit in hits:
                moment = hit.document.updated_at
                if moment is not None and not _LONG_AGO.contains(moment):
                    raise Broken(
                        f"{hit.document.id!r} of {moment:%Y-%m-%d} came back on {query.leg!r} for what was"
                        " before 1971"
                    )


@law
async def phrases_are_honoured(subject: Subject) -> None:
    """On each of `phrase_legs`, a search returns no document without a phrase that the query requires."""
    async with subject.open_plugin() as plugin:
        legs = [leg for leg in plugin.legs if leg in plugin.phrase_legs]
        for query, hits in await _ask(subject, plugin, required=(("no such phrase anywhere",),)):
            if hits and query.leg in legs:
                raise Broken(
                    f"{hits[0].document.id!r} came back on {query.leg!r} without the phrase; apply"
                    " `query.required`, or set `phrase_legs = ()`"
                )


LAWS: tuple[Law, ...] = (
    legs_are_named,
    example_has_answers,
    answers_are_hits,
    no_more_than_the_limit,
    best_come_first,
    scores_are_finite,
    scores_are_in_their_range,
    documents_have_ids_of_their_own,
    one_document_has_one_id,
    snippet_does_not_depend_on_the_query,
    document_does_not_depend_on_the_query,
    blank_questions_are_no_errors,
    deadline_is_kept,
    scope_is_never_widened,
    filters_are_honoured,
    labels_are_honoured,
    period_is_honoured,
    phrases_are_honoured,
)
