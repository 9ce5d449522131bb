"""Copies one SQLite database over another, in one transaction."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def copy_pages(at: Path, target: sqlite3.Connection) -> None:
    """Copy a database over another one, in one transaction."""
    with closing(sqlite3.connect(at, isolation_level=None)) as source:
        size = target.execute("PRAGMA page_size").fetchone()[0]
        if size != source.execute("PRAGMA page_size").fetchone()[0]:  # a log ahead cannot change it
            source.execute("PRAGMA journal_mode = DELETE").fetchone()
            source.execute(f"PRAGMA page_size = {int(size)}")
            source.execute("VACUUM")
        source.backup(target)
    target.execute("PRAGMA wal_checkpoint (TRUNCATE)").fetchone()  # the whole store went through the log
