"""Language detection: the base class of plugins that ask py3langid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from contextrouter.builtin.shared.model_in_threads import ModelInThreads
from contextrouter.errors import MissingDependency

_READ = 5_000  # characters; more do not change the answer
_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1[^\n]*$|\Z)|`[^`\n]+`|https?://\S+", re.M | re.S)
_LETTER = re.compile(r"[^\W\d_]")


class LanguageDetector(ModelInThreads[Any]):
    """A plugin that has the detector in one thread, for the languages in `languages`; without any, for all.

    `open()` raises MissingDependency without py3langid, and ValueError for a language that it does not know.
    """

    label = "Telling languages apart"
    extra = "language"
    packages = MappingProxyType({"py3langid": "py3langid"})
    threads = 1
    languages: tuple[str, ...]

    def load(self) -> Any:
        """Read the detector, and limit it to the languages."""
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError:
            raise MissingDependency("py3langid", self.extra, what=self.label) from None
        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        if unknown := sorted({*self.languages} - {*identifier.labels}):
            raise ValueError(
                f"languages: {', '.join(unknown)} cannot be told. Known are {', '.join(identifier.labels)}."
            )
        if self.languages:
            identifier.set_languages(list(self.languages))
        return identifier

    async def detect(self, text: str, *, minimum: int, confidence: float) -> str | None:
        """Return the language of a text; None with fewer than `minimum` letters, or if the detector is less
        than `confidence` (0 to 1) sure. Code blocks and addresses are not read.
        """
        text = _CODE.sub(" ", text[:_READ])
        if len(_LETTER.findall(text)) < minimum:
            return None
        pool, identifier = self._get_model()
        code, share = await pool.run(identifier.classify, text)
        return str(code) if share >= confidence else None


def language_codes(languages: Sequence[str]) -> tuple[str, ...]:
    """Return the setting `languages`. Raises ValueError if it is not a list of codes."""
    if isinstance(languages, str) or not all(isinstance(code, str) and code for code in languages):
        raise ValueError(f'languages {languages!r} is not a list of codes. Give one such as ["en", "de"].')
    return tuple(dict.fromkeys(languages))
