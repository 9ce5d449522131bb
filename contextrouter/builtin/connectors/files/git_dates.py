"""Dates of files from git: when a file that is as it was committed was last changed.

In a fresh clone all files have the time of the clone, which says nothing of them. Git is asked by its
plumbing commands, which start no program that the settings of a repository may name, and fetch nothing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha1, sha256
from pathlib import Path
from typing import NamedTuple

SECONDS = 30.0
"""How long git may take; without an answer the files have no date of git."""
MOST_COMMITS = 50_000
"""Commits that are looked at, the newest."""
_MARK = "\x01"  # before the time of a commit; no name of a file that git does not quote has it
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")


class _Committed(NamedTuple):
    """A file in the newest commit: the digest of its bytes, and when it was last changed."""

    digest: str
    moment: datetime


class GitDates:
    """The dates of the files of one folder. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._head = ""
        self._files: Mapping[str, _Committed] = {}

    def refresh(self) -> None:
        """Read the dates again if there is a newer commit."""
        top = _work_tree(self._folder)
        head = "" if top is None else _git(top, "rev-parse", "--verify", "-q", "HEAD").strip()
        if head != self._head:
            self._head = head
            self._files = {} if top is None or not head else _files_of_commit(top, head)

    def date_of(self, path: str, data: bytes) -> datetime | None:
        """Return when a file was last changed by a commit; None if its bytes are not the committed ones."""
        committed = self._files.get(path)
        if committed is None or _digest(data, len(committed.digest)) != committed.digest:
            return None
        return committed.moment


def choose_date(
    own: datetime | None, committed: datetime | None, modified: int
) -> tuple[datetime | None, str]:
    """Return a document's date, and whose it is: "document", "git" or "file". `modified` is in ns; None: no
    calendar has it.
    """
    if own is not None:
        return own, "document"
    if committed is not None:
        return committed, "git"
    return _moment_of(modified / 1e9), "file"


def _moment_of(seconds: float) -> datetime | None:
    """Return the moment so many seconds after 1970; None for one beyond the calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _work_tree(folder: Path) -> Path | None:
    """Return the top of the work tree that a folder lies in."""
    folder = folder.resolve()
    place = folder if folder.is_dir() else folder.parent
    return next((top for top in (place, *place.parents) if (top / ".git").exists()), None)


def _files_of_commit(top: Path, head: str) -> dict[str, _Committed]:
    """Return path -> what git knows of the file, for every file of a commit."""
    moments: dict[str, datetime] = {}
    commits = _git(top, "rev-list", f"--max-count={MOST_COMMITS}", head)
    moment: datetime | None = None
    listing = ("diff-tree", "--stdin", "-r", "--root", "--name-only", f"--format={_MARK}%ct")
    for line in _git(top, *listing, stdin=commits).splitlines():
        if line.startswith(_MARK):
            moment = _moment_of(int(line[1:]))
        elif line and moment is not None:
            moments.setdefault(line, moment)  # commits come newest first
    files: dict[str, _Committed] = {}
    for entry in _git(top, "ls-tree", "-r", "-z", "--full-tree", head).split("\0"):
        described, _, name = entry.partition("\t")
        if name in moments:
            files[str(top / name)] = _Committed(described.split()[2], moments[name])
    return files


def _git(top: Path, *arguments: str, stdin: str = "") -> str:
    """Return what git prints; "" if it is absent, refuses the repository, or takes too long."""
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environment.pop(name, None)
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program; the arguments are written here, but for a path
            ["git", "-C", str(top), *_SAFE, *arguments],  # noqa: S607 - wherever the user has installed it
            input=stdin.encode(),
            capture_output=True,
            timeout=SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _digest(data: bytes, length: int) -> str:
    """The name that git gives to these bytes: SHA-1, or SHA-256 in a repository that is set so."""
    algorithm = sha256 if length == 64 else sha1
    return algorithm(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
