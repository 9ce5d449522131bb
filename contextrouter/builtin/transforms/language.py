"""Language detection: finds the language of a text, with py3langid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from contextrouter.builtin.shared.language_detector import LanguageDetector, language_codes
from contextrouter.contracts import Transform
from contextrouter.model import Document


class Language(LanguageDetector, Transform):
    """Fills an empty `language` with the ISO 639-1 code of the text's language ("en", "de", "zh").

    `languages` are the possible languages; without any, all 97 known ones are. The language stays empty if
    the text has fewer than `minimum` letters, or if the detector is less than `confidence` (0 to 1) sure. It
    does not read code blocks and addresses.
    """

    def __init__(self, *, languages: Sequence[str] = (), minimum: int = 20, confidence: float = 0.5) -> None:
        if minimum < 1:
            raise ValueError(f"minimum {minimum!r} is no number of letters. Give 1 or more.")
        if not 0 <= confidence <= 1:
            raise ValueError(f"confidence {confidence!r} is not between 0 and 1.")
        self.languages, self.minimum, self.confidence = language_codes(languages), minimum, confidence

    @classmethod
    def example(cls) -> Self:
        """Detect all languages."""
        return cls()

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its language."""
        if document.language or self._pool is None:
            return [document]
        language = await self.detect(document.content, minimum=self.minimum, confidence=self.confidence)
        return [document.replace(language=language) if language else document]
