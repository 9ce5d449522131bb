"""Reader processes: parse what strangers wrote in a process of its own, which has no secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

_PASSED_ON = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "SYSTEMROOT",
    "TMPDIR",
)
"""The variables that a process gets. The others may hold secrets."""


def start_process(*program: str) -> subprocess.Popen[bytes]:
    """Start this interpreter with a program. It reads messages from its pipe, and answers on another."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return subprocess.Popen(  # noqa: S603 - this interpreter, and a program of this package
        [sys.executable, "-P", *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, whatever it does, and close its pipes."""
    process.kill()
    process.wait()  # it was killed: this takes a moment, and leaves nothing behind
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError, ValueError):
            if pipe is not None:
                pipe.close()
