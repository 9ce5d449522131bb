"""The rule that binds compartments to generators. It follows what stands in the context, whoever asks."""

from __future__ import annotations

from collections.abc import Mapping

from contextrouter.errors import RequestRefused
from contextrouter.model import Context


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
