"""The fingerprints of the documents that a store holds, and which of them the source lists.

They lie in a temporary SQLite database, which moves from memory to a temporary file when it grows. So a store
that gives its fingerprints in pages is compared without memory for each of its documents. Another store gives
those of a tenant all at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from contextrouter.contracts import SupportsFingerprintPages, SupportsTenants, SupportsUpsert
from contextrouter.errors import IngestError
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.runtime.plugin_calls import containment

_CACHE_KIB = 16_000  # of the database's pages that stay in memory
_PAGE = 1_000  # rows that are read from the database at a time
_SCHEMA = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -{_CACHE_KIB};
CREATE TABLE documents (
  id BLOB, tenant BLOB, fingerprint TEXT, listed INTEGER NOT NULL, PRIMARY KEY (id, tenant)
) WITHOUT ROWID;
"""
_STORED = (
    "INSERT INTO documents VALUES (?, ?, ?, 0)"
    " ON CONFLICT (id, tenant) DO UPDATE SET fingerprint = excluded.fingerprint"
)
_LISTED = (
    "INSERT INTO documents VALUES (?, ?, NULL, 1)"
    " ON CONFLICT (id, tenant) DO UPDATE SET listed = 1 WHERE listed = 0"
)


class StoredFingerprints:
    """The (tenant, id) of documents, with their stored fingerprints as they were before the run, and whether
    the source lists them.
    """

    def __init__(self, store: SupportsUpsert) -> None:
        self.store = store
        self._tenants: set[str | None] = set()  # those whose fingerprints were read
        self._complete = False
        # A source may look versions up in a thread of its own.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    async def load(self, tenant: str | None) -> None:
        """Read the fingerprints of one tenant's documents; the store is asked for them once."""
        if self._complete or tenant in self._tenants:
            return
        if isinstance(self.store, SupportsFingerprintPages):
            return await self.load_all()
        # When this fails, batches that were stored before stay stored; nothing is removed.
        with as_ingest_error("The store does not say what it holds"):
            fingerprints = await self.store.fingerprints(tenant)
        self._insert((tenant, id, fingerprint) for id, fingerprint in fingerprints.items())
        self._tenants.add(tenant)

    async def load_all(self) -> None:
        """Read the fingerprints of every tenant that the store can name."""
        if not isinstance(self.store, SupportsFingerprintPages):
            for tenant in await self._tenants_of_store():
                await self.load(tenant)
        elif not self._complete:
            try:
                with containment():
                    async for page in self.store.fingerprint_pages():
                        self._insert(page)
            except IngestError:  # there is no room for the page
                raise
            except Exception as error:  # nothing was stored or removed yet
                raise IngestError(f"The store does not say what it holds: {error}") from error
            self._complete = True

    async def _tenants_of_store(self) -> Sequence[str | None]:
        if not isinstance(self.store, SupportsTenants):
            return ()
        # When this fails, batches that were stored before stay stored; nothing is removed.
        with as_ingest_error("The store does not say whose documents it holds"):
            return await self.store.tenants()

    def _insert(self, rows: Iterable[tuple[str | None, str, str]]) -> None:
        keys = ((_encode_key(id), _encode_key(tenant), fingerprint) for tenant, id, fingerprint in rows)
        with _room():
            self._database.execute("BEGIN")
            self._database.executemany(_STORED, keys)
            self._database.execute("COMMIT")

    def fingerprint(self, tenant: str | None, id: str) -> str | None:
        """Return the stored fingerprint of a document; None: it is not stored."""
        sql = "SELECT fingerprint FROM documents WHERE id = ? AND tenant = ?"
        row = self._database.execute(sql, (_encode_key(id), _encode_key(tenant))).fetchone()
        return row[0] if row else None

    def owners(self, id: str) -> list[tuple[str | None, str]]:
        """Return the (tenant, fingerprint) of every stored document with this id."""
        sql = "SELECT tenant, fingerprint FROM documents WHERE id = ? AND fingerprint IS NOT NULL"
        rows = self._database.execute(sql, (_encode_key(id),))
        return [(_decode_key(tenant) or None, fingerprint) for tenant, fingerprint in rows.fetchall()]

    def add_listed(self, tenant: str | None, id: str) -> bool:
        """Note that the source lists a document. False: it did so before."""
        with _room():
            return self._database.execute(_LISTED, (_encode_key(id), _encode_key(tenant))).rowcount == 1

    def is_listed(self, id: str) -> bool:
        """Whether the source lists the document, under any tenant."""
        sql = "SELECT 1 FROM documents WHERE id = ? AND listed = 1 LIMIT 1"
        return self._database.execute(sql, (_encode_key(id),)).fetchone() is not None

    def documents(self, origin: str, *, listed: bool | None = None) -> Iterator[tuple[str | None, str]]:
        """Yield the (tenant, id) of the stored documents of an origin; with `listed`, only those that the
        source lists, or does not list.
        """
        position: tuple[bytes, bytes] = (b"", b"")
        rule = "" if listed is None else f" AND listed = {int(listed)}"
        while True:
            rows = self._database.execute(
                f"SELECT id, tenant FROM documents WHERE (id, tenant) > (?, ?) AND id >= ? AND id < ?{rule}"  # noqa: S608 - the rule is a fragment from here
                " AND fingerprint IS NOT NULL ORDER BY id, tenant LIMIT ?",
                (*position, *_range(origin), _PAGE),
            ).fetchall()
            yield from ((_decode_key(tenant) or None, _decode_key(id)) for id, tenant in rows)
            if len(rows) < _PAGE:
                return
            position = rows[-1]

    def count_stored(self, origin: str, tenants: Collection[str | None] | None = None) -> int:
        """Return how many ids of an origin are stored, under these tenants (None: under any)."""
        return self._count(origin, tenants, "0")

    def count_all(self, origin: str, tenants: Collection[str | None] | None = None) -> int:
        """Return how many ids of an origin are stored under these tenants, or listed."""
        return self._count(origin, tenants, "listed")

    def count_listed(self) -> int:
        """Return how many ids the source lists."""
        sql = "SELECT count(*) FROM (SELECT id FROM documents WHERE listed = 1 GROUP BY id)"
        return int(self._database.execute(sql).fetchone()[0])

    def _count(self, origin: str, tenants: Collection[str | None] | None, otherwise: str) -> int:
        keys = [] if tenants is None else [_encode_key(tenant) for tenant in tenants]
        owned = "1" if tenants is None else f"tenant IN ({', '.join('?' * len(keys))})"
        sql = (
            "SELECT count(*) FROM (SELECT id FROM documents WHERE id >= ? AND id < ? AND"  # noqa: S608 - fragments from here; values are bound
            f" (fingerprint IS NOT NULL AND {owned} OR {otherwise}) GROUP BY id)"
        )
        return int(self._database.execute(sql, (*_range(origin), *keys)).fetchone()[0])


class StoredVersions(Mapping[str, str]):
    """Id in the source -> version, of the stored documents of an origin that were made by this recipe.

    A document that two tenants have is left out: its version does not tell whose it is.
    """

    def __init__(self, stored: StoredFingerprints, origin: str, recipe: str) -> None:
        self._stored, self._origin, self._recipe = stored, origin, recipe

    def __getitem__(self, id: str) -> str:
        return self._owner(id)[1]

    def __iter__(self) -> Iterator[str]:
        previous = None
        for _, id in self._stored.documents(self._origin):
            if id != previous and (name := id.partition(":")[2]) in self:
                yield name
            previous = id

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def tenant(self, id: str) -> str | None:
        """Return the tenant of a document. Raises KeyError where the mapping has no such id."""
        return self._owner(id)[0]

    def _owner(self, id: str) -> tuple[str | None, str]:
        owners = [
            (tenant, parts[2])
            for tenant, fingerprint in self._stored.owners(f"{self._origin}:{id}")
            if len(parts := fingerprint.split(".")) == 3 and parts[1] == self._recipe
        ]
        if len(owners) != 1:
            raise KeyError(id)
        return owners[0]


@contextmanager
def _room() -> Iterator[None]:
    """Say what it means that the temporary database cannot be written."""
    try:
        yield
    except sqlite3.Error as error:
        raise IngestError(
            f"The run cannot note which documents there are, in a temporary database ({error}); make room in"
            " the folder for temporary files, or set TMPDIR to a folder with room. What was stored stays."
        ) from error


def _range(origin: str) -> tuple[bytes, bytes]:
    """Return the bounds of the keys of an origin's ids: `;` follows `:`."""
    return f"{origin}:".encode(), f"{origin};".encode()


def _encode_key(text: str | None) -> bytes:
    """Return a text as it is stored: it may hold lone surrogates, which SQLite takes in no text."""
    return (text or "").encode("utf-8", "surrogatepass")


def _decode_key(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
