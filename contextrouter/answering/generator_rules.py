"""Rules of generators: which one alone may read a context, by its content, and which one only quotes."""

from __future__ import annotations

from collections.abc import Mapping

from contextrouter.errors import RequestRefused
from contextrouter.model import Context
from contextrouter.settings import Settings

FALLBACK = "extractive"
"""The generator that writes where another one fails: it needs nothing from outside."""
NO_TASK = "No generator is set that could write this; `extractive` quotes documents."


def quotes(settings: Settings, name: str) -> bool:
    """Whether a generator is the one that quotes documents, and writes nothing of its own."""
    table = settings.generators.get(name)
    return (name if table is None else table.use) == FALLBACK


def bound_generator(rules: Mapping[str, str], context: Context) -> str | None:
    """Return the generator that alone may read this context; None: no rule binds it.

    `rules` are compartments with their generators. Every document, fact and entity of the context counts.
    Raises RequestRefused where two generators would each have to read alone.
    """
    compartments = {envelope.document.compartment for envelope in context.envelopes}
    compartments |= {fact.compartment for fact in context.facts}
    compartments |= {entity.compartment for entity in context.entities}
    bound = {name: rules[name] for name in compartments if name is not None and name in rules}
    if len(set(bound.values())) > 1:
        names = " and ".join(f"{compartment!r} to {bound[compartment]!r}" for compartment in sorted(bound))
        raise RequestRefused(
            f"No generator may read all of this context: the settings bind {names}. Ask with a scope that has"
            " only one of these compartments."
        )
    return next(iter(bound.values()), None)
