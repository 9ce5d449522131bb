"""Base class of chunkers: chunk sizes in tokens, the maximum size, and the chunks with their ids."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from contextrouter.builtin.shared.places import Places
from contextrouter.builtin.transforms.chunking.boundaries import Cutter, TokenizedText, strip_blank
from contextrouter.builtin.transforms.chunking.pieces import Piece, Sizes
from contextrouter.contracts import Transform
from contextrouter.model import SEARCH_TEXT, Document
from contextrouter.runtime.threads import Threads
from contextrouter.text import tokens

_SMALL = 20_000  # characters; cutting fewer is faster than starting a thread
_DOCUMENT_METADATA = (
    "facts",
    "problems",
    "page_starts",
    "cue_starts",
    "first_line",
    SEARCH_TEXT,
)  # metadata of the document that its chunks do not all have


class Chunker(Transform):
    """Cuts a document into chunks of about `target` and at most `maximum` tokens, in order.

    A chunk has the document's fields, and `parent`, the document's id. Its own id is made of document, path,
    text and occurrence: the same text keeps its id if other parts of the document change. Its metadata has
    `start` and `end`, its place in the document's content, in characters. If it repeats a table's header,
    `header` is the place of that header, and the content is both slices in turn. In a document with pages,
    `page` is the page where the chunk starts, from 1, and `next_pages` has number and beginning of its
    further pages; in subtitles `start_seconds` is when it is said; in the text of a file `line` is its line
    there, from 1.
    Only the first chunk has the facts and problems of the document. A blank document has no chunks, but a
    blank document with facts stays.
    """

    def __init__(self, *, target: int = 512, maximum: int = 1024, overlap: int = 50) -> None:
        if overlap < 0:
            raise ValueError(f"overlap {overlap!r} is negative. Give 0 or more tokens.")
        if not overlap < target <= maximum:
            sizes = f"overlap {overlap!r}, target {target!r} and maximum {maximum!r}"
            raise ValueError(f"{sizes} are out of order. Give overlap < target <= maximum.")
        if target < 4:
            raise ValueError(
                f"target {target!r} is too small: one character can take 3 tokens. Give 4 or more."
            )
        self.target, self.maximum, self.overlap = target, maximum, overlap
        self.sizes = Sizes(target, maximum, overlap)
        self.cutter = Cutter(target, maximum, overlap)
        self._pool: Threads | None = None

    async def open(self) -> None:
        """Start the thread that cuts long documents."""
        self._pool = self._pool or Threads(1, "chunk")

    async def aclose(self) -> None:
        """Stop the thread."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the chunks of `document`. Raises MissingDependency if a needed package is missing."""
        if self._pool is None or len(document.content) <= _SMALL:
            return self.cut(document)
        return await self._pool.run(self.cut, document)

    @abstractmethod
    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Return pieces in order that cover the text. A piece that is too long is cut by length later."""

    def cut(self, document: Document) -> list[Document]:
        """Return the chunks of `document`, without a thread."""
        text = document.content
        if not text.strip():
            return [document] if document.metadata.get("facts") else []
        problems: list[str] = []
        tokenized = TokenizedText(text)
        chunks: list[Document] = []
        occurrences: Counter[tuple[tuple[str, ...], str]] = Counter()
        common, exact, places = _common_metadata(document), tokens.exact(), Places(document)
        for piece in self._fit(tokenized, self.pieces(document, tokenized, problems)):
            content = text[piece.start : piece.end]
            if piece.header:
                content = text[slice(*piece.header)] + content
            number = occurrences[piece.path, content]
            occurrences[piece.path, content] += 1
            chunk = _make_chunk(document, piece, content, number, common, places)
            if not piece.header and exact:
                chunk = chunk.replace(tokens=tokenized.count(piece.start, piece.end))
            chunks.append(chunk)
        if chunks and (extra := _first_chunk_metadata(document, problems)):
            chunks[0] = chunks[0].replace(metadata={**chunks[0].metadata, **extra})
        return chunks

    def _fit(self, tokenized: TokenizedText, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield pieces of at most `maximum` tokens, without blank lines around them.

        A header that takes more than half of `maximum` is left out.
        """
        for piece in pieces:
            header_tokens = tokenized.count(*piece.header) if piece.header else 0
            if header_tokens * 2 > self.maximum:
                piece, header_tokens = piece._replace(header=None), 0
            if tokenized.count(piece.start, piece.end) + header_tokens <= self.maximum:
                slices: Iterable[tuple[int, int]] = ((piece.start, piece.end),)
            else:
                slices = self._smaller_cutter(header_tokens).cut(tokenized, piece.start, piece.end)
            for start, end in slices:
                start, end = strip_blank(tokenized.text, start, end)
                if start < end:
                    yield piece._replace(start=start, end=end)

    def _smaller_cutter(self, header_tokens: int) -> Cutter:
        if not header_tokens:
            return self.cutter
        target = max(min(self.target, self.maximum - header_tokens) - header_tokens, 4)
        return Cutter(target, max(self.maximum - header_tokens, target), min(self.overlap, target - 1))


def _common_metadata(document: Document) -> Mapping[str, Any]:
    """Return the metadata that all chunks have. The original of a translation is that of the document."""
    own = (
        (*_DOCUMENT_METADATA, "original") if "original_language" in document.metadata else _DOCUMENT_METADATA
    )
    return {key: value for key, value in document.metadata.items() if key not in own}


def _first_chunk_metadata(document: Document, problems: Sequence[str]) -> dict[str, Any]:
    """Return the metadata that only the first chunk has."""
    metadata = {key: document.metadata[key] for key in ("facts", "problems") if key in document.metadata}
    if problems:
        metadata["problems"] = (*metadata.get("problems", ()), *problems)
    return metadata


def _make_chunk(
    document: Document, piece: Piece, content: str, number: int, common: Mapping[str, Any], places: Places
) -> Document:
    parent = document.id or document.fingerprint
    path = document.path + piece.path
    key = json.dumps([parent, path, content, number], ensure_ascii=True)
    metadata = {**common, "start": piece.start, "end": piece.end, **places.at(piece.start, piece.end)}
    if piece.header:
        metadata["header"] = list(piece.header)
    return document.replace(
        id=sha256(key.encode("ascii")).hexdigest()[:32],
        content=content,
        title=piece.title or document.title,
        path=path,
        parent=parent,
        metadata=metadata,
    )
