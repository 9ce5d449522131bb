"""Directory walk: finds and reads the files of a folder, without leaving it by a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from contextrouter.builtin.connectors.files.parsing.media import (
    BEGINNING,
    JUDGED_BY_BEGINNING,
    MEDIA_TYPES,
    is_readable_beginning,
)
from contextrouter.builtin.connectors.files.patterns import Patterns

MAX_DEPTH = 64
NO_SUFFIX = "no suffix"
HIDDEN = "hidden"


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
    empty_folders: list[str]  # each ends in "/"
    not_read: Counter[str]  # suffix -> number of files of a kind that is not read; a hidden folder is one


class Folder:
    """A folder, or a single file, and the rules by which its files are taken."""

    def __init__(self, path: Path, patterns: Sequence[str], max_bytes: int, max_files: int) -> None:
        self.path, self.patterns = path, Patterns(patterns)
        self.max_bytes, self.max_files = max_bytes, max_files

    def list(self) -> Listing:
        """Return what is there now. Raises OSError when the folder cannot be read."""
        root = self.path.resolve(strict=True)
        listing = Listing({}, [], [], True, [], Counter())
        if root.is_file():
            self._take(root.name, str(root), root.stat(), listing)
            return listing
        self.patterns.begin()
        suffixes: Counter[str] = Counter()
        for name, entry in self._walk(str(root), "", listing, 0):
            suffixes[_suffix(name) or NO_SUFFIX] += 1
            if not self._is_wanted(name, entry, listing):
                continue
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
        return self._with_unmatched(listing, suffixes)

    def _with_unmatched(self, listing: Listing, suffixes: Counter[str]) -> Listing:
        """The listing with a problem for each pattern that matches nothing. It is not complete when all match
        nothing: the folder is not what it was, or the patterns are wrong.
        """
        for pattern in self.patterns.unmatched:
            there = ", ".join(f"{suffix} {count}" for suffix, count in suffixes.most_common(10))
            listing.problems.append(
                f"{self.path}: pattern {pattern!r} matches no file; there are {there or 'no files'}."
                " `*` stops at a `/`, `**/` goes through folders."
            )
        is_nothing = bool(self.patterns) and not listing.files and not listing.unread
        return listing._replace(complete=False) if is_nothing else listing

    def _walk(
        self, folder: str, prefix: str, listing: Listing, depth: int
    ) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files in order of their paths; never through a link to a folder."""
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
        if not ordered:
            listing.empty_folders.append(prefix)
        for entry in ordered:
            name = prefix + entry.name
            if entry.name.startswith("."):
                listing.not_read[HIDDEN] += not self.patterns
                continue
            if not _is_text(entry.name):
                listing.problems.append(f"{name!r}: a name that is no text; rename it.")
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    yield from self._walk(entry.path, name + "/", listing, depth + 1)
                else:
                    listing.problems.append(f"{name}: lies deeper than {MAX_DEPTH} folders and was left out.")
            elif entry.is_symlink() and _leads_to_folder(entry):
                listing.problems.append(f"{name}: a link to a folder is not followed.")
            else:
                yield name, entry

    def _is_wanted(self, name: str, entry: os.DirEntry[str], listing: Listing) -> bool:
        """Whether the patterns take a file. Without patterns: whether its suffix, or else its beginning, says
        that it can be read; one that cannot is counted.
        """
        if self.patterns:
            return self.patterns.match(name)
        suffix = _suffix(name)
        if suffix in JUDGED_BY_BEGINNING:
            is_taken = is_readable_beginning(suffix, self._beginning(entry))
        else:
            is_taken = suffix in MEDIA_TYPES
        if not is_taken:
            listing.not_read[suffix or NO_SUFFIX] += 1
        return is_taken

    def _beginning(self, entry: os.DirEntry[str]) -> bytes:
        """The first bytes of a file; none of one that is a link, or cannot be read."""
        try:
            with open(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                return file.read(BEGINNING) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        except OSError:
            return b""

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


def _leads_to_folder(link: os.DirEntry[str]) -> bool:
    """Whether a link leads to a folder; one that leads to itself leads nowhere."""
    try:
        return link.is_dir()
    except OSError:
        return False


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _is_text(name: str) -> bool:
    """Whether a file's name is Unicode; bytes that are not come as lone surrogates, which no store takes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
