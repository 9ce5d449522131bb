# ruff: noqa: S608 - the statements are put together from fragments written here; every value is bound
"""Postings of the commonest terms, packed: FTS5 gives every occurrence as a row, which takes a hundred
milliseconds for a word that most of 100,000 chunks have. A byte or two for each chunk are read at once.

A term is packed for all chunks or for none; which are packed changes no answer. New chunks wait, a row for
each transaction, until they are enough for a block, which has a row for each term. Small blocks are joined.
Chunks that are removed stay until all is packed again: the table `removed` names them.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
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
from contextrouter.builtin.providers.sqlite.rows import numbers, numpy
from contextrouter.builtin.providers.sqlite.snapshot_cache import SnapshotCache

if TYPE_CHECKING:
    from contextrouter.builtin.providers.sqlite.rows import Numbers, Scores

FIRST, LARGEST = 5_000, 200_000
"""Chunks from which a store packs, for below, FTS5 is quick enough; and up to which it packs all again, for
that takes memory for every occurrence of a term. What is packed by then is kept up to date.
"""
COMMON, LEAST, MOST = 1 / 50, 1_000, 65_000
"""A term is packed that this share of the chunks has, and so many chunks; at most so many terms."""
GROWN = 4
"""All is packed again when there are so many times the chunks: other terms are the commonest then."""
WAITING = 500
"""Chunks that become a block: what is held in memory of a large document."""
TOGETHER = 8
"""Blocks of one size that become one."""
NOTE = "packed"
"""The key in `meta` of what is packed."""
_BITS = 44  # of an occurrence that say its chunk and field: chunk x 4 + field; those above them say the term
_FIELDS = "tpb"  # the first letters of FTS5's fields


class Note(NamedTuple):
    """What is packed: of which store, since which state of its log of removed chunks, up to which chunk; at
    which generation all was packed, and how many chunks there were; the blocks, each by the chunk before its
    first, and its size; in the same way the chunks that wait.
    """

    store: str
    log: int
    through: int
    made: int
    chunks: int
    blocks: list[tuple[int, int]]
    waiting: tuple[int, int]


class Packed(NamedTuple):
    """What is packed in a snapshot, if anything; the number of each term; occurrences in chunks that wait,
    ascending.
    """

    note: Note | None
    numbers: Mapping[str, int]
    waiting: Numbers


def read_packed(
    connection: sqlite3.Connection, packed: Packed, term: str, weights: Sequence[float]
) -> tuple[Numbers, Scores]:
    """The chunks that have a term, one of `packed.numbers`, with those that are gone, and how often: counts
    weighted by field.
    """
    np = numpy()
    weight_of_field, weight_of_code = _tables(tuple(weights))
    blocks = [unpack(blob, block) for block, blob in _rows_of(connection, packed, term, "postings")]
    late = _waiting_of(packed, term)
    starts = np.flatnonzero(np.diff(late >> 2, prepend=-1))
    chunks = _concatenate([*[block[0] for block in blocks], late[starts] >> 2])
    codes, listed = (_concatenate([block[part] for block in blocks]) for part in (1, 2))
    frequencies = np.empty(len(chunks))
    np.take(weight_of_code, codes, out=frequencies[: len(codes)], mode="clip")
    if len(listed):
        frequencies[: len(codes)][codes == 0] = listed @ weight_of_field
    if len(starts):
        frequencies[len(codes) :] = np.add.reduceat(weight_of_field[late & 3], starts)
    return chunks, frequencies


def _concatenate(parts: Sequence[Any]) -> Any:
    """Arrays as one; large ones are not copied if they are alone."""
    filled = [part for part in parts if len(part)]
    return filled[0] if len(filled) == 1 else numpy().concatenate(filled or parts)


@lru_cache(maxsize=10)
def _tables(weights: tuple[float, ...]) -> tuple[Scores, Scores]:
    """The weight of each field, and of each code."""
    of_field = numpy().array(weights)
    return of_field, of_field @ counts_of(numpy().arange(256))


def count_packed(connection: sqlite3.Connection, packed: Packed, term: str) -> int:
    """How many chunks have a term, one of `packed.numbers`, with those that are gone."""
    heads = _rows_of(connection, packed, term, f"substr(postings, 1, {HEAD})")
    late = numpy().unique(_waiting_of(packed, term) >> 2)
    return sum([count_chunks(head) for _, head in heads]) + len(late)


def _rows_of(
    connection: sqlite3.Connection, packed: Packed, term: str, column: str
) -> list[tuple[int, bytes]]:
    """What is packed of a term, by block."""
    assert packed.note is not None
    blocks = json.dumps([block for block, _ in packed.note.blocks])
    sql = f"SELECT block, {column} FROM json_each(?) CROSS JOIN packed ON block = value AND term = ?"
    return connection.execute(sql, (blocks, term)).fetchall()


def _waiting_of(packed: Packed, term: str) -> Numbers:
    """The chunk times four and the field of each occurrence of a term in chunks that wait."""
    number = packed.numbers[term]
    start, end = numpy().searchsorted(packed.waiting, [number << _BITS, (number + 1) << _BITS])
    occurrences: Numbers = packed.waiting[start:end] - (number << _BITS)
    return occurrences


def read_note(connection: sqlite3.Connection) -> Note | None:
    """What is packed. None: nothing, or not what the store holds, because a version without packed postings
    wrote to it, or its log of removed chunks was cut.
    """
    text = schema.text(connection, NOTE)
    if not text:
        return None
    note = Note(*json.loads(text))
    state = schema.text(connection, "store"), schema.number(connection, "log")
    if state != (note.store, note.log) or _last_chunk(connection) > note.through:
        return None
    return note


class GoneChunks(SnapshotCache["Numbers"]):
    """The chunks removed since all was packed, ascending."""

    keys = ("store", "generation")

    def first(self, connection: sqlite3.Connection) -> Numbers:
        """All that the log names."""
        return numpy().unique(numbers(connection, "SELECT group_concat(chunk) FROM removed")[0])  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types

    def update(self, connection: sqlite3.Connection, value: Numbers) -> Numbers:
        """They stay the same until the next write."""
        return value


class PackedTerms(SnapshotCache[Packed]):
    """What is packed, but for the blocks, which stay in the file."""

    def first(self, connection: sqlite3.Connection) -> Packed:
        """Nothing."""
        return Packed(None, {}, numpy().zeros(0, numpy().int64))

    def update(self, connection: sqlite3.Connection, value: Packed) -> Packed:
        """The chunks of further transactions are added to those that wait."""
        note, former = read_note(connection), value.note
        if note is None:
            return self.first(connection)
        origins = [(each.made, each.chunks, each.waiting[0]) for each in (former, note) if each]
        if former is None or origins[0] != origins[1] or former.through > note.through:
            waiting = _read_waiting(connection, note.waiting[0])
            return Packed(note, _read_terms(connection, note), waiting)
        if former.through < note.through:
            added = _read_waiting(connection, former.through)
            together = numpy().concatenate((value.waiting, added))
            value = value._replace(waiting=numpy().sort(together, kind="stable"))
        return value._replace(note=note)


def _read_terms(connection: sqlite3.Connection, note: Note) -> dict[str, int]:
    """The terms that are packed: the first block has them all. By term, their numbers."""
    sql = "SELECT term, number FROM packed WHERE block = ?"
    return dict(connection.execute(sql, (note.blocks[0][0],)).fetchall())


def _read_waiting(connection: sqlite3.Connection, start: int) -> Numbers:
    np = numpy()
    sql = "SELECT postings FROM packed WHERE block >= ? AND term = '' ORDER BY block"
    raw = b"".join([zlib.decompress(row[0]) for row in connection.execute(sql, (start,))])
    return np.sort(np.frombuffer(raw, "<i8").astype(np.int64), kind="stable")  # type: ignore[no-any-return]  # numpy is loaded late, so its results have no types


class Packer:
    """Packs the chunks that a write transaction adds. Call `finish` at its end."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._note = connection, read_note(connection)
        self._terms: dict[str, int] = {}
        self._occurring: list[int] = []
        self._places: list[tuple[int, int]] = []  # chunk and field, and how many of the terms are theirs
        self._last, self._added = 0, 0
        if self._note is not None:
            self._terms = _read_terms(connection, self._note)

    def add(self, chunk: int, fields: Sequence[str]) -> None:
        """Take the terms of a new chunk: of each field, parted by spaces."""
        self._last, self._added = chunk, self._added + 1
        if self._note is not None:
            of_term = self._terms.get
            for field, text in enumerate(fields):
                numbers_here = [number for term in text.split() if (number := of_term(term))]
                self._occurring += numbers_here
                self._places.append((chunk * 4 + field, len(numbers_here)))
            if self._added >= WAITING:
                self._note = self._append(self._note)

    def finish(self) -> None:
        """Write what was taken."""
        total, note = schema.number(self._connection, "chunks"), self._note
        if note is None or GROWN * note.chunks < total <= LARGEST:
            if total >= FIRST:
                pack_all(self._connection)
        elif self._added:
            self._append(note)

    def _append(self, note: Note) -> Note:
        if self._occurring:
            np = numpy()
            places = np.array(self._places, np.int64)
            occurrences = np.array(self._occurring, np.int64) << _BITS
            occurrences += np.repeat(places[:, 0], places[:, 1])
            occurrences.sort()
            self._connection.execute(
                "INSERT INTO packed (block, term, postings) VALUES (?, '', ?)",
                (note.through, zlib.compress(occurrences.astype("<i8").tobytes())),
            )
        start, size = note.waiting
        note = note._replace(through=self._last, waiting=(start, size + self._added))
        if note.waiting[1] >= WAITING:
            note = _pack_waiting(self._connection, note, self._terms)
        _write_note(self._connection, note)
        self._occurring, self._places, self._added = [], [], 0
        return note


def _pack_waiting(connection: sqlite3.Connection, note: Note, numbers_of: Mapping[str, int]) -> Note:
    """Make a block of the chunks that wait."""
    start, size = note.waiting
    occurrences = _read_waiting(connection, start)
    connection.execute("DELETE FROM packed WHERE block >= ?", (start,))
    places = occurrences & ((1 << _BITS) - 1)
    entries = count_occurrences(occurrences >> _BITS, places >> 2, places & 3)
    _insert_block(connection, start, {number: term for term, number in numbers_of.items()}, entries)
    blocks = _join_blocks(connection, [*note.blocks, (start, size)])
    return note._replace(blocks=blocks, waiting=(note.through, 0))


def pack_all(connection: sqlite3.Connection) -> None:
    """Pack the postings of what are the commonest terms by now, of all chunks. Nothing is packed in a small
    store, or in one that is too large.
    """
    np = numpy()
    connection.execute("DELETE FROM packed")
    connection.execute("DELETE FROM meta WHERE key = ?", (NOTE,))
    total = schema.number(connection, "chunks")
    if not FIRST <= total <= LARGEST:
        return
    threshold = max(LEAST, int(COMMON * total))
    sql = "SELECT term FROM vocabulary WHERE doc >= ? LIMIT ?"
    terms = [row[0] for row in connection.execute(sql, (threshold, MOST))]
    base = connection.execute("SELECT min(number) - 1 FROM chunks").fetchone()[0]
    field_of = np.zeros(128, np.int64)
    field_of[[*map(ord, _FIELDS)]] = [0, 1, 2]
    for term in terms:
        sql = "SELECT group_concat(doc * 128 + unicode(col)) FROM postings WHERE term = ?"
        (coded,) = numbers(connection, sql, (term,))
        entries = count_occurrences(np.zeros(len(coded), np.int64), coded >> 7, field_of[coded & 127])
        _insert_block(connection, base, {0: term}, entries)
    store, log = schema.text(connection, "store"), schema.number(connection, "log")
    through, generation = _last_chunk(connection), schema.number(connection, "generation")
    _write_note(connection, Note(store, log, through, generation, total, [(base, total)], (through, 0)))


def _join_blocks(connection: sqlite3.Connection, blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Make one block of the last ones where there are many of one size; the first holds the terms."""
    while True:
        digits = [(size.bit_length() - 1) // (TOGETHER.bit_length() - 1) for _, size in blocks]
        start = len(blocks)
        while start > 1 and digits[start - 1] <= digits[-1]:
            start -= 1
        if len(blocks) - start < TOGETHER:
            return blocks
        base, size = blocks[start][0], sum(size for _, size in blocks[start:])
        joined = json.dumps([block for block, _ in blocks[start:]])
        terms = connection.execute("SELECT DISTINCT term FROM packed WHERE block >= ?", (base,)).fetchall()
        for (term,) in terms:  # one at a time: all together take hundreds of megabytes
            _join_term(connection, base, joined, term)
        blocks = [*blocks[:start], (base, size)]


def _join_term(connection: sqlite3.Connection, base: int, blocks: str, term: str) -> None:
    """Make one row of a term of those in these blocks, a JSON list; `base` is the first of them."""
    np = numpy()
    sql = "SELECT block, postings FROM json_each(?) CROSS JOIN packed ON block = value AND term = ?"
    parts = [unpack(blob, block) for block, blob in connection.execute(sql, (blocks, term))]
    chunks, codes, listed = map(np.concatenate, zip(*parts, strict=True))
    counts = counts_of(codes.astype(np.int64))
    counts[:, codes == 0] = listed.T
    sql = "DELETE FROM packed WHERE block IN (SELECT value FROM json_each(?)) AND term = ?"
    connection.execute(sql, (blocks, term))
    _insert_block(connection, base, {0: term}, Entries(np.zeros(len(chunks), np.int64), chunks, counts))


def _insert_block(
    connection: sqlite3.Connection, block: int, terms: Mapping[int, str], entries: Entries
) -> None:
    rows = ((block, terms[term], blob) for term, blob in pack(entries, block))
    connection.executemany("INSERT INTO packed (block, term, postings) VALUES (?, ?, ?)", rows)


def _write_note(connection: sqlite3.Connection, note: Note) -> None:
    schema.write_meta(connection, NOTE, json.dumps(note))


def _last_chunk(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM chunks").fetchone()[0])
