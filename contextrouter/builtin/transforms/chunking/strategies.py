"""Chunking transforms: one for each strategy, and `chunk`, which chooses the strategy by media type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from contextrouter.builtin.transforms.chunking.boundaries import TokenizedText
from contextrouter.builtin.transforms.chunking.chunker import Chunker
from contextrouter.builtin.transforms.chunking.code import GRAMMARS, code
from contextrouter.builtin.transforms.chunking.headings import Section, headings, join_siblings, sections
from contextrouter.builtin.transforms.chunking.paragraphs import paragraphs
from contextrouter.builtin.transforms.chunking.pieces import Piece
from contextrouter.builtin.transforms.chunking.records import records
from contextrouter.builtin.transforms.chunking.tables import csv_table, markdown_tables, rows
from contextrouter.model import Document

JSON_LINES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines")
BY_MEDIA_TYPE = {
    "text/markdown": "headings",
    "text/x-markdown": "headings",
    "application/pdf": "paragraphs",
    "text/x-rst": "paragraphs",
    "application/json": "records",
    **dict.fromkeys(JSON_LINES, "records"),
    "text/csv": "tables",
    "text/tab-separated-values": "tables",
    **dict.fromkeys(GRAMMARS, "code"),
}
"""Media type -> strategy. `fixed` cuts all other media types."""


class Fixed(Chunker):
    """Cuts any text by length, at the last end of a paragraph, sentence, line or word near the target."""

    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Return slices of about `target` tokens, which share about `overlap`."""
        return (Piece(start, end) for start, end in self.cutter.cut(tokenized, 0, len(tokenized.text)))


class Paragraphs(Chunker):
    """Cuts at paragraphs, as many as `target` allows. Cuts a paragraph above `maximum` at its sentences."""

    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Return runs of paragraphs. Each repeats the last paragraphs of the run before, within `overlap`."""
        return paragraphs(tokenized, self.sizes)


class Headings(Chunker):
    """Cuts Markdown at its headings H1, H2 and H3, which become the path of the chunk.

    A section longer than `target` is cut by length; one much shorter is joined with its sibling under the
    same heading, whose path both have then. If the document has no title, its first H1 is the title of its
    chunks. A table stays whole if it fits in a chunk. Else each piece repeats its header and separator.
    """

    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Yield sections, and parts of long sections. Raises MissingDependency without markdown-it-py."""
        outline = headings(tokenized.text)
        title = document.title or next((heading.text for heading in outline if heading.level == 1), "")
        for section in join_siblings(sections(tokenized.text, outline), tokenized.estimate, self.target):
            if tokenized.estimate(section.start, section.end) <= min(
                self.maximum, self.target + self.target // 4
            ):
                yield Piece(section.start, section.end, section.path, title=title)
            else:
                yield from (piece._replace(title=title) for piece in self._long(tokenized, section))

    def _long(self, tokenized: TokenizedText, section: Section) -> Iterator[Piece]:
        """Cut the text of a long section by length, and its tables by rows."""
        position = section.start
        for table in markdown_tables(tokenized.text, section.start, section.end):
            prose = list(self._prose(tokenized, position, table[0], section.path))
            position = table[-1]
            joined = tokenized.estimate(prose[-1].start, position) if prose else 0
            if prose and (joined <= self.target or tokenized.estimate(*prose[-1][:2]) <= self.target // 4):
                yield from prose[:-1]  # the last part introduces the table and stays with it
                yield from rows(tokenized, table, 2, self.sizes, section.path, prose[-1].start)
            else:
                yield from prose
                yield from rows(tokenized, table, 2, self.sizes, section.path)
        yield from self._prose(tokenized, position, section.end, section.path)

    def _prose(
        self, tokenized: TokenizedText, start: int, end: int, path: tuple[str, ...]
    ) -> Iterator[Piece]:
        if tokenized.text[start:end].strip():
            yield from (Piece(a, b, path) for a, b in self.cutter.cut(tokenized, start, end))


class Code(Chunker):
    """Cuts source code at functions and classes. Their names become the path of the chunk.

    Imports stay with the first chunk. It knows Python, JavaScript, TypeScript, Go, Rust, Java, C and C++ by
    their media types. It cuts other texts by length.
    """

    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Return definitions, and parts of long ones. Raises MissingDependency without the extra `code`."""
        return code(tokenized, self.sizes, media_type(document))


class Records(Chunker):
    """Cuts JSON and JSON Lines into a chunk for each record: an item of the array, or a line.

    A record above `maximum` is cut between its members. A single object is one chunk up to `target`. If it is
    longer, its members are the records. The `title` of a record becomes the title of its chunk.
    """

    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Return records. A text that is no JSON is cut by length, and reported."""
        return records(tokenized, self.sizes, lines=media_type(document) in JSON_LINES, problems=problems)


class Tables(Chunker):
    """Cuts CSV and TSV between rows, up to `target`. Each chunk repeats the first row of the table.

    A table of at most `maximum` tokens stays whole.
    """

    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Return runs of rows."""
        return csv_table(tokenized, self.sizes, media_type(document))


STRATEGIES: dict[str, Callable[..., Chunker]] = {
    "headings": Headings,
    "code": Code,
    "paragraphs": Paragraphs,
    "fixed": Fixed,
    "records": Records,
    "tables": Tables,
}


class Chunk(Chunker):
    """Cuts each document by the strategy for its media type.

    The strategies are `headings`, `code`, `paragraphs`, `fixed`, `records` and `tables`. `strategies` sets
    the strategy of a media type, as in `{"text/plain": "paragraphs"}`. `"*"` stands for all media types
    without a strategy; by default `fixed` cuts them. With `only`, other media types than these stay whole.
    Sizes are in tokens of the shipped tokenizer.
    """

    def __init__(
        self,
        *,
        target: int = 512,
        maximum: int = 1024,
        overlap: int = 50,
        strategies: dict[str, str] | None = None,
        only: Sequence[str] = (),
    ) -> None:
        super().__init__(target=target, maximum=maximum, overlap=overlap)
        if isinstance(only, str) or not all(isinstance(name, str) and "/" in name for name in only):
            raise ValueError(f'only {only!r} is not a list of media types. Give one such as ["text/csv"].')
        self.only = tuple(name.lower() for name in only)
        self.strategies = dict(strategies or {})
        for content_type, name in self.strategies.items():
            if name not in STRATEGIES:
                names = ", ".join(STRATEGIES)
                raise ValueError(f"Strategy {name!r} for {content_type!r} is not known. Give one of {names}.")
        self._by = {
            **BY_MEDIA_TYPE,
            **{content_type.lower(): name for content_type, name in self.strategies.items()},
        }
        self._chunkers = {
            name: chunker(target=target, maximum=maximum, overlap=overlap)
            for name, chunker in STRATEGIES.items()
        }

    def cut(self, document: Document) -> list[Document]:
        """Return the chunks of `document`; the document itself if `only` leaves its media type out."""
        if self.only and media_type(document) not in self.only:
            return [document]
        return super().cut(document)

    def strategy(self, document: Document) -> Chunker:
        """Return the chunker for a document."""
        return self._chunkers[self._by.get(media_type(document)) or self._by.get("*", "fixed")]

    def pieces(self, document: Document, tokenized: TokenizedText, problems: list[str]) -> Iterable[Piece]:
        """Return the pieces of the document's strategy."""
        return self.strategy(document).pieces(document, tokenized, problems)


def media_type(document: Document) -> str:
    """Return the media type in small letters, without parameters."""
    return document.media_type.partition(";")[0].strip().lower()
