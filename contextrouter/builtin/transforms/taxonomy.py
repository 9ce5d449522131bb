"""Taxonomy labels: labels a document with the taxonomy concepts that it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from contextrouter.builtin.shared.taxonomy_concepts import Concepts, read_taxonomy
from contextrouter.builtin.shared.text_segments import run_by_length
from contextrouter.contracts import FilePath, Transform
from contextrouter.model import Document


class Taxonomy(Transform):
    """Adds concepts to `labels` if the title, the headings or the text name them, the most frequent first.

    `concepts` maps a concept to other words for it, as in the interpreter `taxonomy`: `"AI / Machine
    Learning" = ["ml"]`. A name with " / " is a path; its broader concepts are added too. `path` is a TOML or
    JSON file with the same mapping. A concept must occur at least `minimum` times. At most `limit` concepts
    are added.
    """

    def __init__(
        self,
        *,
        concepts: dict[str, list[str]] | None = None,
        path: FilePath = "",
        minimum: int = 1,
        limit: int = 20,
    ) -> None:
        for name, value in (("minimum", minimum), ("limit", limit)):
            if value < 1:
                raise ValueError(f"{name} {value!r} is too small. Give 1 or more.")
        self.path, self.minimum, self.limit = path, minimum, limit
        self._inline_concepts = dict(concepts or {})
        self.concepts = dict(self._inline_concepts)
        self._index = Concepts(self.concepts)

    @classmethod
    def example(cls) -> Self:
        """Return a taxonomy of two concepts."""
        return cls(concepts={"Sea / Tides": ["ebb", "flood"], "Moon": ["lunar"]})

    async def open(self) -> None:
        """Read the file. Raises SettingsError if it is missing or holds no such mapping."""
        if self.path:
            self.concepts = {**read_taxonomy(Path(self.path)), **self._inline_concepts}
            self._index = Concepts(self.concepts)

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its labels. Existing labels come first."""
        text = "\n\n".join((document.title, *document.path, document.content))
        counts = await run_by_length(text, lambda: self._index.count(text))
        frequent = [concept for concept, count in counts.most_common() if count >= self.minimum]
        labels = tuple(dict.fromkeys((*document.labels, *frequent[: self.limit])))
        return [document if labels == document.labels else document.replace(labels=labels)]
