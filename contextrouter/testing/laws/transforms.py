"""The laws of transforms: chunkers and enrichers."""

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
"""Seconds of processor time a document of one line of a megabyte may take."""
STALL = 0.5
"""Seconds for which it may keep the event loop to itself."""


async def _transformed(subject: Subject, plugin: Any) -> list[tuple[Document, list[Document]]]:
    """Inputs with the answers that are documents."""
    done = []
    for given in await subject.exercise.inputs(subject, plugin):
        done.append((given, [each for each in await plugin.transform(given) if isinstance(each, Document)]))
    return done


@law
async def answers_are_documents(subject: Subject) -> None:
    """transform() returns a list or tuple of Documents."""
    async with subject.opened() as plugin:
        for given in await subject.exercise.inputs(subject, plugin):
            made = await plugin.transform(given)
            if not isinstance(made, list | tuple) or not all(isinstance(each, Document) for each in made):
                raise Broken(f"{given.id!r} became {shorten(made)}")


@law
async def no_text_is_lost(subject: Subject) -> None:
    """Every word, and in scripts without spaces every character, is in some document returned, its title or
    its path.
    """
    async with subject.opened() as plugin:
        for given, made in await _transformed(subject, plugin):
            kept = "\n".join("\n".join((each.content, each.title, *each.path)) for each in made)
            pieces = (
                [*given.content]
                if given.id == "unspaced"
                else [w for w in given.content.split() if any(map(str.isalnum, w))]
            )
            held = set(kept) if given.id == "unspaced" else {*kept.split()}
            lost = [piece for piece in pieces if piece.strip() and piece not in held and piece not in kept]
            if lost:
                raise Broken(
                    f"{len(lost)} of {len(pieces)} pieces of {given.id!r} are lost, the first is {lost[0]!r}"
                )


@law
async def ids_are_unique(subject: Subject) -> None:
    """Of several documents each has an id of its own."""
    async with subject.opened() as plugin:
        for given, made in await _transformed(subject, plugin):
            ids = [each.id for each in made]
            if len(set(ids)) < len(ids) or (len(ids) > 1 and not all(ids)):
                raise Broken(f"{len(ids)} documents made of {given.id!r} have {len(set(ids) - {''})} ids")


@law
async def chunks_name_their_parent(subject: Subject) -> None:
    """Of several documents each names the one it was cut from as `parent`; a single one keeps its id or names
    it.
    """
    async with subject.opened() as plugin:
        for given, made in await _transformed(subject, plugin):
            for each in made:
                if each.parent != given.id and (len(made) > 1 or each.id != given.id):
                    raise Broken(f"a document made of {given.id!r} has the parent {each.parent!r}")


@law
async def labels_are_inherited(subject: Subject) -> None:
    """Tenant, compartment, sensitivity, url and labels of the document are those of all that is made of
    it.
    """
    async with subject.opened() as plugin:
        for given, made in await _transformed(subject, plugin):
            for each in made:
                for name in ("tenant", "compartment", "sensitivity", "url"):
                    if getattr(each, name) != getattr(given, name):
                        raise Broken(
                            f"{name} {getattr(given, name)!r} of {given.id!r} became {getattr(each, name)!r}"
                        )
                if not set(given.labels) <= set(each.labels):
                    raise Broken(f"labels {given.labels!r} of {given.id!r} became {each.labels!r}")


@law
async def blank_documents_are_no_errors(subject: Subject) -> None:
    """A blank document is no error, and becomes nothing with text in it."""
    async with subject.opened() as plugin:
        for text in texts.BLANK:
            for media_type in ("text/plain", "text/markdown", "text/html", "application/json"):
                made = await plugin.transform(doc("blank", text, title="", media_type=media_type))
                if any(each.content.strip("\u200b \n\t\u3000") for each in made):
                    raise Broken(f"a blank {media_type} became {shorten(made)}")


@law
async def long_line_is_no_obstacle(subject: Subject) -> None:
    """A line of a megabyte, with spaces or without, is transformed in seconds, and other work goes on
    meanwhile.
    """
    async with subject.opened() as plugin:
        for text in ("moon tides " * 90_000, "x" * 1_000_000):
            document = doc("line", text)

            async def attempt(document: Document = document) -> float:
                started = process_time()
                stalled = await measure.stall(lambda: plugin.transform(document))
                took = process_time() - started
                return max(took, stalled) if took > SLOW else stalled

            took = await measure.least(attempt, STALL)
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
