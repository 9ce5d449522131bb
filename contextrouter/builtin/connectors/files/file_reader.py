"""Reading of one file: its bytes to documents, and to passages for the live search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from contextrouter.builtin.connectors.files.documents import file_documents
from contextrouter.builtin.connectors.files.folder import Folder, Listed
from contextrouter.builtin.connectors.files.git_dates import GitDates
from contextrouter.builtin.connectors.files.parsing import media
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable
from contextrouter.builtin.connectors.files.parsing.process import Parser
from contextrouter.builtin.connectors.files.parsing.readers import READERS, TEXTS
from contextrouter.builtin.connectors.files.parsing.text import decode
from contextrouter.builtin.connectors.markup import (
    SNIPPET_CHARACTERS,
    Passage,
    json_passages,
    markdown_passages,
    text_passages,
)
from contextrouter.builtin.shared.places import Places
from contextrouter.model import Document

PARSED_BY = 5
"""Goes up when a file of the same bytes becomes another text."""
_CUTS = {"text/markdown": markdown_passages, "application/jsonl": json_passages}
_OF_WHOLE = ("page_starts", "cue_starts", "first_line")  # metadata that a passage does not have
_EMPTY_JSON = (b"", b"{}", b"[]", b"null", b'""')
_PARTS = "n"  # stands in the version of a part between the digest and the number of parts


class File(NamedTuple):
    """One file as it was read. Without documents it is empty, unchanged, or could not be read."""

    listed: Listed
    documents: tuple[Document, ...] = ()
    passages: tuple[Document, ...] = ()
    problems: tuple[str, ...] = ()
    version: str = ""  # of each document; "": something was wrong with the file
    unchanged: tuple[str, ...] = ()  # ids of documents that are known in this version
    is_empty: bool = False

    def unread(self, name: str) -> list[str]:
        """Ids that exist and could not be read; one that ends in `/` stands for all below it."""
        if self.unchanged or self.is_empty:
            return []
        if self.documents:
            return [f"{name}/"] if self.problems and self.documents[0].id != name else []
        return [name, f"{name}/"] if media.media_type(name, b"") in media.IN_PARTS else [name]


class Known:
    """The versions that a store has, by id; files of several documents have one for each."""

    def __init__(self, versions: Mapping[str, str]) -> None:
        self._versions = versions
        self._parts: dict[str, list[str]] = {}
        for id, version in versions.items():
            if _PARTS in version:
                self._parts.setdefault(version, []).append(id)
        self._wholes = {version.partition(_PARTS)[0]: version for version in self._parts}

    def ids(self, name: str, digest: str) -> tuple[tuple[str, ...], str]:
        """The ids of a file whose bytes have this digest, with their version; none unless all are there."""
        if self._versions.get(name) == digest:
            return (name,), digest
        version = self._wholes.get(digest, "")
        ids = tuple(id for id in self._parts.get(version, ()) if id.startswith(f"{name}/"))
        return (ids, version) if ids and len(ids) == int(version.partition(_PARTS)[2]) else ((), "")


class Reading:
    """Reads files of a folder; those that are no text, in the process of `parser`."""

    def __init__(self, folder: Folder, parser: Parser, kind: str, encoding: str) -> None:
        self._folder, self._parser, self._kind, self._encoding = folder, parser, kind, encoding
        self.git = GitDates(folder.path)

    def read(self, name: str, listed: Listed, cut: bool, known: Known | None = None) -> File:
        """Read one file, with its passages when `cut`; what is wrong with it is said, not raised.

        One whose version is known is not parsed.
        """
        try:
            data = self._folder.read(listed)
            digest = sha256(repr((PARSED_BY, self._kind, self._encoding)).encode() + data).hexdigest()[:32]
            unchanged, version = known.ids(name, digest) if known else ((), "")
            if unchanged:
                return File(listed, version=version, unchanged=unchanged)
            kind = media.media_type(name, data)
            if _is_empty(kind, data):
                return File(listed, is_empty=True)
            if not data:
                raise Unreadable("is empty: it has 0 bytes.")
            parsed = self.parse(name, data)
        except OSError as error:
            return File(listed, problems=(f"{name}: cannot be read ({error.strerror or error}).",))
        except Unreadable as error:
            return File(listed, problems=(f"{name}: {error}",))
        committed = self.git.date_of(listed.path, data)
        made = file_documents(name, parsed, listed.modified, self._kind, committed)
        return self._file(name, listed, parsed, made, digest, cut)

    def _file(
        self,
        name: str,
        listed: Listed,
        parsed: Parsed,
        made: Iterable[tuple[Document, list[str]]],
        digest: str,
        cut: bool,
    ) -> File:
        documents, messages = [], [f"{name}: {reason}" for reason in parsed.problems if parsed.parts]
        for document, problems in made:
            documents.append(document)
            messages += [f"{document.id}: {reason}" for reason in problems]
        version = f"{digest}{_PARTS}{len(documents)}" if parsed.parts else digest
        return File(
            listed,
            tuple(documents),
            tuple(passage for document in documents for passage in _passages(document)) if cut else (),
            tuple(messages),
            "" if messages else version,
            is_empty=not documents and not messages,
        )

    def parse(self, name: str, data: bytes) -> Parsed:
        """The text of a file. Raises Unreadable."""
        kind = media.media_type(name, data)
        if kind in READERS and kind not in TEXTS:
            try:
                return self._parser.parse(data, kind)
            except Unreadable as error:
                raise Unreadable(f"{error}{media.hint_of_other_kind(kind, data)}") from None
        text, wrong = decode(data, self._encoding)
        if text is None:
            raise Unreadable(f"{wrong}{media.hint_of_other_kind(kind, data)}")
        problems = [wrong] if wrong else []
        if kind in READERS:
            parsed = self._parser.parse(text.encode("utf-8", "replace"), kind)
            return msgspec.structs.replace(parsed, problems=[*problems, *parsed.problems])
        return Parsed(text=text, media_type=kind, problems=problems, metadata={"first_line": 1})


def _is_empty(kind: str, data: bytes) -> bool:
    """Whether a file that may be empty is: a text, a mailbox, or JSON without a value."""
    if kind in READERS and kind not in TEXTS and kind != media.MBOX:
        return False
    return data.strip() in (_EMPTY_JSON if kind in media.JSON else (b"",))


def _passages(document: Document) -> Iterator[Document]:
    cuts: list[Passage] = _CUTS.get(document.media_type, text_passages)(document.content, document.title)
    end, places = 0, Places(document)
    for number, cut in enumerate(cuts):
        start = document.content.find(cut.text, end)
        position = places.at(start, start + len(cut.text)) if start >= 0 else {}
        end = start + len(cut.text) if start >= 0 else end
        common = {key: value for key, value in document.metadata.items() if key not in _OF_WHOLE}
        yield document.replace(
            content=cut.text,
            title=cut.title,
            path=cut.path,
            id=f"{document.id}#{number}",
            parent=document.id,
            snippet=cut.text[:SNIPPET_CHARACTERS],
            media_type="text/plain" if "json" in document.media_type else document.media_type,
            metadata={**common, **position},
        )
