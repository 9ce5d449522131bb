# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Packed postings: the posting lists of the commonest terms once more, compressed.

FTS5 gives every occurrence of a term as a row. For a word that most of 100,000 chunks have, this takes a
hundred milliseconds. Packed postings have a byte or two for each chunk, which are read at once. They change
no answer. A term is packed for all chunks or for none.

The table `packed` grows by blocks that are merged, as an index of Lucene does by segments:

- New chunks wait: each write transaction adds one row with their occurrences. Its `term` is ''.
- When `BLOCK_CHUNKS` of them wait, they become a block: a row for each term.
- `MERGED_BLOCKS` blocks of about one size become one.
- A chunk that is removed stays in its block until all is packed again. Readers leave it out.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from contextrouter.builtin.providers.sqlite import schema
from contextrouter.builtin.providers.sqlite.packed_bytes import (
    HEAD,
    Entries,
    count_chunks,
    count_occurrences,
    counts_of,
    pack,
    unpack,
)
from contextrouter.builtin.providers.sqlite.rows import by_field_letter, numbers, numpy, occurrences
from contextrouter.builtin.providers.sqlite.snapshot_cache import SnapshotCache

if TYPE_CHECKING:
    from contextrouter.builtin.providers.sqlite.rows import Numbers, Scores

SMALLEST = 5_000
"""Chunks of the smallest store that packs: below, FTS5 is quick enough."""
LARGEST = 200_000
"""Chunks of the largest store that packs all again: this takes memory for every occurrence of a term. What is
packed by then is kept up to date.
"""
COMMON_SHARE, COMMON_CHUNKS, MOST_TERMS = 1 / 50, 1_000, 65_000
"""A term is packed if so large a share of the chunks has it, and so many chunks; so many terms at most."""
GROWTH = 4
"""All is packed again when the store has so many times the chunks: other terms are the commonest then."""
BLOCK_CHUNKS = 500
"""Chunks that become a block. So many of a large document are held in memory at most."""
MERGED_BLOCKS = 8
"""Blocks of one size that become one; a power of two."""
STATE_KEY = "packed"
"""The key in `meta` of the `PackingState`."""
_PLACE_BITS = 44
"""An occurrence that waits is one number. These bits are its place, chunk x 4 + field; those above them are
the number of its term.
"""


class PackingState(NamedTuple):
    """What the store notes of its packed postings. A block is named by the number before its first chunk."""

    store: str  # the identity of the store; another one: nothing is packed of this content
    log: int  # as in `meta`: the log of removed chunks is complete since this generation
    last_chunk: int  # that is packed or waits
    generation: int  # at which all was packed
    chunks: int  # how many there were then
    blocks: list[tuple[int, int]]  # the name of each block, and how many chunks it was made of
    waiting: tuple[int, int]  # the same of the chunks that wait


class Packed(NamedTuple):
    """What is packed in a snapshot; `state` None: nothing."""

    state: PackingState | None
    term_numbers: Mapping[str, int]  # of each packed term
    waiting: Numbers  # the occurrences that wait, ascending


def read_packed(
    connection: sqlite3.Connection, packed: Packed, term: str, weights: Sequence[float]
) -> tuple[Numbers, Scores]:
    """The chunks that have a packed term, ascending, and how often: counts weighted by field. Chunks that
    were removed are among them.
    """
    np = numpy()
    field_weights, code_weights = _weight_tables(tuple(weights))
    blocks = [unpack(blob, block) for block, blob in _read_blocks(connection, packed, term, "postings")]
    waiting = _find_waiting(packed, term)
    starts = np.flatnonzero(np.diff(waiting >> 2, prepend=-1))  # where the next chunk begins
    chunks = _concatenate([*[block.chunks for block in blocks], waiting[starts] >> 2])
    codes = _concatenate([block.codes for block in blocks])
    listed = _concatenate([block.listed for block in blocks])
    frequencies = np.empty(len(chunks))
    # "clip" checks nothing, so `out` is written without a copy between; each byte has a weight
    np.take(code_weights, codes, out=frequencies[: len(codes)], mode="clip")
    if len(listed):
        frequencies[: len(codes)][codes == 0] = listed @ field_weights
    if len(starts):
        frequencies[len(codes) :] = np.add.reduceat(field_weights[waiting & 3], starts)
    return chunks, frequencies


def _concatenate(parts: Sequence[Any]) -> Any:
    """Arrays as one. A large one that is alone is not copied."""
    filled = [part for part in parts if len(part)]
    return filled[0] if len(filled) == 1 else numpy().concatenate(filled or parts)


@lru_cache(maxsize=10)
def _weight_tables(weights: tuple[float, ...]) -> tuple[Scores, Scores]:
    """The weight of each field, and of the counts that each code stands for."""
    of_field = numpy().array(weights)
    return of_field, of_field @ counts_of(numpy().arange(256))


def count_packed(connection: sqlite3.Connection, packed: Packed, term: str) -> int:
    """How many chunks have a packed term. Chunks that were removed are counted, too."""
    heads = _read_blocks(connection, packed, term, f"substr(postings, 1, {HEAD})")
    waiting = numpy().unique(_find_waiting(packed, term) >> 2)
    return sum([count_chunks(head) for _, head in heads]) + len(waiting)


def _read_blocks(
    connection: sqlite3.Connection, packed: Packed, term: str, column: str
) -> list[tuple[int, bytes]]:
    """A column of the rows of a term, by block."""
    assert packed.state is not None
    blocks = json.dumps([block for block, _ in packed.state.blocks])
    sql = f"SELECT block, {column} FROM json_each(?) CROSS JOIN packed ON block = value AND term = ?"
    return connection.execute(sql, (blocks, term)).fetchall()


def _find_waiting(packed: Packed, term: str) -> Numbers:
    """The places of a term in chunks that wait, each chunk x 4 + field."""
    number = packed.term_numbers[term]
    bounds = [number << _PLACE_BITS, (number + 1) << _PLACE_BITS]
    start, end = numpy().searchsorted(packed.waiting, bounds)
    places: Numbers = packed.waiting[start:end] - bounds[0]
    return places


def read_state(connection: sqlite3.Connection) -> PackingState | None:
    """What is packed. None: nothing, or not what the store holds, because a version without packed postings
    wrote to it, or its log of removed chunks was cut.
    """
    text = schema.text(connection, STATE_KEY)
    if not text:
        return None
    state = PackingState(*json.loads(text))
    present = schema.text(connection, "store"), schema.number(connection, "log")
    if present != (state.store, state.log) or _last_chunk(connection) > state.last_chunk:
        return None
    return state


class RemovedChunks(SnapshotCache["Numbers"]):
    """The chunks removed since all was packed, ascending."""

    keys = ("store", "generation")

    def first(self, connection: sqlite3.Connection) -> Numbers:
        """All that the log names."""
        return numpy().unique(numbers(connection, "SELECT group_concat(chunk) FROM removed")[0])  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


class PackedTerms(SnapshotCache[Packed]):
    """What is packed, without the blocks, which stay in the file."""

    def first(self, connection: sqlite3.Connection) -> Packed:
        """Nothing."""
        return Packed(None, {}, numpy().zeros(0, numpy().int64))

    def update(self, connection: sqlite3.Connection, value: Packed) -> Packed:
        """The chunks of further transactions are added to those that wait."""
        state, former = read_state(connection), value.state
        if state is None:
            return self.first(connection)
        if former is None or not _continues(state, former):
            waiting = _read_waiting(connection, state.waiting[0])
            return Packed(state, _read_term_numbers(connection, state), waiting)
        if former.last_chunk < state.last_chunk:
            added = _read_waiting(connection, former.last_chunk)
            waiting = numpy().sort(numpy().concatenate((value.waiting, added)), kind="stable")
            value = value._replace(waiting=waiting)
        return value._replace(state=state)


def _continues(state: PackingState, former: PackingState) -> bool:
    """Whether all that happened since a former state is that further chunks wait."""
    packings = [(each.generation, each.chunks, each.waiting[0]) for each in (former, state)]
    return packings[0] == packings[1] and former.last_chunk <= state.last_chunk


def _read_term_numbers(connection: sqlite3.Connection, state: PackingState) -> dict[str, int]:
    """The numbers of the packed terms: those of their rows in the first block, which has all of them."""
    sql = "SELECT term, number FROM packed WHERE block = ?"
    return dict(connection.execute(sql, (state.blocks[0][0],)).fetchall())


def _read_waiting(connection: sqlite3.Connection, start: int) -> Numbers:
    """The occurrences in chunks that wait, of those behind `start`, ascending."""
    np = numpy()
    sql = "SELECT postings FROM packed WHERE block >= ? AND term = '' ORDER BY block"
    raw = b"".join([zlib.decompress(row[0]) for row in connection.execute(sql, (start,))])
    return np.sort(np.frombuffer(raw, "<i8").astype(np.int64), kind="stable")  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


class Packer:
    """Packs the chunks that a write transaction adds. Call `add` for each, and `finish` at the end."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._state = connection, read_state(connection)
        self._term_numbers: dict[str, int] = {}
        self._occurring: list[int] = []  # numbers of terms, by place
        self._places: list[tuple[int, int]] = []  # chunk x 4 + field, and how many of the terms it has
        self._last, self._added = 0, 0
        if self._state is not None:
            self._term_numbers = _read_term_numbers(connection, self._state)

    def add(self, chunk: int, fields: Sequence[str]) -> None:
        """Take the terms of a new chunk: of each field, parted by spaces."""
        self._last, self._added = chunk, self._added + 1
        if self._state is not None:
            number_of = self._term_numbers.get
            for field, text in enumerate(fields):
                occurring = [number for term in text.split() if (number := number_of(term))]
                self._occurring += occurring
                self._places.append((chunk * 4 + field, len(occurring)))
            if self._added >= BLOCK_CHUNKS:
                self._state = self._store_waiting(self._state)

    def finish(self) -> None:
        """Write what was taken; pack all where nothing is packed yet, or the store has outgrown it."""
        total, state = schema.number(self._connection, "chunks"), self._state
        if state is None or GROWTH * state.chunks < total <= LARGEST:
            if total >= SMALLEST:
                pack_all(self._connection)
        elif self._added:
            self._store_waiting(state)

    def _store_waiting(self, state: PackingState) -> PackingState:
        """Let the chunks that were taken wait. Where enough wait, make a block of them."""
        if self._occurring:
            np = numpy()
            places = np.array(self._places, np.int64)
            taken = np.array(self._occurring, np.int64) << _PLACE_BITS
            taken += np.repeat(places[:, 0], places[:, 1])
            taken.sort()
            _insert(self._connection, [(state.last_chunk, "", zlib.compress(taken.astype("<i8").tobytes()))])
        start, size = state.waiting
        state = state._replace(last_chunk=self._last, waiting=(start, size + self._added))
        if state.waiting[1] >= BLOCK_CHUNKS:
            state = _make_block(self._connection, state, self._term_numbers)
        _write_state(self._connection, state)
        self._occurring, self._places, self._added = [], [], 0
        return state


def _make_block(
    connection: sqlite3.Connection, state: PackingState, term_numbers: Mapping[str, int]
) -> PackingState:
    """Make a block of the chunks that wait."""
    start, size = state.waiting
    waiting = _read_waiting(connection, start)
    connection.execute("DELETE FROM packed WHERE block >= ?", (start,))
    places = waiting & ((1 << _PLACE_BITS) - 1)
    entries = count_occurrences(waiting >> _PLACE_BITS, places >> 2, places & 3)
    _insert_block(connection, start, {number: term for term, number in term_numbers.items()}, entries)
    blocks = _merge_blocks(connection, [*state.blocks, (start, size)])
    return state._replace(blocks=blocks, waiting=(state.last_chunk, 0))


def pack_all(connection: sqlite3.Connection) -> None:
    """Pack all chunks anew, as one block, by the terms that are the commonest now. In a store that is too
    small or too large, nothing is packed then.
    """
    np = numpy()
    connection.execute("DELETE FROM packed")
    connection.execute("DELETE FROM meta WHERE key = ?", (STATE_KEY,))
    total = schema.number(connection, "chunks")
    if not SMALLEST <= total <= LARGEST:
        return
    threshold = max(COMMON_CHUNKS, int(COMMON_SHARE * total))
    sql = "SELECT term FROM vocabulary WHERE doc >= ? LIMIT ?"
    terms = [row[0] for row in connection.execute(sql, (threshold, MOST_TERMS))]
    block = connection.execute("SELECT min(number) - 1 FROM chunks").fetchone()[0]
    field_of = by_field_letter([0, 1, 2])
    for term in terms:
        chunks, letters = occurrences(connection, term)
        entries = count_occurrences(np.zeros(len(chunks), np.int64), chunks, field_of[letters])
        _insert_block(connection, block, {0: term}, entries)
    store, log = schema.text(connection, "store"), schema.number(connection, "log")
    last, generation = _last_chunk(connection), schema.number(connection, "generation")
    _write_state(connection, PackingState(store, log, last, generation, total, [(block, total)], (last, 0)))


def _merge_blocks(connection: sqlite3.Connection, blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge the last blocks where enough are of one size, and again those that this makes. The first block
    stays by itself: it has all terms.
    """
    while True:
        # a size is the exponent of its power of MERGED_BLOCKS: what one merge makes is of the next size
        sizes = [(chunks.bit_length() - 1) // (MERGED_BLOCKS.bit_length() - 1) for _, chunks in blocks]
        start = len(blocks)
        while start > 1 and sizes[start - 1] <= sizes[-1]:
            start -= 1
        merged = blocks[start:]
        if len(merged) < MERGED_BLOCKS:
            return blocks
        first = merged[0][0]
        terms = connection.execute("SELECT DISTINCT term FROM packed WHERE block >= ?", (first,)).fetchall()
        names = json.dumps([block for block, _ in merged])
        for (term,) in terms:  # one at a time: all together take hundreds of megabytes
            _merge_rows(connection, first, names, term)
        blocks = [*blocks[:start], (first, sum([chunks for _, chunks in merged]))]


def _merge_rows(connection: sqlite3.Connection, first: int, blocks: str, term: str) -> None:
    """Merge the rows that a term has in blocks, a JSON list, into one row of the `first` of them."""
    np = numpy()
    sql = "SELECT block, postings FROM json_each(?) CROSS JOIN packed ON block = value AND term = ?"
    parts = [unpack(blob, block) for block, blob in connection.execute(sql, (blocks, term))]
    chunks, codes, listed = map(np.concatenate, zip(*parts, strict=True))
    counts = counts_of(codes.astype(np.int64))
    counts[:, codes == 0] = listed.T
    sql = "DELETE FROM packed WHERE block IN (SELECT value FROM json_each(?)) AND term = ?"
    connection.execute(sql, (blocks, term))
    _insert_block(connection, first, {0: term}, Entries(np.zeros(len(chunks), np.int64), chunks, counts))


def _insert_block(
    connection: sqlite3.Connection, block: int, terms: Mapping[int, str], entries: Entries
) -> None:
    """Insert the rows of a block. `terms` has the term of each number in `entries`."""
    _insert(connection, ((block, terms[number], blob) for number, blob in pack(entries, block)))


def _insert(connection: sqlite3.Connection, rows: Iterable[tuple[int, str, bytes]]) -> None:
    connection.executemany("INSERT INTO packed (block, term, postings) VALUES (?, ?, ?)", rows)


def _write_state(connection: sqlite3.Connection, state: PackingState) -> None:
    schema.write_meta(connection, STATE_KEY, json.dumps(state))


def _last_chunk(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM chunks").fetchone()[0])
