"""Taxonomy concepts of a question, as filters and for facts."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from contextrouter.builtin.shared.taxonomy_concepts import Concepts, read_taxonomy
from contextrouter.contracts import FilePath, Interpreter, InterpreterContext
from contextrouter.model import Intent
from contextrouter.text.query_syntax import drop_exclusions


class Taxonomy(Interpreter):
    """Adds to the intent the concepts whose names or other words occur in the question.

    `concepts` maps a concept to other words for it: `"AI / Machine Learning" = ["ml", "statistical
    learning"]`. A name with " / " in it is a path; its broader concepts are added with it, and each of them
    is found by its own name, too. `path` is a TOML or JSON file with the same mapping. With `as_labels` the
    concepts also become labels, which restrict the search to documents that carry them.
    """

    def __init__(
        self, *, concepts: dict[str, list[str]] | None = None, path: FilePath = "", as_labels: bool = False
    ) -> None:
        self._given, self._path, self._as_labels = dict(concepts or {}), path, as_labels
        self._concepts = Concepts(self._given)

    @classmethod
    def example(cls) -> Self:
        """Two concepts, one inside the other."""
        return cls(
            concepts={
                "AI / Machine Learning": ["statistical learning"],
                "Education": ["beginner", "beginners"],
            }
        )

    async def open(self) -> None:
        """Read the file. Raises SettingsError when it is missing or not such a mapping."""
        if self._path:
            self._concepts = Concepts({**read_taxonomy(Path(self._path)), **self._given})

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with its concepts, in the order in which the question names them; longer words
        win over shorter.
        """
        names = dict.fromkeys((*intent.concepts, *self._concepts.count(drop_exclusions(intent.text))))
        concepts = tuple(names)
        labels = tuple(dict.fromkeys((*intent.labels, *concepts))) if self._as_labels else intent.labels
        return intent.replace(concepts=concepts, labels=labels)
