"""Who and what a text names: known names, and those a spaCy model or capital letters tell."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Self

from contextrouter.builtin.shared.taxonomy_concepts import Concepts
from contextrouter.builtin.shared.text_segments import run_by_length, segments
from contextrouter.builtin.transforms.keywords import names
from contextrouter.builtin.transforms.spacy_model import ReadsWithSpacy
from contextrouter.contracts import Transform
from contextrouter.model import Document, Fact

KINDS = {
    "PERSON": "person",
    "PER": "person",
    "ORG": "organization",
    "GPE": "place",
    "LOC": "place",
    "FAC": "place",
    "NORP": "group",
    "PRODUCT": "product",
    "EVENT": "event",
    "WORK_OF_ART": "work",
    "LAW": "law",
    "LANGUAGE": "language",
    "MISC": "name",
}
"""Labels of spaCy's models, and the kinds of entities they become; others (numbers, dates) name no entity."""
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}")
_READ = 100_000  # characters in which names are looked for by their capitals
IS_A = "is a"


class Entities(ReadsWithSpacy, Transform):
    """Finds the entities a text names: facts "NAME is a KIND" with their attributes, and their names in
    `metadata["entities"]`.

    `known` says of names what they are: `"Ada Lovelace" = { kind = "person", aliases = ["Lady Lovelace"],
    born = "1815" }`; other attributes than `kind` and `aliases` become facts, too, such as "Ada Lovelace born
    1815". `model` is a spaCy model that is installed, which tells persons, organizations, places and others;
    "", or one that is not installed: names are runs of capital letters in the middle of a sentence (kind
    "name"), in the first 100,000 characters. E-mail addresses are of the kind "email". `kinds` are those that
    are wanted; none: all.
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
        if isinstance(kinds, str) or not all(isinstance(each, str) and each for each in kinds):
            raise ValueError(f'kinds {kinds!r} is not a list of kinds. Give one such as ["person", "place"].')
        if limit < 1:
            raise ValueError(f"limit {limit!r} is too small. Give 1 or more.")
        super().__init__(model)
        self.known, self.kinds, self.limit = dict(known or {}), tuple(kinds), limit
        self._aliases = Concepts({name: _aliases(name, told) for name, told in self.known.items()})

    @classmethod
    def example(cls) -> Self:
        """No model, and one known name."""
        return cls(known={"Ada Lovelace": {"kind": "person", "aliases": ["Lady Lovelace"], "born": "1815"}})

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its entities."""
        found: dict[str, str] = {}
        for name in await run_by_length(document.content, lambda: self._aliases.count(document.content)):
            if name in self.known:  # a name with " / " in it was taken for a path
                found[name] = str(self.known[name].get("kind") or "name")
        told = {alias.casefold() for name in found for alias in (name, *_aliases(name, self.known[name]))}
        async for name, kind in self._told(document.content):
            if name.casefold() not in told:
                found.setdefault(name, kind)
        wanted = [(name, kind) for name, kind in found.items() if not self.kinds or kind in self.kinds][
            : self.limit
        ]
        if not wanted:
            return [document]
        facts = [fact for name, kind in wanted for fact in self._facts(name, kind)]
        metadata = {**document.metadata, "facts": (*document.metadata.get("facts", ()), *facts)}
        metadata["entities"] = [name for name, _ in wanted]
        return [document.replace(metadata=metadata)]

    async def _told(self, text: str) -> AsyncIterator[tuple[str, str]]:
        """Names and kinds, in the order of the text: the model's, or those with capital letters; and
        addresses.
        """
        read = await self.read_with_model(text)
        if read is None:
            for name in await run_by_length(text, lambda: names(text[:_READ])):
                yield name, "name"
        else:
            for part in read:
                for entity in part.ents:
                    if entity.label_ in KINDS and (name := _plain(entity.text)):
                        yield name, KINDS[entity.label_]
        for segment in segments(text) if "@" in text else ():
            for address in _EMAIL.findall(segment):
                yield address, "email"

    def _facts(self, name: str, kind: str) -> Iterator[Fact]:
        told = self.known.get(name, {})
        certain = 1.0 if told else 0.5
        yield Fact(subject=name, predicate=IS_A, object=kind, confidence=certain)
        for key, value in told.items():
            if key not in ("kind", "aliases"):
                for each in value if isinstance(value, list) else [value]:
                    yield Fact(subject=name, predicate=key, object=str(each), confidence=certain)


def _aliases(name: str, told: Mapping[str, Any]) -> list[str]:
    given = told.get("aliases", [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValueError(
            f'aliases {given!r} of {name!r} is not a list of names. Give one such as ["Lady Lovelace"].'
        )
    return given


def _plain(name: str) -> str:
    """A name on one line, without the article and the possessive around it."""
    return re.sub(r"^(?:the|an?)\s+|['’]s$", "", " ".join(name.split()), flags=re.I)
