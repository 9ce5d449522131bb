"""Named entity recognition: finds known names, and names by a spaCy model or by capital letters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Self

from contextrouter.builtin.shared.spacy_model import KINDS, ReadsWithSpacy, clean_name
from contextrouter.builtin.shared.taxonomy_concepts import Concepts
from contextrouter.builtin.shared.text_segments import run_by_length, segments
from contextrouter.builtin.transforms.keywords import capitalized_names
from contextrouter.contracts import Transform
from contextrouter.model import Document, Fact

_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}")
_READ = 100_000  # characters that are searched for capitalized names
IS_A = "is a"


class Entities(ReadsWithSpacy, Transform):
    """Finds the entities of a text. Writes their names to `metadata["entities"]`, and adds facts about them.

    A fact says "NAME is a KIND". `known` describes names: `"Ada Lovelace" = { kind = "person", aliases =
    ["Lady Lovelace"], born = "1815" }`. Its other attributes become facts too, such as "Ada Lovelace born
    1815". `model` is an installed spaCy model, which finds persons, organizations, places and others. With
    "", or if the model is not installed, names are runs of capitalized words inside sentences, in the first
    100,000 characters; their kind is "name". E-mail addresses have the kind "email". `kinds` limits the
    kinds; without any, all are kept. It keeps at most `limit` entities.
    """

    without_model = "entities are found by capital letters instead"

    def __init__(
        self,
        *,
        model: str = "",
        known: dict[str, dict[str, Any]] | None = None,
        kinds: Sequence[str] = (),
        limit: int = 100,
    ) -> None:
        if isinstance(kinds, str) or not all(isinstance(kind, str) and kind for kind in kinds):
            raise ValueError(f'kinds {kinds!r} is not a list of kinds. Give one such as ["person", "place"].')
        if limit < 1:
            raise ValueError(f"limit {limit!r} is too small. Give 1 or more.")
        super().__init__(model)
        self.known, self.kinds, self.limit = dict(known or {}), tuple(kinds), limit
        self._aliases = Concepts({name: _aliases(name, details) for name, details in self.known.items()})

    @classmethod
    def example(cls) -> Self:
        """Work without a model, with one known name."""
        return cls(known={"Ada Lovelace": {"kind": "person", "aliases": ["Lady Lovelace"], "born": "1815"}})

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its entities."""
        kinds: dict[str, str] = {}
        for name in await run_by_length(document.content, lambda: self._aliases.count(document.content)):
            if name in self.known:  # a name with " / " also gives its parts
                kinds[name] = str(self.known[name].get("kind") or "name")
        known_names = {
            alias.casefold() for name in kinds for alias in (name, *_aliases(name, self.known[name]))
        }
        async for name, kind in self._detect(document.content):
            if name.casefold() not in known_names:
                kinds.setdefault(name, kind)
        selected = [(name, kind) for name, kind in kinds.items() if not self.kinds or kind in self.kinds][
            : self.limit
        ]
        if not selected:
            return [document]
        facts = [fact for name, kind in selected for fact in self._facts(name, kind)]
        metadata = {**document.metadata, "facts": (*document.metadata.get("facts", ()), *facts)}
        metadata["entities"] = [name for name, _ in selected]
        return [document.replace(metadata=metadata)]

    async def _detect(self, text: str) -> AsyncIterator[tuple[str, str]]:
        """Yield names and kinds by the model or by capital letters, then e-mail addresses."""
        docs = await self.read_with_model(text)
        if docs is None:
            for name in await run_by_length(text, lambda: capitalized_names(text[:_READ])):
                yield name, "name"
        else:
            for part in docs:
                for entity in part.ents:
                    if entity.label_ in KINDS and (name := clean_name(entity.text)):
                        yield name, KINDS[entity.label_]
        for segment in segments(text) if "@" in text else ():
            for address in _EMAIL.findall(segment):
                yield address, "email"

    def _facts(self, name: str, kind: str) -> Iterator[Fact]:
        details = self.known.get(name, {})
        confidence = 1.0 if details else 0.5
        yield Fact(subject=name, predicate=IS_A, object=kind, confidence=confidence)
        for key, value in details.items():
            if key not in ("kind", "aliases"):
                for item in value if isinstance(value, list) else [value]:
                    yield Fact(subject=name, predicate=key, object=str(item), confidence=confidence)


def _aliases(name: str, details: Mapping[str, Any]) -> list[str]:
    aliases = details.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ValueError(
            f'aliases {aliases!r} of {name!r} is not a list of names. Give one such as ["Lady Lovelace"].'
        )
    return aliases
