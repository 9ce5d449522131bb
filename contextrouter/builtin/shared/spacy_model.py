"""spaCy models, loaded once for each process. If a model is not installed, plugins work without it."""

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
"""Characters of one part of a text. spaCy needs about 10 kB of memory for each character."""
KINDS = {
    "PERSON": "person",
    "PER": "person",
    "ORG": "organization",
    "GPE": "place",
    "LOC": "place",
    "FAC": "place",
    "NORP": "group",
    "PRODUCT": "product",
    "EVENT": "event",
    "WORK_OF_ART": "work",
    "LAW": "law",
    "LANGUAGE": "language",
    "MISC": "name",
}
"""Label of a spaCy model -> kind of entity. Entities with other labels (numbers, dates) are left out."""
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_log = logging.getLogger("contextrouter")
_lock = threading.Lock()
_loaded: dict[str, Language] = {}


def is_installed(name: str) -> bool:
    """Whether spaCy and the model are installed. It imports neither."""
    return all(importlib.util.find_spec(module) is not None for module in ("spacy", name.partition(".")[0]))


def install_command(name: str) -> str:
    """Return the command that installs a model."""
    prefix = "" if importlib.util.find_spec("spacy") is not None else f"{pip_install('spacy')} && "
    return f"{prefix}python -m spacy download {name}"


class ReadsWithSpacy(Plugin):
    """Base class of plugins that read texts with a spaCy model, in a separate thread.

    `model` is the name of the model in use, or "" if it is not installed. `without_model` says what the
    plugin does without it.
    """

    without_model: str
    model: str
    _threads: Threads | None = None

    def __init__(self, model: str) -> None:
        if model and not _NAME.fullmatch(model):
            raise ValueError(
                f"model {model!r} is no name of a spaCy model. Give an installed one, such as"
                ' "en_core_web_sm".'
            )
        self._configured_model = self.model = model

    async def open(self) -> None:
        """Load the model. If it is not installed, log the command that installs it."""
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
                "Model %r is not installed, so %s. Install it: %s",
                self.model,
                self.without_model,
                install_command(self.model),
            )
            self.model = ""  # so that ingestion repeats the documents when the model is there

    async def aclose(self) -> None:
        """Stop the thread. The model stays loaded."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    async def read_with_model(self, text: str) -> list[Doc] | None:
        """Return the parsed parts of the text, or None without a model."""
        if self._threads is None:
            return None
        return await self._threads.run(_parse_segments, self.model, text)


def clean_name(name: str) -> str:
    """Return a name on one line, without article and possessive 's."""
    return re.sub(r"^(?:the|an?)\s+|['’]s$", "", " ".join(name.split()), flags=re.I)


def _load_model(name: str) -> Language:
    with _lock:
        if name not in _loaded:
            import spacy

            _loaded[name] = spacy.load(name)
        return _loaded[name]


def _parse_segments(name: str, text: str) -> list[Doc]:
    model = _load_model(name)
    return [model(part) for part in segments(text, min(SEGMENT, model.max_length)) if part.strip()]
