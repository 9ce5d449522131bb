"""Language detection: finds the language of a text, with py3langid."""

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
    """Fills an empty `language` with the ISO 639-1 code of the text's language ("en", "de", "zh").

    `languages` are the possible languages; without any, all 97 known ones are. The language stays empty if
    the text has fewer than `minimum` letters, or if the detector is less than `confidence` (0 to 1) sure. It
    does not read code blocks and addresses.
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
        """Detect all languages."""
        return cls()

    async def open(self) -> None:
        """Load the model. Raises MissingDependency without py3langid, ValueError for an unknown language."""
        self._threads = self._threads or Threads(1, "language")
        if self._identifier is None:
            self._identifier = await self._threads.run(self._load)

    async def aclose(self) -> None:
        """Stop the thread and release the model."""
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
