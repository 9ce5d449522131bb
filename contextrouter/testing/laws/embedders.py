"""Laws of embedders: model name, dimensions, unit length, finite numbers, batches."""

from __future__ import annotations

import math
from typing import Any

from contextrouter.errors import ContractError
from contextrouter.runtime.plugin_checks import check_embedder
from contextrouter.testing import texts
from contextrouter.testing.kit import Law, law
from contextrouter.testing.messages import Broken, shorten
from contextrouter.testing.subject import Subject

CLOSE = 2e-3
"""How much a number of a vector may vary. A batch adds in another order than a single text."""


def _texts() -> list[str]:
    return [*(document.content for document in texts.library()), "a", "月と潮汐", "moon " * 300]


@law
async def model_is_named(subject: Subject) -> None:
    """An open embedder has a `model`, its name and version, and `dimensions` above 0."""
    async with subject.open_plugin() as plugin:
        if not (isinstance(plugin.model, str) and plugin.model.strip()):
            raise Broken(f"model is {plugin.model!r}")
        if not (isinstance(plugin.dimensions, int) and plugin.dimensions > 0):
            raise Broken(f"dimensions is {plugin.dimensions!r}")


@law
async def weights_are_numbers(subject: Subject) -> None:
    """`score_weights` and `leg_weights` map legs to finite numbers, 0 or more; `unrelated` is a cosine below
    1.
    """
    async with subject.open_plugin() as plugin:
        try:
            check_embedder(plugin, subject.cls.__name__)
        except ContractError as error:
            raise Broken(str(error)) from None


@law
async def one_vector_per_text(subject: Subject) -> None:
    """embed() returns one vector for each text, blank ones too, in order, as questions and as documents."""
    async with subject.open_plugin() as plugin:
        batches = [*(_texts()[:count] for count in (1, 2, 11)), ["moon", *texts.BLANK, "tides"]]
        for query in (False, True):
            for batch in batches:
                vectors = await plugin.embed(batch, query=query)
                if len(vectors) != len(batch):
                    raise Broken(f"{len(batch)} texts got {len(vectors)} vectors")


@law
async def vectors_have_the_dimensions(subject: Subject) -> None:
    """Every vector is `dimensions` long, also the one of a blank text."""
    async with subject.open_plugin() as plugin:
        for vector in await plugin.embed([*_texts(), *texts.BLANK]):
            if len(vector) != plugin.dimensions:
                raise Broken(f"a vector has {len(vector)} numbers where dimensions = {plugin.dimensions}")


@law
async def vectors_have_length_one(subject: Subject) -> None:
    """Every vector has length 1; a blank text may have zeros."""
    async with subject.open_plugin() as plugin:
        batch = [*_texts(), *texts.BLANK]
        for text, vector in zip(batch, await plugin.embed(batch), strict=False):
            length = math.hypot(*map(float, vector))
            if (
                math.isfinite(length)
                and abs(length - 1) > 1e-3
                and not (length == 0 and not text.strip("\u200b \n\t\u3000"))
            ):
                raise Broken(f"the vector of {shorten(text, 40)} has length {length:.4f}")


@law
async def vectors_are_finite(subject: Subject) -> None:
    """Every number of a vector is finite."""
    async with subject.open_plugin() as plugin:
        batch = [*_texts(), *texts.BLANK, *texts.HOSTILE]
        for text, vector in zip(batch, await plugin.embed(batch), strict=False):
            if not all(math.isfinite(value) for value in vector):
                raise Broken(f"the vector of {shorten(text, 40)} has a number that is not finite")


@law
async def batch_is_as_singles(subject: Subject) -> None:
    """A text has the same vector alone and at any position of a batch."""
    async with subject.open_plugin() as plugin:
        batch = _texts()
        together = await plugin.embed(batch)
        for text, vector in zip(batch, together, strict=False):
            alone = (await plugin.embed([text]))[0]
            _close(text, vector, alone)
        for text, vector in zip(batch[::-1], await plugin.embed(batch[::-1]), strict=False):
            _close(text, vector, together[batch.index(text)])


def _close(text: str, vector: Any, reference: Any) -> None:
    apart = max((abs(float(a) - float(b)) for a, b in zip(vector, reference, strict=False)), default=0.0)
    if apart > CLOSE:
        raise Broken(f"the vector of {shorten(text, 40)} is {apart:.4f} off when embedded among others")


@law
async def no_texts_no_vectors(subject: Subject) -> None:
    """An empty list of texts raises no error and returns no vectors."""
    async with subject.open_plugin() as plugin:
        if len(await plugin.embed([])):
            raise Broken("an empty list got vectors")


@law
async def blank_texts_are_no_errors(subject: Subject) -> None:
    """Blank texts raise no error, alone or among others."""
    async with subject.open_plugin() as plugin:
        await plugin.embed(["moon", *texts.BLANK])
        await plugin.embed([""], query=True)


LAWS: tuple[Law, ...] = (
    model_is_named,
    weights_are_numbers,
    one_vector_per_text,
    vectors_have_the_dimensions,
    vectors_have_length_one,
    vectors_are_finite,
    batch_is_as_singles,
    no_texts_no_vectors,
    blank_texts_are_no_errors,
)
