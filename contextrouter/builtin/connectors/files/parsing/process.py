"""Parser process: parses files in a separate process, and kills it at a time limit."""

from __future__ import annotations

import subprocess
import threading
from typing import BinaryIO, cast

import msgspec

from contextrouter.builtin.connectors.files.parsing import worker
from contextrouter.builtin.connectors.files.parsing.parsed import Parsed, Unreadable
from contextrouter.builtin.connectors.reader_process import end_process, start_process
from contextrouter.errors import MissingDependency

JOBS = 500
"""Files after which a process makes room for a new one."""
_NAMES = {
    "pdfminer": "pdfminer-six",
    "docx": "python-docx",
    "pptx": "python-pptx",
    "python_calamine": "python-calamine",
}


class Parser:
    """One process, started when it is needed. `parse` blocks: call it in a thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._jobs = 0
        self._turn = threading.Lock()

    def parse(self, data: bytes, media_type: str) -> Parsed:
        """Return what a file says. Raises Unreadable."""
        with self._turn:
            late = threading.Event()
            process = self._process or self._start()
            clock = threading.Timer(self.seconds, _kill, (process, late))
            clock.start()
            try:
                answer = self._ask(process, data, media_type)
            finally:
                clock.cancel()
            self._jobs += 1
            if answer is None or self._jobs >= JOBS or late.is_set():
                self._end()
        if answer is None:
            slow = f"took more than {self.seconds:g} seconds to read."
            damaged = "ended the process that read it: it is damaged, or needs more than 2 GB of memory."
            raise Unreadable(slow if late.is_set() else damaged)
        if answer.package:
            name = _NAMES.get(answer.package, answer.package)
            extra = "rss" if name == "feedparser" else "documents"
            raise Unreadable(str(MissingDependency(name, extra, what="Reading it")))
        if answer.parsed is None:
            raise Unreadable(answer.why)
        return answer.parsed

    def _ask(self, process: subprocess.Popen[bytes], data: bytes, media_type: str) -> worker.Answer | None:
        """The answer; None when the process ended instead."""
        try:
            job = msgspec.json.encode(worker.Job(media_type, len(data)))
            worker.send(cast(BinaryIO, process.stdin), job, data)
            message = worker.receive(cast(BinaryIO, process.stdout))
        except (OSError, ValueError):
            return None
        return None if message is None else msgspec.json.decode(message, type=worker.Answer)

    def _start(self) -> subprocess.Popen[bytes]:
        self._jobs = 0
        self._process = start_process("-m", worker.__name__)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process)

    def close(self) -> None:
        """End the process. What it is reading is unreadable."""
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._end()


def _kill(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()
