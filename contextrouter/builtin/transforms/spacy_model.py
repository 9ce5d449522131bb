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
from contextrouter.contracts import Plugin
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


def is_installed(name: str) -> bool:
    """Whether spaCy and the model are installed; imports neither."""
    return all(importlib.util.find_spec(module) is not None for module in ("spacy", name.partition(".")[0]))


def install_command(name: str) -> str:
    """How a model is installed."""
    prefix = "" if importlib.util.find_spec("spacy") is not None else f"{pip_install('spacy')} && "
    return f"{prefix}python -m spacy download {name}"


class ReadsWithSpacy(Plugin):
    """A plugin that reads texts with a spaCy model, in a thread of its own, or without it where it is not
    installed.

    `model` is the name of the model in use, or "". `without_model` tells what happens without it.
    """

    without_model: str
    model: str
    _threads: Threads | None = None

    def __init__(self, model: str) -> None:
        if model and not _NAME.fullmatch(model):
            raise ValueError(
                f"model {model!r} is no name of a spaCy model. Give one that is installed, such as"
                ' "en_core_web_sm".'
            )
        self._configured_model = self.model = model

    async def open(self) -> None:
        """Load the model, where one is named and installed. Where it is not, log the command that installs
        it.
        """
        self.model = self._configured_model
        if not self.model or self._threads is not None:
            return
        if is_installed(self.model):
            threads = Threads(1, "spacy")
            try:
                await threads.run(_load_model, self.model)
            except BaseException:
                threads.close()
                raise
            self._threads = threads
        else:
            _log.warning(
                "Model %r is not installed, %s; install it: %s",
                self.model,
                self.without_model,
                install_command(self.model),
            )
            self.model = ""  # what is made without it is done again once it is there

    async def aclose(self) -> None:
        """Let go of the thread; the model stays for the next."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    async def read_with_model(self, text: str) -> list[Doc] | None:
        """The text as the model read it, segment by segment; None without a model."""
        if self._threads is None:
            return None
        return await self._threads.run(_parse_segments, self.model, text)


def _load_model(name: str) -> Language:
    with _lock:
        if name not in _loaded:
            import spacy

            _loaded[name] = spacy.load(name)
        return _loaded[name]


def _parse_segments(name: str, text: str) -> list[Doc]:
    model = _load_model(name)
    return [model(part) for part in segments(text, min(SEGMENT, model.max_length)) if part.strip()]
