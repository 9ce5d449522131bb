"""Postings of a term as bytes: which chunks have it, by their distances or as bits, whichever is shorter;
then how often, a byte for each chunk.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from contextrouter.builtin.providers.sqlite.rows import numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from contextrouter.builtin.providers.sqlite.rows import Numbers

_MOST, _SHIFTS = (3, 3, 15), (6, 4, 0)
"""How many occurrences in each field a code counts, and where in its byte. Code 0: they are listed behind all
codes.
"""
_FURTHEST = 254  # chunks from one to the next, at most; 255 goes as far and stands for none
_BITMAP, _COMPRESSED = 1, 2
_HEAD = Struct("<BII")  # these two, the number of postings, the bytes that say which chunks
HEAD = _HEAD.size
_SHORT = 64  # bytes that are not worth compressing


class Entries(NamedTuple):
    """Postings by term (its place in some list), then by chunk, and how often it occurs there: a row for each
    field.
    """

    terms: Numbers
    chunks: Numbers
    counts: Numbers


def count_occurrences(terms: Numbers, chunks: Numbers, fields: Numbers) -> Entries:
    """The entries of occurrences in the order of terms, then chunks; fields are title, path and body."""
    np = numpy()
    is_first = np.ones(len(terms), bool)
    is_first[1:] = (np.diff(terms) != 0) | (np.diff(chunks) != 0)
    at, starts = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
    counts = np.bincount(fields * len(starts) + at, minlength=3 * len(starts)).reshape(3, -1)
    return Entries(terms[starts], chunks[starts], counts)


def pack(entries: Entries, base: int) -> Iterator[tuple[int, bytes]]:
    """Each term with its postings as bytes. `base` is less than all numbers of chunks."""
    np = numpy()
    terms, chunks, counts = entries
    if not len(terms):
        return
    codes = (counts << np.array(_SHIFTS)[:, None]).sum(axis=0)
    codes = np.where((counts > np.array(_MOST)[:, None]).any(axis=0), 0, codes).astype(np.uint8)
    starts = np.flatnonzero(np.diff(terms, prepend=-1))
    distances = np.diff(chunks, prepend=base)
    distances[starts] = chunks[starts] - base
    between = (distances - 1) // _FURTHEST
    places = np.cumsum(between + 1) - 1
    bytes_of = np.full(places[-1] + 1, _FURTHEST + 1, np.uint8)
    bytes_of[places] = distances - between * _FURTHEST
    begins = (places - between)[starts].tolist()
    ranges = zip(starts.tolist(), [*starts[1:].tolist(), len(terms)], strict=True)
    for (start, end), begin, stop in zip(ranges, begins, [*begins[1:], len(bytes_of)], strict=True):
        listed = counts[:, start:end][:, codes[start:end] == 0]
        counted = codes[start:end].tobytes() + listed.T.astype("<u4").tobytes()
        bits = int(chunks[end - 1]) - base
        if bits < (stop - begin) * 8:
            set_bits = np.zeros(bits, bool)
            set_bits[chunks[start:end] - base - 1] = True
            yield (
                int(terms[start]),
                _join_parts(np.packbits(set_bits).tobytes(), counted, end - start, _BITMAP),
            )
        else:
            yield int(terms[start]), _join_parts(bytes_of[begin:stop].tobytes(), counted, end - start, 0)


def _join_parts(chunks: bytes, counts: bytes, size: int, flags: int) -> bytes:
    """Bits are not worth compressing."""
    plain, body = (chunks, counts) if flags & _BITMAP else (b"", chunks + counts)
    compressed = zlib.compress(body) if len(body) > _SHORT else body
    if len(compressed) < len(body):
        body, flags = compressed, flags | _COMPRESSED
    return _HEAD.pack(flags, size, len(chunks)) + plain + body


def unpack(blob: bytes, base: int) -> tuple[Numbers, NDArray[np.uint8], Numbers]:
    """The chunks of a term, their codes, and the counts in each field of those whose code is 0."""
    np = numpy()
    flags, size, width = _HEAD.unpack_from(blob)
    start = _HEAD.size + (width if flags & _BITMAP else 0)
    body = zlib.decompress(blob[start:]) if flags & _COMPRESSED else blob[start:]
    if flags & _BITMAP:
        bits = np.unpackbits(np.frombuffer(blob, np.uint8, width, _HEAD.size))
        chunks = np.flatnonzero(bits.view(bool))
        chunks += base + 1
        width = 0
    else:
        distances = np.frombuffer(body, np.uint8, width)
        if size < width:
            chunks = np.cumsum(np.minimum(distances, _FURTHEST), dtype=np.int64)[distances <= _FURTHEST]
        else:
            chunks = np.cumsum(distances, dtype=np.int64)
        chunks += base
    listed = np.frombuffer(body, "<u4", offset=width + size).reshape(-1, 3)
    return chunks, np.frombuffer(body, np.uint8, size, width), listed


def count_chunks(head: bytes) -> int:
    """How many chunks have a term, by the first `HEAD` bytes of its postings."""
    return int(_HEAD.unpack(head)[1])


def counts_of(codes: Numbers) -> Numbers:
    """How often each code counts a term in each field, one row each."""
    np = numpy()
    return (codes >> np.array(_SHIFTS)[:, None]) & np.array(_MOST)[:, None]  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
