"""Text segments: splits long texts for processing, and runs long work in a thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from contextrouter.runtime.threads import work_aside

T = TypeVar("T")
LONGEST = 20_000
"""Characters of a part; a text up to this long is read faster than a thread is woken."""
_ENDS = (re.compile(r"\n\s*\n"), re.compile(r"[.!?。！？]\s+"), re.compile(r"\s+"))


def segments(text: str, longest: int = LONGEST) -> Iterator[str]:
    """Cut a text after paragraphs, sentences or words into parts of at most `longest` characters; nothing is
    left out.
    """
    start = 0
    while len(text) - start > longest:
        stop = start + longest
        for pattern in _ENDS:
            ends = [match.end() for match in pattern.finditer(text, start + longest // 2, stop)]
            if ends:
                stop = ends[-1]
                break
        yield text[start:stop]
        start = stop
    yield text[start:]


async def run_by_length(text: str, work: Callable[[], T]) -> T:
    """Do what takes as long as a text is long: here for a short one, in a thread for a long one."""
    return work() if len(text) <= LONGEST else await work_aside(work)
