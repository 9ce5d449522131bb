"""spaCy pipelines, loaded once for a process. Where a model is not installed, work goes on without it, and is
told so.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
from typing import TYPE_CHECKING

from contextrouter.builtin.shared.text_segments import segments
from contextrouter.errors import pip_install
from contextrouter.runtime.threads import Threads

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

SEGMENT = 20_000
"""Characters that are read at once: spaCy needs some 10 kB of memory for each."""
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_log = logging.getLogger("contextrouter")
_lock = threading.Lock()
_loaded: dict[str, Language] = {}


def checked(name: str) -> str:
    """The name of a model as it may stand in settings: that of an installed package, never a path. Raises
    ValueError.
    """
    if name and not _NAME.fullmatch(name):
        raise ValueError(
            f"model {name!r} is no name of a spaCy model. Give one that is installed, such as"
            ' "en_core_web_sm".'
        )
    return name


def installed(name: str) -> bool:
    """Whether spaCy and the model are installed; imports neither."""
    return all(importlib.util.find_spec(each) is not None for each in ("spacy", name.partition(".")[0]))


def command(name: str) -> str:
    """How a model is installed."""
    first = "" if importlib.util.find_spec("spacy") is not None else f"{pip_install('spacy')} && "
    return f"{first}python -m spacy download {name}"


class Reader:
    """Reads texts with one model, in a thread of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._threads: Threads | None = None

    async def open(self, instead: str) -> bool:
        """Load the model. False, and a warning with the command that installs it, where it is not there."""
        if not installed(self.name):
            _log.warning(
                "Model %r is not installed, %s; install it: %s", self.name, instead, command(self.name)
            )
            return False
        self._threads = self._threads or Threads(1, "spacy")
        await self._threads.run(_load, self.name)
        return True

    def close(self) -> None:
        """Let go of the thread; the model stays for the next."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    async def read(self, text: str) -> list[Doc]:
        """What the model finds, segment by segment. Raises RuntimeError when it is not open."""
        if self._threads is None:
            raise RuntimeError(f"Model {self.name!r} is not loaded; call open() first.")
        return await self._threads.run(_read, self.name, text)


def _load(name: str) -> Language:
    with _lock:
        if name not in _loaded:
            import spacy

            _loaded[name] = spacy.load(name)
        return _loaded[name]


def _read(name: str, text: str) -> list[Doc]:
    model = _load(name)
    return [model(part) for part in segments(text, min(SEGMENT, model.max_length)) if part.strip()]
