"""Neighbours (between selection and assembly): adjacent chunks of one document become one block. Pure.

Two chunks are neighbours if nothing but white space lies between them. Their block has the text of both in
reading order, each sentence once, and stands where the better one stood.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from contextrouter.model import Document, Envelope
from contextrouter.pipeline.envelopes import Ranking, split

GAP = 4
"""Characters that lie between two neighbours at most: blank lines, or a comma between records."""
_HEAD = 10
"""Tokens counted for the heading of a block, beside its title and heading path."""

Count = Callable[[str], int]
Fits = Callable[[Sequence[Envelope]], Collection[Envelope]]
"""Returns those of the envelopes that are in the text within the budget."""


class _Piece(NamedTuple):
    """A chunk with its place in its document."""

    rank: int
    envelope: Envelope
    start: int
    end: int
    header: int  # characters of a table's header that the chunk repeats before its own text


def merge_neighbours(
    selected: Sequence[Envelope], count: Count | None = None, fits: Fits | None = None
) -> tuple[Ranking, int]:
    """Return `selected` with neighbours merged, and about how many tokens this saves, by `count` (without it,
    0).

    The envelopes that became part of a block stand behind the live ones, each with its block's id as the
    reason. A chunk that `fits` leaves out stays alone: it would take its neighbour with it.
    """
    live, dropped = split(selected)
    chains = [chain for group in _groups(live) for chain in _chains(group)]
    if chains and fits is not None:
        fitting = {id(envelope) for envelope in fits(live)}
        groups = ([piece for piece in chain if id(piece.envelope) in fitting] for chain in chains)
        chains = [chain for group in groups for chain in _chains(group)]
    blocks: dict[int, Envelope] = {}
    merged: dict[int, Envelope] = {}
    saved = 0
    for chain in chains:
        best = min(chain, key=lambda piece: piece.rank)
        block = _block(chain, best)
        blocks[best.rank] = block
        for piece in chain:
            if piece is not best:
                name = block.document.id or block.document.url
                merged[piece.rank] = piece.envelope.drop(f"merge: is part of the block of {name!r}")
        if count is not None:
            saved += sum(count(text) + _HEAD for text in _repeats(chain))
    if not blocks:
        return Ranking(live, dropped), 0
    remaining = [blocks.get(rank, envelope) for rank, envelope in enumerate(live) if rank not in merged]
    return Ranking(remaining, [*merged.values(), *dropped]), saved


def _groups(live: Sequence[Envelope]) -> Iterator[list[_Piece]]:
    """Yield the chunks of each document in reading order, if there are several with a place."""
    groups: dict[tuple[Any, ...], list[_Piece]] = {}
    for rank, envelope in enumerate(live):
        document = envelope.document
        if document.parent and (piece := _place(rank, envelope)) is not None:
            source = envelope.provenance[0].source if envelope.provenance else ""
            labels = (document.tenant, document.compartment, document.sensitivity, document.untrusted)
            groups.setdefault((source, document.parent, *labels), []).append(piece)
    for group in groups.values():
        if len(group) > 1:
            yield sorted(group, key=lambda piece: (piece.start, piece.end))


def _place(rank: int, envelope: Envelope) -> _Piece | None:
    """Return where a chunk stands in its document; None if it does not say so, or has another text now."""
    document = envelope.document
    start, end = document.metadata.get("start"), document.metadata.get("end")
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end:
        return None
    header = len(document.content) - (end - start)
    if header and (header < 0 or "header" not in document.metadata):
        return None
    return _Piece(rank, envelope, start, end, header)


def _chains(group: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Yield the runs of neighbours among chunks in reading order; a chunk without neighbours is left out."""
    chain: list[_Piece] = []
    for piece in group:
        if chain and _is_next(chain[-1], piece):
            chain.append(piece)
            continue
        if len(chain) > 1:
            yield chain
        chain = [piece]
    if len(chain) > 1:
        yield chain


def _is_next(before: _Piece, after: _Piece) -> bool:
    overlap = before.end - after.start
    if overlap <= 0:
        return -overlap <= GAP
    if after.end <= before.end:
        return False  # it lies inside the other one: not cut by one chunker
    beginning = after.envelope.document.content[after.header :][:overlap]
    return before.envelope.document.content.endswith(beginning)


def _block(chain: Sequence[_Piece], best: _Piece) -> Envelope:
    """Return the block of neighbours: the envelope of the best one, with the text of all."""
    documents = [piece.envelope.document for piece in chain]
    text = documents[0].content
    for before, after in pairwise(chain):
        overlap = before.end - after.start
        text += "\n" * min(-overlap, 2) if overlap < 0 else ""
        text += after.envelope.document.content[after.header + max(overlap, 0) :]
    document = best.envelope.document
    metadata = {**documents[0].metadata, "end": chain[-1].end, "chunks": tuple(d.id for d in documents)}
    if pages := _next_pages(chain):
        metadata["next_pages"] = pages
    highlights = (highlight for piece in chain for highlight in piece.envelope.highlights)
    return best.envelope.replace(
        document=document.replace(
            content=text,
            path=_common_path(documents),
            metadata=metadata,
            keywords=tuple(dict.fromkeys(word for d in documents for word in d.keywords)),
            labels=tuple(dict.fromkeys(label for d in documents for label in d.labels)),
            links=tuple(dict.fromkeys(link for d in documents for link in d.links)),
        ),
        highlights=tuple(dict.fromkeys(highlights)),
    )


def further_pages(document: Document) -> list[tuple[int, int]]:
    """Return number and beginning, in a chunk, of its pages but for the first, as its metadata has them."""
    pages = document.metadata.get("next_pages")
    pairs = (
        [pair for pair in pages if isinstance(pair, list | tuple)] if isinstance(pages, list | tuple) else []
    )
    return [(p[0], p[1]) for p in pairs if len(p) == 2 and isinstance(p[0], int) and isinstance(p[1], int)]


def _next_pages(chain: Sequence[_Piece]) -> list[list[int]]:
    """Return number and beginning, in the block, of its pages but for the one on which it begins."""
    pages: dict[int, int] = {}
    for piece in chain:
        document, shift = piece.envelope.document, piece.start - chain[0].start
        page = document.metadata.get("page")
        if isinstance(page, int):
            pages.setdefault(page, shift)
        for number, begin in further_pages(document):
            pages.setdefault(number, begin + shift)
    return [[number, begin] for number, begin in sorted(pages.items()) if begin > 0]


def _common_path(documents: Sequence[Document]) -> tuple[str, ...]:
    """Return the headings that all chunks stand under. The others are part of the text."""
    path = documents[0].path
    for document in documents[1:]:
        same = [a == b for a, b in zip(path, document.path, strict=False)]
        path = path[: same.index(False) if False in same else len(same)]
    return path


def _repeats(chain: Sequence[_Piece]) -> Iterator[str]:
    """Yield for every chunk but the first what its block does not say again."""
    for before, after in pairwise(chain):
        document = after.envelope.document
        again = document.content[: after.header + max(before.end - after.start, 0)]
        yield "\n".join((document.title, " > ".join(document.path), again))
