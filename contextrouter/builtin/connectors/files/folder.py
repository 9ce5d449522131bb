"""Directory walk: finds and reads the files of a folder, without leaving it by a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from contextrouter.builtin.connectors.files.git_dates import choose_date
from contextrouter.builtin.connectors.files.parsing.media import MEDIA_TYPES
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed
from contextrouter.builtin.connectors.markup import as_list, as_moment, first_heading, front_matter
from contextrouter.model import Document
from contextrouter.scope import SENSITIVITIES

MAX_DEPTH = 64
_WITH_FRONT_MATTER = ("text/markdown", "text/plain", "text/x-rst")
_TAKEN = {
    "title",
    "kind",
    "url",
    "date",
    "labels",
    "keywords",
    "trust",
    "sensitivity",
    "tenant",
    "compartment",
    "language",
}


class Listed(NamedTuple):
    """A file that was found: where it really lies, and what changes when its content does."""

    path: str
    modified: int  # nanoseconds since 1970
    size: int  # bytes


class Listing(NamedTuple):
    """The files of a folder by id (relative path, `/` between its parts), in order, and what was left out and
    why.
    """

    files: dict[str, Listed]
    problems: list[str]
    unread: list[str]  # ids that exist and could not be taken; one that ends in "/" stands for all below it
    complete: bool


class Folder:
    """A folder, or a single file, and the rules by which its files are taken."""

    def __init__(self, path: Path, patterns: Sequence[str], max_bytes: int, max_files: int) -> None:
        self.path, self.patterns, self.max_bytes, self.max_files = path, tuple(patterns), max_bytes, max_files

    def list(self) -> Listing:
        """Return what is there now. Raises OSError when the folder cannot be read."""
        root = self.path.resolve(strict=True)
        listing = Listing({}, [], [], True)
        if root.is_file():
            self._take(root.name, str(root), root.stat(), listing)
            return listing
        for name, entry in self._walk(str(root), "", listing, 0):
            if len(listing.files) >= self.max_files:
                listing.problems.append(
                    f"{self.path}: more than {self.max_files} files; raise `max_files` to read them all."
                )
                return listing._replace(complete=False)
            try:
                location = self._inside(root, entry)
                self._take(name, location, os.stat(location), listing)
            except (OSError, RuntimeError) as error:
                listing.problems.append(
                    f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})."
                )
                listing.unread.append(name)
            except ValueError as error:
                listing.problems.append(f"{name}: {error}")
        return listing

    def _walk(
        self, folder: str, prefix: str, listing: Listing, depth: int
    ) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files that the patterns take, in order of their paths; never through a link to a
        folder.
        """
        try:
            with os.scandir(folder) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if not depth:
                raise
            listing.problems.append(
                f"{prefix}: cannot be read ({error.strerror}); what it holds is taken for unread."
            )
            listing.unread.append(prefix)
            return
        for entry in ordered:
            name = prefix + entry.name
            if entry.name.startswith("."):
                continue
            if not _is_text(entry.name):
                listing.problems.append(f"{name!r}: a name that is no text; rename it.")
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    yield from self._walk(entry.path, name + "/", listing, depth + 1)
                else:
                    listing.problems.append(f"{name}: lies deeper than {MAX_DEPTH} folders and was left out.")
            elif entry.is_symlink() and entry.is_dir():
                listing.problems.append(f"{name}: a link to a folder is not followed.")
            elif self._is_wanted(entry.name):
                yield name, entry

    def _is_wanted(self, name: str) -> bool:
        """Whether the patterns take a file of this name; without patterns, those whose media type its suffix
        says.
        """
        if not self.patterns:
            return os.path.splitext(name)[1].lower() in MEDIA_TYPES
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def _inside(self, root: Path, entry: os.DirEntry[str]) -> str:
        """Where an entry really lies. Raises ValueError for a link that leaves the folder."""
        if not entry.is_symlink():
            return entry.path  # no folder above it is a link either
        real = Path(entry.path).resolve(strict=True)
        if not real.is_relative_to(root):
            raise ValueError("a link that leaves the folder is refused.")
        return str(real)

    def _take(self, name: str, location: str, status: os.stat_result, listing: Listing) -> None:
        """Put one file on the listing, or the reason why not."""
        if not stat.S_ISREG(status.st_mode):
            listing.problems.append(f"{name}: is no regular file.")
        elif status.st_size > self.max_bytes:
            listing.problems.append(
                f"{name}: {status.st_size} bytes are more than `max_bytes` = {self.max_bytes}."
            )
            listing.unread.append(name)
        else:
            listing.files[name] = Listed(location, status.st_mtime_ns, status.st_size)

    def read(self, listed: Listed) -> bytes:
        """Return a file's bytes, at most `max_bytes`. Raises OSError when some part of its path has become a
        link meanwhile.
        """
        if os.path.realpath(listed.path) != listed.path:
            raise OSError(errno.ELOOP, "has become a symbolic link")
        with open(os.open(listed.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(self.max_bytes)


def _is_text(name: str) -> bool:
    """Whether a file's name is Unicode; bytes that are not come as lone surrogates, which no store takes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def file_document(
    name: str, parsed: Parsed, modified: int, kind: str, committed: datetime | None = None
) -> tuple[Document, list[str]]:
    """Return a file's whole Document, front matter taken out of its content, and what was wrong with it.

    Its date is its own, else that of its last commit, else that of the file; `metadata["dated_by"]` says so.
    """
    problems = list(parsed.problems)
    front: dict[str, str | list[str]] = {}
    content = parsed.text
    if parsed.media_type in _WITH_FRONT_MATTER:
        front, content, unread = front_matter(content)
        problems += (f"front matter line {line!r} is not `key: value`." for line in unread)
    values = {key: ", ".join(value) if isinstance(value, list) else value for key, value in front.items()}
    heading = first_heading(content) if parsed.media_type == "text/markdown" else ""
    moment = as_moment(values.get("date", ""))
    metadata: dict[str, Any] = {
        **parsed.metadata,
        **{key: value for key, value in front.items() if key not in _TAKEN},
    }
    if values.get("date"):
        metadata["date"] = values["date"]
        if not moment:
            problems.append(f"date {values['date']!r} is no ISO date such as 2026-01-31.")
    updated, metadata["dated_by"] = choose_date(moment, committed, modified)
    return Document(
        content=content if "page_starts" in metadata else content.strip(),
        id=name,
        url=values.get("url") or name,
        title=values.get("title") or parsed.title or heading or Path(name).stem,
        kind=kind or values.get("kind") or "document",
        media_type=parsed.media_type,
        updated_at=updated,
        links=tuple(parsed.links),
        keywords=as_list(front.get("keywords", "")),
        labels=as_list(front.get("labels", "")),
        metadata=metadata,
        sensitivity=_sensitivity(values, problems),
        trust=values.get("trust") or None,
        tenant=None
        if values.get("tenant") in ("", "*")
        else values.get("tenant"),  # no file makes itself everybody's
        compartment=values.get("compartment") or None,
        language=values.get("language") or parsed.language or None,
    ), problems


def _sensitivity(values: dict[str, str], problems: list[str]) -> str | None:
    """Return the label; one that is not known stays as it is, which means that nobody in a scope sees the
    file.
    """
    value = values.get("sensitivity") or None
    if value and value not in SENSITIVITIES:
        problems.append(f"sensitivity {value!r} is not one of {', '.join(SENSITIVITIES)}.")
    return value
