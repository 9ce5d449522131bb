"""Ends the process soon after a command is done, even if a thread or a task of a plugin does not end.

Python waits for every thread before it exits. A plugin's thread that hangs would keep the process, and
whoever reads its output, for as long.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

SECONDS = 1.0
"""Seconds that threads and tasks have to end after the command."""
_alone = False


def own_process() -> None:
    """Declare that this process runs one command and nothing else."""
    global _alone
    _alone = True


def leave_soon(code: int) -> None:
    """Let the process end by itself for `SECONDS`, then end it with this exit code."""
    if _alone:
        timer = threading.Timer(SECONDS, _leave, (code,))
        timer.daemon = True
        timer.start()


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
