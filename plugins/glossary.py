"""A connector in one file: explains the terms of a glossary that occur in the question."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from contextrouter.contracts import Connector, FilePath
from contextrouter.errors import SourceError
from contextrouter.model import Document, Hit, Query


class Glossary(Connector):
    """Answers with definitions, longest term first. `path` is a JSON or TOML file: term -> definition."""

    def __init__(self, *, path: FilePath) -> None:
        self._path, self._terms = Path(path), dict[str, str]()

    @classmethod
    def example(cls) -> Self:
        return cls(path=str(Path(__file__).parents[1] / "examples" / "glossary.toml"))

    async def open(self) -> None:
        text = await asyncio.to_thread(self._path.read_text, "utf-8")
        terms = json.loads(text) if self._path.suffix == ".json" else tomllib.loads(text)
        if not isinstance(terms, dict) or not all(isinstance(value, str) for value in terms.values()):
            raise SourceError(
                f'Glossary {str(self._path)!r} is not a table of texts; write `term = "definition"` lines.'
            )
        self._terms = dict(sorted(terms.items(), key=lambda item: -len(item[0])))

    async def search(self, query: Query) -> Sequence[Hit]:
        if query.period or query.filters or query.labels:
            return []  # definitions have no date, no metadata and no labels, so none can match
        terms = [
            term for term in self._terms if re.search(rf"(?<!\w){re.escape(term)}s?(?!\w)", query.text, re.I)
        ]
        return [
            Hit(document=Document(id=term, title=term, content=self._terms[term]))
            for term in terms[: max(0, query.limit)]
        ]
