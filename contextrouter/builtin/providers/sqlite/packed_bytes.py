"""The posting list of a term as bytes:

- the head: flags, the number of chunks, and the bytes of the next part;
- the chunks: the gap from each chunk to the next, or a bitmap, whichever is shorter;
- the codes, a byte for each chunk: how often the term is in its title, its heading path and its body;
- three numbers of 32 bits for each chunk whose code is 0: counts that are too large for a byte.

Gaps, codes and counts are compressed together where that makes them shorter; a bitmap stays as it is.
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
"""Of each field: the most occurrences that a code counts, and where they stand in its byte."""
_LONGEST_GAP = 254  # that one byte holds; 255 goes as far and ends at no chunk
_BITMAP, _COMPRESSED = 1, 2  # flags
_HEAD = Struct("<BII")
HEAD = _HEAD.size
"""Bytes of the head."""
_SHORT = 64  # bytes that are not worth compressing


class Entries(NamedTuple):
    """Posting lists of several terms, by term, then by chunk. A term is a number that the caller chose."""

    terms: Numbers
    chunks: Numbers
    counts: Numbers  # a row for each field


class Unpacked(NamedTuple):
    """The posting list of one term."""

    chunks: Numbers
    codes: NDArray[np.uint8]
    listed: Numbers  # the counts of chunks whose code is 0, a row for each chunk


def count_occurrences(terms: Numbers, chunks: Numbers, fields: Numbers) -> Entries:
    """The entries of occurrences in the order of terms, then chunks; fields are 0 title, 1 path, 2 body."""
    np = numpy()
    is_first = np.ones(len(terms), bool)
    is_first[1:] = (np.diff(terms) != 0) | (np.diff(chunks) != 0)
    entry_of, starts = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
    counts = np.bincount(fields * len(starts) + entry_of, minlength=3 * len(starts)).reshape(3, -1)
    return Entries(terms[starts], chunks[starts], counts)


def pack(entries: Entries, base: int) -> Iterator[tuple[int, bytes]]:
    """Each term with its posting list as bytes. `base` is less than all numbers of chunks."""
    np = numpy()
    terms, chunks, counts = entries
    if not len(terms):
        return
    codes = (counts << np.array(_SHIFTS)[:, None]).sum(axis=0)
    codes = np.where((counts > np.array(_MOST)[:, None]).any(axis=0), 0, codes).astype(np.uint8)
    starts = np.flatnonzero(np.diff(terms, prepend=-1))  # of each term
    gaps = np.diff(chunks, prepend=base)
    gaps[starts] = chunks[starts] - base
    steps = (gaps - 1) // _LONGEST_GAP  # bytes of a long gap before its last one
    places = np.cumsum(steps + 1) - 1
    gap_bytes = np.full(places[-1] + 1, _LONGEST_GAP + 1, np.uint8)
    gap_bytes[places] = gaps - steps * _LONGEST_GAP
    ends = [*starts[1:].tolist(), len(terms)]
    first_bytes = (places - steps)[starts].tolist()
    last_bytes = [*first_bytes[1:], len(gap_bytes)]
    for start, end, begin, stop in zip(starts.tolist(), ends, first_bytes, last_bytes, strict=True):
        flags, which = 0, gap_bytes[begin:stop].tobytes()
        bits = int(chunks[end - 1]) - base
        if bits < len(which) * 8:
            is_set = np.zeros(bits, bool)
            is_set[chunks[start:end] - base - 1] = True
            flags, which = _BITMAP, np.packbits(is_set).tobytes()
        listed = counts[:, start:end][:, codes[start:end] == 0]
        counted = codes[start:end].tobytes() + listed.T.astype("<u4").tobytes()
        yield int(terms[start]), _join_parts(which, counted, end - start, flags)


def _join_parts(chunks: bytes, counts: bytes, size: int, flags: int) -> bytes:
    plain, body = (chunks, counts) if flags & _BITMAP else (b"", chunks + counts)
    compressed = zlib.compress(body) if len(body) > _SHORT else body
    if len(compressed) < len(body):
        body, flags = compressed, flags | _COMPRESSED
    return _HEAD.pack(flags, size, len(chunks)) + plain + body


def unpack(blob: bytes, base: int) -> Unpacked:
    """The posting list in bytes that `pack` made with the same `base`."""
    np = numpy()
    flags, size, width = _HEAD.unpack_from(blob)
    start = HEAD + (width if flags & _BITMAP else 0)
    body = zlib.decompress(blob[start:]) if flags & _COMPRESSED else blob[start:]
    if flags & _BITMAP:
        bits = np.unpackbits(np.frombuffer(blob, np.uint8, width, HEAD))
        chunks = np.flatnonzero(bits.view(bool))
        chunks += base + 1
        width = 0  # of the gaps, which are not in the body then
    else:
        gaps = np.frombuffer(body, np.uint8, width)
        chunks = np.cumsum(np.minimum(gaps, _LONGEST_GAP) if size < width else gaps, dtype=np.int64)
        if size < width:  # some gaps are longer than a byte holds
            chunks = chunks[gaps <= _LONGEST_GAP]
        chunks += base
    listed = np.frombuffer(body, "<u4", offset=width + size).reshape(-1, 3)
    return Unpacked(chunks, np.frombuffer(body, np.uint8, size, width), listed)


def count_chunks(head: bytes) -> int:
    """How many chunks have a term, by the first `HEAD` bytes of its posting list."""
    return int(_HEAD.unpack(head)[1])


def counts_of(codes: Numbers) -> Numbers:
    """How often each code counts a term in each field, one row each."""
    np = numpy()
    return (codes >> np.array(_SHIFTS)[:, None]) & np.array(_MOST)[:, None]  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types
