"""Cuts documents into chunks: Markdown at its headings, any text at paragraphs, sentences, words, and never above a maximum."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from contextrouter.builtin.transforms.cutting import Cutter, shrunk
from contextrouter.builtin.transforms.headings import Section, headings, sections
from contextrouter.contracts import Transform
from contextrouter.model import Document
from contextrouter.threads import Threads

_MARKDOWN = ("text/markdown", "text/x-markdown")
_SMALL = 20_000  # characters that are cut faster than a thread is woken
_WHOLE = ("facts", "problems")  # metadata that belongs to the document, not to each of its chunks


class Chunk(Transform):
    """One document -> its chunks, in order: slices of its content of about `target` tokens, none above `maximum`.

    A Markdown section (H1, H2, H3) is one chunk, or several when it is longer than `target`; its headings are the chunk's
    `path`. Other texts are cut by length alone. Slices that follow each other share about `overlap` tokens. Defaults: 512, 1024
    and 50 tokens, as in the evidence preset.

    A chunk has the document's fields, `parent` (the document's id), an id made of document, path and text (the same text gives
    the same id again), and `metadata["start"]`, `metadata["end"]`: where it lies in the document's content, in characters. Facts
    and problems in the metadata go to the first chunk alone. A blank document has no chunks, unless it carries facts: it stays.
    """

    def __init__(self, *, target: int = 512, maximum: int = 1024, overlap: int = 50) -> None:
        if overlap < 0:
            raise ValueError(f"overlap {overlap!r} is negative. Give 0 or more tokens.")
        if not overlap < target <= maximum:
            given = f"overlap {overlap!r}, target {target!r} and maximum {maximum!r}"
            raise ValueError(f"{given} are out of order. Give overlap < target <= maximum.")
        if target < 4:
            raise ValueError(f"target {target!r} is too small: one character can take 3 tokens. Give 4 or more.")
        self.target, self.maximum, self.overlap = target, maximum, overlap
        self._cutter = Cutter(target, maximum, overlap)
        self._pool: Threads | None = None

    async def open(self) -> None:
        """Start the thread that cuts long documents."""
        self._pool = self._pool or Threads(1, "chunk")

    async def aclose(self) -> None:
        """Let go of the thread."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the chunks of `document`. Raises MissingDependency for Markdown without markdown-it-py."""
        if self._pool is None or len(document.content) <= _SMALL:
            return self.cut(document)
        return await self._pool.run(self.cut, document)

    def cut(self, document: Document) -> list[Document]:
        """The chunks of `document`, without a thread."""
        text = document.content
        if not text.strip():
            return [document] if document.metadata.get("facts") else []
        markdown = document.media_type.partition(";")[0].strip().lower() in _MARKDOWN
        found = headings(text) if markdown else []
        parts = sections(text, found) if markdown else [Section(0, len(text), ())]
        title = document.title or next((heading.text for heading in found if heading.level == 1), "")
        chunks: list[Document] = []
        seen: Counter[tuple[tuple[str, ...], str]] = Counter()
        for part in parts:
            for start, end in self._cutter.cut(text, part.start, part.end):
                start, end = shrunk(text, start, end)
                if start == end:
                    continue
                content = text[start:end]
                number = seen[part.path, content]
                seen[part.path, content] += 1
                chunks.append(_chunk(document, part.path, content, number, title, start, not chunks))
        return chunks


def _chunk(
    document: Document, path: tuple[str, ...], content: str, number: int, title: str, start: int, first: bool
) -> Document:
    inherited: Mapping[str, Any] = document.metadata
    if not first:
        inherited = {key: value for key, value in inherited.items() if key not in _WHOLE}
    parent = document.id or document.fingerprint
    whole_path = document.path + path
    key = json.dumps([parent, whole_path, content, number], ensure_ascii=True)
    return document.replace(
        id=sha256(key.encode("ascii")).hexdigest()[:32],
        content=content, title=title, path=whole_path, parent=parent,
        metadata={**inherited, "start": start, "end": start + len(content)},
    )  # fmt: skip
