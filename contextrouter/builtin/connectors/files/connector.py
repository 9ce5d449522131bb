"""File connector: searches a folder of texts and documents as it is at this moment."""

from __future__ import annotations

import asyncio
import codecs
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

from contextrouter.builtin.connectors.files.file_reader import File, Known, Reading
from contextrouter.builtin.connectors.files.folder import Folder, Listed, Listing
from contextrouter.builtin.connectors.files.parsing.process import Parser
from contextrouter.builtin.connectors.matching import matches, visible
from contextrouter.contracts import Connector, FilePath
from contextrouter.errors import SourceError, SourceTimeout
from contextrouter.model import Document, Hit, Query
from contextrouter.runtime.threads import Threads
from contextrouter.scope import Scope
from contextrouter.text.bm25 import PassageIndex
from contextrouter.text.languages import language_terms

TITLE, HEADING, BODY = 3.0, 2.0, 1.0
"""How often a term counts by where it stands: title over heading path over body."""
EMPTY = "empty"


class _Snapshot(NamedTuple):
    """The folder at one moment, complete; replaced as a whole, never changed."""

    scan_start: float  # time.monotonic() before the folder was looked at
    listing: Listing
    files: dict[str, File]
    passages: tuple[Document, ...]
    ranking: PassageIndex


class Files(Connector):
    """Searches a folder's current texts by BM25, passage by passage, and lists them whole for ingestion.

    `path` is a folder, or one file. `patterns` are globs that choose files by their path below it: `*` and
    `?` within a folder, `**` across folders; one without `/` is for names in any folder. Without any, all
    files are read whose suffix, or whose beginning, says what they are; `.not_read` counts the others by
    suffix. Hidden ones are never read. `max_bytes` is the size of one file in bytes, `max_files` how many are
    read, `parse_seconds` how long the parser of a PDF and the like may take. `encoding` is that of texts;
    empty: found out, file by file. `document_kind` is given to every document; empty takes `kind` from the
    front matter, else "document". Front matter (`key: value` lines between `---`) may hold title, kind, url,
    date, labels, keywords, trust, language, tenant, compartment and sensitivity; other keys become metadata.

    Nothing outside the folder is read, whatever links in it say. `.problems` says what was left out of the
    last reading and why; `.unread` names the documents among it that exist all the same (with a `/` at the
    end: all of a folder).
    """

    phrase_legs: Sequence[str] = ("default",)

    def __init__(
        self,
        *,
        path: FilePath,
        patterns: Sequence[str] = (),
        max_bytes: int = 20_000_000,
        max_files: int = 10_000,
        parse_seconds: float = 60.0,
        document_kind: str = "",
        encoding: str = "",
    ) -> None:
        if not path:
            raise ValueError("Files.path is empty; give a folder or a file.")
        if isinstance(patterns, str) or not all(isinstance(p, str) and p for p in patterns):
            raise ValueError(
                f'Files.patterns {patterns!r} is not a list of file name patterns; give one such as ["*.md"].'
            )
        for name, value in (("max_bytes", max_bytes), ("max_files", max_files)):
            if value < 1:
                raise ValueError(f"Files.{name} is {value!r}; give a number of at least 1.")
        if not 0 < parse_seconds < float("inf"):
            raise ValueError(f"Files.parse_seconds is {parse_seconds!r}; give a number of seconds above 0.")
        try:
            codecs.lookup(encoding or "utf-8")
        except LookupError:
            raise ValueError(
                f'Files.encoding {encoding!r} is not known to Python; give one such as "utf-8".'
            ) from None
        self._folder = Folder(Path(path), patterns, max_bytes, max_files)
        self.local_folder = self._folder.path
        self._snapshot: _Snapshot | None = None
        self._reading = threading.Lock()
        self._parser = Parser(parse_seconds)
        self._files = Reading(self._folder, self._parser, document_kind, encoding)
        self._scans: Threads | None = None
        self._work: Threads | None = None
        self.problems: list[str] = []
        self.unread: list[str] = []
        self.not_read: dict[str, int] = {}
        self.empty_folders: list[str] = []

    @classmethod
    def example(cls) -> Self:
        """Read the folder that comes with the package."""
        return cls(path=str(Path(__file__).parents[1] / "example"), patterns=["*.md"])

    async def open(self) -> None:
        """Start the threads that read: one, so that the folder is looked at once for all who wait; others
        rank.
        """
        self._scans = self._scans or Threads(1, "files-read")
        self._work = self._work or Threads(2, "files-rank")

    async def aclose(self) -> None:
        """Let go of the threads and the texts."""
        for threads in (self._scans, self._work):
            if threads:
                threads.close()
        self._parser.close()
        self._scans = self._work = self._snapshot = None

    async def ping(self) -> None:
        """Raise SourceError when the folder cannot be read now."""
        await self._now()

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return the passages of the folder as it is now, or, when reading it takes too long, as it was last
        time.
        """
        snapshot = await self._in_time(query.deadline)
        return await self._threads(self._work).run(_rank, snapshot, query)

    async def crawl(self) -> AsyncIterator[Document]:
        """Yield every file as one Document; raises SourceError at the end when `max_files` left some out.

        The texts are read one by one and not kept.
        """
        async with aclosing(self.crawl_since({})) as every:
            async for _, _, document in every:
                if document:
                    yield document

    async def crawl_since(
        self, known: Mapping[str, str]
    ) -> AsyncGenerator[tuple[str, str, Document | None], None]:
        """As `crawl`, with each file's id and version, a digest of its bytes; None for one whose version is
        known.

        A file that something was wrong with has the version "".
        """
        threads = self._threads(self._scans)
        listing = await self._list_files()
        await threads.run(self._files.git.refresh)
        problems, unread, versions = list(listing.problems), list(listing.unread), Known(known)
        not_read = Counter(listing.not_read)
        for name, listed in listing.files.items():
            file = await threads.run(self._files.read, name, listed, False, versions)
            problems += file.problems
            unread += file.unread(name)
            not_read[EMPTY] += file.is_empty
            for id in file.unchanged:
                yield id, file.version, None
            for document in file.documents:
                yield document.id, file.version, document
        unread += self._kept(known)
        self.empty_folders = [folder for folder in listing.empty_folders if folder]
        self.problems, self.unread, self.not_read = problems, unread, dict(+not_read)
        if not listing.complete:
            raise SourceError(problems[len(listing.problems) - 1])

    def _kept(self, known: Mapping[str, str]) -> list[str]:
        """Ids that a pattern took before and that it does not match any more: whether they are gone, or
        their folder is not there, nobody can tell.
        """
        patterns = self._folder.patterns
        return [id for id in known if patterns.any_of(patterns.unmatched, id)] if patterns.unmatched else []

    async def size(self) -> int:
        """How many files `crawl` will read."""
        return len((await self._list_files()).files)

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        """Return whole files by their ids, or passages by theirs, those that exist and may be seen, in the
        order asked.
        """
        snapshot = await self._now()
        documents = {passage.id: passage for passage in snapshot.passages}
        documents.update((each.id, each) for file in snapshot.files.values() for each in file.documents)
        return [documents[id] for id in ids if id in documents and visible(documents[id], scope)]

    async def version(self) -> str:
        """Return a digest over the names, sizes and times of the files; reads none of them."""
        listing = await self._list_files()
        lines = [f"{name}\0{listed.modified}\0{listed.size}" for name, listed in listing.files.items()]
        return sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def _threads(self, threads: Threads | None) -> Threads:
        if threads is None:
            raise SourceError(f"Files({str(self._folder.path)!r}) is not open; call `await open()` first.")
        return threads

    def _unreadable(self, error: OSError) -> SourceError:
        reason, path = error.strerror or error, str(self._folder.path)
        message = f"Files.path {path!r} cannot be read ({reason}); give a folder or a file that exists."
        return SourceError(message)

    async def _list_files(self) -> Listing:
        try:
            return await self._threads(self._scans).run(self._folder.list)
        except OSError as error:
            raise self._unreadable(error) from error

    async def _now(self) -> _Snapshot:
        """The folder no older than this call. A reading goes on when its caller gives up, so that the next
        finds it done.
        """
        try:
            return await self._threads(self._scans).run(self._refresh, time.monotonic())
        except OSError as error:
            raise self._unreadable(error) from error

    async def _in_time(self, deadline: float | None) -> _Snapshot:
        """The folder now, or the last reading when the deadline leaves no time for another."""
        if deadline is None:
            return await self._now()
        try:
            async with asyncio.timeout((deadline - time.monotonic()) * 0.8):
                return await self._now()
        except TimeoutError:
            if self._snapshot is not None:
                return self._snapshot
            path = str(self._folder.path)
            message = f"Files.path {path!r} was not read in time; the reading goes on, ask again."
            raise SourceTimeout(message) from None

    def _refresh(self, since: float) -> _Snapshot:
        """Read what changed since the last snapshot, unless that one began after `since`. Runs in the reading
        thread.
        """
        with self._reading:
            old = self._snapshot
            if old and old.scan_start >= since:
                return old
            start = time.monotonic()
            listing = self._folder.list()
            if old is None:
                self._files.git.refresh()
            files = {name: self._reuse(old, name, listed) for name, listed in listing.files.items()}
            if old and list(old.files.items()) == list(files.items()):
                new = old._replace(scan_start=start, listing=listing)
            else:
                passages = tuple(passage for file in files.values() for passage in file.passages)
                ranking = PassageIndex(
                    [_fields(passage) for passage in passages], [passage.language for passage in passages]
                )
                new = _Snapshot(start, listing, files, passages, ranking)
            self._snapshot = new
            problems, unread = list(listing.problems), list(listing.unread)
            not_read = Counter(listing.not_read)
            for name, file in files.items():
                problems += file.problems
                unread += file.unread(name)
                not_read[EMPTY] += file.is_empty
            self.problems, self.unread, self.not_read = problems, unread, dict(+not_read)
            return new

    def _reuse(self, old: _Snapshot | None, name: str, listed: Listed) -> File:
        file = old.files.get(name) if old else None
        return file if file and file.listed == listed else self._files.read(name, listed, True)


def _fields(passage: Document) -> tuple[tuple[str, float], ...]:
    return (passage.title, TITLE), ("\n".join(passage.path), HEADING), (passage.content, BODY)


def _rank(snapshot: _Snapshot, query: Query) -> list[Hit]:
    passages = snapshot.passages
    allowed = None
    if query.scope is not None:
        allowed = {n for n, passage in enumerate(passages) if visible(passage, query.scope)}
    terms = language_terms(
        query.text, snapshot.ranking.languages, required=query.required, excluded=query.excluded
    )
    best = snapshot.ranking.search(
        terms, query.limit, lambda number: matches(passages[number], query), allowed
    )
    return [Hit(document=passages[number], score=score) for number, score in best]
