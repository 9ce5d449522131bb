"""Laws of ranking stages and rerankers: envelopes, provenance, finite scores, time, order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from contextrouter.contracts import Stage, StageContext
from contextrouter.errors import ContractError
from contextrouter.model import Envelope
from contextrouter.runtime.plugin_checks import check_switch
from contextrouter.testing import measure, texts
from contextrouter.testing.builders import stage_context
from contextrouter.testing.exercise import odd_documents
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

_Given = tuple[tuple[Envelope, ...], StageContext, list[Envelope]]


async def _apply_inputs(subject: Subject, plugin: Any) -> list[tuple[_Given, Sequence[Envelope]]]:
    """Return the inputs with the answers that are envelopes. Other answers break the first law."""
    results: list[tuple[_Given, Sequence[Envelope]]] = []
    for item in await subject.exercise.inputs(subject, plugin):
        returned = await plugin.apply(item[0], item[1])
        answer = returned if isinstance(returned, list | tuple) else ()
        results.append((item, [envelope for envelope in answer if isinstance(envelope, Envelope)]))
    return results


@law
async def answers_are_envelopes(subject: Subject) -> None:
    """apply() returns a list or tuple of Envelopes."""
    async with subject.open_plugin() as plugin:
        for item in await subject.exercise.inputs(subject, plugin):
            returned = await plugin.apply(item[0], item[1])
            if not isinstance(returned, list | tuple) or not all(
                isinstance(envelope, Envelope) for envelope in returned
            ):
                raise Broken(f"it returned {shorten(returned)}")


@law
async def nothing_enters_unsealed(subject: Subject) -> None:
    """Every envelope returned was given, or made by `context.seal`: its provenance is carried on as it is."""
    async with subject.open_plugin() as plugin:
        for (envelopes, _, sealed), returned in await _apply_inputs(subject, plugin):
            provenances = {id(envelope.provenance) for envelope in (*envelopes, *sealed)}
            stranger = next(
                (envelope for envelope in returned if id(envelope.provenance) not in provenances), None
            )
            if stranger is not None:
                raise Broken(f"{stranger.document.id!r} has a provenance that the router did not give it")


@law
async def no_envelope_comes_twice(subject: Subject) -> None:
    """No envelope is returned twice."""
    async with subject.open_plugin() as plugin:
        for _, returned in await _apply_inputs(subject, plugin):
            marks = [id(envelope.provenance) for envelope in returned]
            if len(set(marks)) < len(marks):
                raise Broken(f"{len(marks) - len(set(marks))} of {len(marks)} envelopes were returned before")


@law
async def envelope_keeps_its_document(subject: Subject) -> None:
    """An envelope holds the document it held: same id, same labels, url and source of the text."""
    async with subject.open_plugin() as plugin:
        for (envelopes, _, sealed), returned in await _apply_inputs(subject, plugin):
            before = {id(envelope.provenance): envelope.document for envelope in (*envelopes, *sealed)}
            for envelope in returned:
                old, new = before.get(id(envelope.provenance), envelope.document), envelope.document
                for name in ("id", "url", "tenant", "compartment", "sensitivity"):
                    if getattr(old, name) != getattr(new, name):
                        raise Broken(f"{name} of {old.id!r} became {getattr(new, name)!r}")


@law
async def numbers_are_finite(subject: Subject) -> None:
    """Scores and signals are finite numbers, `normalized` lies between 0 and 1."""
    async with subject.open_plugin() as plugin:
        for _, returned in await _apply_inputs(subject, plugin):
            for envelope in returned:
                numbers = {"score": envelope.score, "normalized": envelope.normalized, **envelope.signals}
                wrong = next((name for name, value in numbers.items() if not math.isfinite(value)), None)
                if wrong or not 0 <= envelope.normalized <= 1:
                    name = wrong or "normalized"
                    raise Broken(f"{name} of {envelope.document.id!r} is {numbers[name]!r}")


@law
async def nothing_in_nothing_out(subject: Subject) -> None:
    """No envelopes are no error."""
    async with subject.open_plugin() as plugin:
        returned = await plugin.apply((), stage_context("moon and tides"))
        answer = returned if isinstance(returned, list | tuple) else ()
        if any(not isinstance(envelope, Envelope) for envelope in answer):
            raise Broken(f"for no envelopes it returned {shorten(returned)}")


@law
async def time_is_the_request_s(subject: Subject) -> None:
    """A stage takes the time from `context.now` and reads no other clock, so that a request can be
    repeated.
    """
    async with subject.open_plugin() as plugin:
        for item in await subject.exercise.inputs(subject, plugin):
            with measure.clock_readings() as readings:
                await plugin.apply(item[0], item[1])
            if readings:
                raise Broken(f"it called {readings[0]}")


@law
async def notes_are_texts(subject: Subject) -> None:
    """What a stage leaves with `context.note` is a text, and not blank: it stands in the trace."""
    async with subject.open_plugin() as plugin:
        for envelopes, context, _ in await subject.exercise.inputs(subject, plugin):
            notes: list[Any] = []
            await plugin.apply(envelopes, msgspec.structs.replace(context, note=notes.append))
            wrong = next((note for note in notes if not isinstance(note, str) or not note.strip()), None)
            if wrong is not None:
                raise Broken(f"it left the note {wrong!r}")


@law
async def switch_is_a_key_of_rag(subject: Subject) -> None:
    """`switch` is a true-or-false key of `[rag]`, or "": then no key turns the stage off."""
    try:
        check_switch(cast(Stage, subject.make()), subject.cls.__name__)
    except ContractError as error:
        raise Broken(str(error)) from None


LAWS: tuple[Law, ...] = (
    answers_are_envelopes,
    nothing_enters_unsealed,
    no_envelope_comes_twice,
    envelope_keeps_its_document,
    numbers_are_finite,
    nothing_in_nothing_out,
    time_is_the_request_s,
    notes_are_texts,
    switch_is_a_key_of_rag,
)


async def _scores(plugin: Any, question: str = "moon and tides of the sea") -> tuple[list[Any], list[Any]]:
    library = texts.library()
    return library, list(await plugin.score(question, library))


@law
async def one_score_per_document(subject: Subject) -> None:
    """score() returns one number for each document, for one document as for many."""
    async with subject.open_plugin() as plugin:
        library, scores = await _scores(plugin)
        alone = list(await plugin.score("moon", library[:1]))
        if len(scores) != len(library) or len(alone) != 1:
            raise Broken(f"{len(library)} documents got {len(scores)} scores, one got {len(alone)}")


@law
async def reranker_scores_are_finite(subject: Subject) -> None:
    """Every score is a finite number, for odd documents and questions too."""
    async with subject.open_plugin() as plugin:
        odd = odd_documents()
        for question in ("moon", "", "🌕", "no such words anywhere"):
            for document, score in zip(odd, await plugin.score(question, odd), strict=False):
                if not math.isfinite(score):
                    raise Broken(f"{document.id!r} has the score {score!r} for {question!r}")


@law
async def score_goes_with_its_document(subject: Subject) -> None:
    """Documents given in another order get the same scores."""
    async with subject.open_plugin() as plugin:
        library, scores = await _scores(plugin)
        turned = list(await plugin.score("moon and tides of the sea", library[::-1]))[::-1]
        for document, score, reordered in zip(library, scores, turned, strict=False):
            if math.isfinite(score) and abs(score - reordered) > 1e-4 * max(1.0, abs(score)):
                raise Broken(
                    f"{document.id!r} has the score {score!r}, and {reordered!r} when asked in another order"
                )


@law
async def pointwise_scores_stand_alone(subject: Subject) -> None:
    """With `pointwise`, a document alone has the score that it has beside others: each is kept for itself."""
    async with subject.open_plugin() as plugin:
        library, scores = await _scores(plugin) if plugin.pointwise else ([], [])
        for document, score in zip(library, scores, strict=False):
            (alone,) = await plugin.score("moon and tides of the sea", [document])
            if abs(alone - score) > 1e-3 * max(1.0, abs(score)):
                raise Broken(f"{document.id!r} has the score {score!r} beside others, and alone {alone!r}")


@law
async def reranker_keeps_every_document(subject: Subject) -> None:
    """apply() passes all envelopes on, those without text last, in the order they had."""
    async with subject.open_plugin() as plugin:
        for (envelopes, _, _), returned in await _apply_inputs(subject, plugin):
            blank = [e.document.id for e in envelopes if not e.document.content.strip()]
            if len(returned) < len(envelopes):
                raise Broken(f"{len(envelopes)} envelopes went in, {len(returned)} came out")
            if blank and [e.document.id for e in returned][-len(blank) :] != blank:
                raise Broken(f"those without text, {blank}, are not last")


OF_RERANKERS: tuple[Law, ...] = (
    one_score_per_document,
    reranker_scores_are_finite,
    score_goes_with_its_document,
    pointwise_scores_stand_alone,
    reranker_keeps_every_document,
)
