"""Entity hints: the entities that a question means by words which are no exact names, such as "my wife"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from contextrouter.contracts import Embedder, EntityMatch, SupportsEntityHints
from contextrouter.model import Query, Vector
from contextrouter.runtime.plugin_calls import as_plain, text_of

NOT_SEARCHED = "not looked for by meaning"
"""What a note says before the reason, which may be the message of a failure."""
MOST_MATCHES = 3
"""The most entities that one hint stands for."""
NEARNESS = 0.45
"""How far from unrelated to equal a cosine must be. With the shipped embedder "wife" has a cosine of .57 with
"Anna: wife of the user, lives in Berlin", "table" one of .27 with "desk: made of wood".
"""

Vectors = Callable[[str], Awaitable[Mapping[str, Vector]]]
"""Called with an embedder's name; returns hint -> vector."""


class EntityHints(NamedTuple):
    """The names that each entity of a query stands for, and what to say of those matched by meaning."""

    names: Sequence[tuple[str, ...]]
    note: str = ""

    def apply(self, query: Query) -> Query:
        """Return the query with the names in place of the hints."""
        entities = tuple(dict.fromkeys(name for names in self.names for name in names))
        return query if entities == query.entities else query.replace(entities=entities)


def finds_by_meaning(source: Any) -> bool:
    """Whether a source has an embedder whose vectors find entities."""
    return isinstance(source, SupportsEntityHints) and bool(source.embedder)


async def resolve_hints(
    source: Any, query: Query, vectors_of: Vectors, embedders: Mapping[str, Embedder]
) -> EntityHints:
    """Return the names that the entities of a query stand for in this source.

    A hint that is an exact name stands for itself, and so does one that nothing is near. Where the embedder
    or the vectors fail, the note says why, and the source is asked with the hints as they are.
    """
    plain = EntityHints([(hint,) for hint in query.entities])
    if not query.entities or not finds_by_meaning(source):
        return plain
    exact = frozenset(as_plain(await source.exact_names(query.entities, query)))
    hints = [hint for hint in dict.fromkeys(query.entities) if hint not in exact]
    if not hints:
        return plain
    try:
        vectors = await vectors_of(source.embedder)
        threshold = _threshold(source, embedders[source.embedder])
        query = query.replace(limit=MOST_MATCHES)
        matches = {
            hint: (await source.nearest_entities(vectors[hint], query, threshold=threshold))[:MOST_MATCHES]
            for hint in hints
        }
    except Exception as error:  # the names that are exact still count
        reason = "the embedder did not answer in time" if isinstance(error, TimeoutError) else text_of(error)
        return plain._replace(note=f"{_quoted(hints)} {NOT_SEARCHED}: {reason or repr(error)}")
    names = [tuple(m.name for m in matches.get(hint, ())) or (hint,) for hint in query.entities]
    return EntityHints(names, "; ".join(_name_matches(hint, matches[hint]) for hint in hints))


def _threshold(source: SupportsEntityHints, embedder: Embedder) -> float:
    if source.entity_threshold is not None:
        return source.entity_threshold
    return embedder.unrelated + NEARNESS * (1 - embedder.unrelated)


def _name_matches(hint: str, matches: Sequence[EntityMatch]) -> str:
    """Say which entities a hint stands for: `"wife" → Anna .79`."""
    near = ", ".join(f"{match.name} {match.cosine:.2f}".replace(" 0.", " .") for match in matches)
    return f'"{hint}" → {near}' if near else f'"{hint}" is no name, and no entity is near it'


def _quoted(hints: Sequence[str]) -> str:
    return ", ".join(f'"{hint}"' for hint in hints)
