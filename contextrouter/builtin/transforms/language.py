"""Language detection: which language a text is written in, by py3langid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self

from contextrouter.contracts import Transform
from contextrouter.errors import MissingDependency
from contextrouter.model import Document
from contextrouter.runtime.threads import Threads

_READ = 5_000  # characters; more do not change the answer
_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1[^\n]*$|\Z)|`[^`\n]+`|https?://\S+", re.M | re.S)
_LETTER = re.compile(r"[^\W\d_]")


class Language(Transform):
    """Fills `language` with the ISO 639-1 code of the language that the text is written in ("en", "de",
    "zh"), where it has none.

    `languages` are those that come into question; none: all 97 that are known. A text of fewer than `minimum`
    letters, or one whose language is less than `confidence` (0 to 1) certain, keeps none. Code blocks and
    addresses are not read.
    """

    def __init__(self, *, languages: Sequence[str] = (), minimum: int = 20, confidence: float = 0.5) -> None:
        if isinstance(languages, str) or not all(isinstance(code, str) and code for code in languages):
            raise ValueError(
                f'languages {languages!r} is not a list of codes. Give one such as ["en", "de"].'
            )
        if minimum < 1:
            raise ValueError(f"minimum {minimum!r} is no number of letters. Give 1 or more.")
        if not 0 <= confidence <= 1:
            raise ValueError(f"confidence {confidence!r} is not between 0 and 1.")
        self.languages, self.minimum, self.confidence = tuple(languages), minimum, confidence
        self._identifier: Any = None
        self._threads: Threads | None = None

    @classmethod
    def example(cls) -> Self:
        """All languages."""
        return cls()

    async def open(self) -> None:
        """Load the model. Raises MissingDependency without py3langid, ValueError for a language it does not
        know.
        """
        self._threads = self._threads or Threads(1, "language")
        if self._identifier is None:
            self._identifier = await self._threads.run(self._load)

    async def aclose(self) -> None:
        """Let go of the model."""
        threads, self._threads, self._identifier = self._threads, None, None
        if threads is not None:
            threads.close()

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its language."""
        if document.language or self._threads is None:
            return [document]
        text = _CODE.sub(" ", document.content[:_READ])
        if len(_LETTER.findall(text)) < self.minimum:
            return [document]
        code, confidence = await self._threads.run(self._identifier.classify, text)
        return [document.replace(language=str(code)) if confidence >= self.confidence else document]

    def _load(self) -> Any:
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError:
            raise MissingDependency("py3langid", "language", what="Telling languages apart") from None
        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        if self.languages:
            identifier.set_languages(list(self.languages))
        return identifier
