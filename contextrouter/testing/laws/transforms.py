"""Laws of transforms, the chunkers and enrichers: no lost text, unique ids, parents, inherited labels."""

from __future__ import annotations

from time import process_time
from typing import Any

from contextrouter.model import Document
from contextrouter.testing import measure, texts
from contextrouter.testing.builders import doc
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

SLOW = 10.0
"""Seconds of processor time that a line of a megabyte may take."""
STALL = 0.5
"""Seconds for which a transform may keep the event loop to itself."""


async def _transform_inputs(subject: Subject, plugin: Any) -> list[tuple[Document, list[Document]]]:
    """Return the inputs with the answers that are documents."""
    results = []
    for document in await subject.exercise.inputs(subject, plugin):
        results.append(
            (document, [part for part in await plugin.transform(document) if isinstance(part, Document)])
        )
    return results


@law
async def answers_are_documents(subject: Subject) -> None:
    """transform() returns a list or tuple of Documents."""
    async with subject.open_plugin() as plugin:
        for document in await subject.exercise.inputs(subject, plugin):
            parts = await plugin.transform(document)
            if not isinstance(parts, list | tuple) or not all(isinstance(part, Document) for part in parts):
                raise Broken(f"{document.id!r} became {shorten(parts)}")


@law
async def no_text_is_lost(subject: Subject) -> None:
    """Every word, and without spaces every character, is in a returned document, its title or its path."""
    async with subject.open_plugin() as plugin:
        for document, parts in await _transform_inputs(subject, plugin):
            output = "\n".join("\n".join((part.content, part.title, *part.path)) for part in parts)
            pieces = (
                [*document.content]
                if document.id == "unspaced"
                else [w for w in document.content.split() if any(map(str.isalnum, w))]
            )
            words = set(output) if document.id == "unspaced" else {*output.split()}
            lost = [piece for piece in pieces if piece.strip() and piece not in words and piece not in output]
            if lost:
                raise Broken(
                    f"{len(lost)} of {len(pieces)} pieces of {document.id!r} are lost,"
                    f" the first is {lost[0]!r}"
                )


@law
async def ids_are_unique(subject: Subject) -> None:
    """Several documents made from one have different ids."""
    async with subject.open_plugin() as plugin:
        for document, parts in await _transform_inputs(subject, plugin):
            ids = [part.id for part in parts]
            if len(set(ids)) < len(ids) or (len(ids) > 1 and not all(ids)):
                raise Broken(f"{len(ids)} documents made of {document.id!r} have {len(set(ids) - {''})} ids")


@law
async def chunks_name_their_parent(subject: Subject) -> None:
    """Several documents made from one name it as their `parent`; a single one may keep its id instead."""
    async with subject.open_plugin() as plugin:
        for document, parts in await _transform_inputs(subject, plugin):
            for part in parts:
                if part.parent != document.id and (len(parts) > 1 or part.id != document.id):
                    raise Broken(f"a document made of {document.id!r} has the parent {part.parent!r}")


@law
async def labels_are_inherited(subject: Subject) -> None:
    """Every returned document has the tenant, compartment, sensitivity, url and labels of its input."""
    async with subject.open_plugin() as plugin:
        for document, parts in await _transform_inputs(subject, plugin):
            for part in parts:
                for name in ("tenant", "compartment", "sensitivity", "url"):
                    before, after = getattr(document, name), getattr(part, name)
                    if before != after:
                        raise Broken(f"{name} {before!r} of {document.id!r} became {after!r}")
                if not set(document.labels) <= set(part.labels):
                    raise Broken(f"labels {document.labels!r} of {document.id!r} became {part.labels!r}")


@law
async def blank_documents_are_no_errors(subject: Subject) -> None:
    """A blank document raises no error, and no text comes from it."""
    async with subject.open_plugin() as plugin:
        for text in texts.BLANK:
            for media_type in ("text/plain", "text/markdown", "text/html", "application/json"):
                parts = await plugin.transform(doc("blank", text, title="", media_type=media_type))
                if any(part.content.strip("\u200b \n\t\u3000") for part in parts):
                    raise Broken(f"a blank {media_type} became {shorten(parts)}")


@law
async def long_line_is_no_obstacle(subject: Subject) -> None:
    """A line of a megabyte, with or without spaces, takes seconds and does not block the event loop."""
    async with subject.open_plugin() as plugin:
        for text in ("moon tides " * 90_000, "x" * 1_000_000):
            document = doc("line", text)

            async def attempt(document: Document = document) -> float:
                started = process_time()
                stalled = await measure.stall(lambda: plugin.transform(document))
                took = process_time() - started
                return max(took, stalled) if took > SLOW else stalled

            took = await measure.shortest(attempt, STALL)
            if took > SLOW:
                raise Broken(f"a line of a megabyte took {took:.1f} s of processor time")
            if took > STALL + 3 * await measure.idle():
                raise Broken(
                    f"a line of a megabyte kept the event loop to itself for {took:.2f} s; compute in a"
                    " thread"
                )


LAWS: tuple[Law, ...] = (
    answers_are_documents,
    no_text_is_lost,
    ids_are_unique,
    chunks_name_their_parent,
    labels_are_inherited,
    blank_documents_are_no_errors,
    long_line_is_no_obstacle,
)
