"""Language of a question: by its script, then with py3langid among the languages that are expected."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Self

from contextrouter.builtin.shared.language_detector import LanguageDetector, language_codes
from contextrouter.contracts import Interpreter, InterpreterContext
from contextrouter.model import Intent
from contextrouter.text.scripts import script_of

LATIN = "LATIN"
_LANGUAGES_OF = {
    "ARABIC": "ar fa ps sd ug ur",
    "ARMENIAN": "hy",
    "BENGALI": "as bn",
    "CJK": "ja zh",
    "CYRILLIC": "ba be bg kk ky mk mn ru sr tg tt uk",
    "DEVANAGARI": "hi mr ne sa",
    "ETHIOPIC": "am ti",
    "GEORGIAN": "ka",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HANGUL": "ko",
    "HEBREW": "he yi",
    "KANA": "ja",
    "KANNADA": "kn",
    "KHMER": "km",
    "LAO": "lo",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "ORIYA": "or",
    "SINHALA": "si",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
    "TIBETAN": "bo dz",
}
"""Script -> the languages that use it. All other languages have Latin letters; Serbian has both."""
SCRIPTS = {
    code: script for script, codes in _LANGUAGES_OF.items() for code in codes.split() if script != "KANA"
}
"""Language -> its script, where that is not the Latin one."""
_UNSPACED = frozenset({"CJK", "HANGUL", "KANA", "KHMER", "LAO", "MYANMAR", "THAI", "TIBETAN"})
_LEAST_WORDS = 3
_READ = 2_000  # characters of a question; more do not change the answer
_READ_WORDS = 20
_EDGES = " \t\n.,;:!?¡¿…\"'“”„‚‘’«»()[]{}<>，。？！、；：「」『』（）؟،।-–—"
_NO_WORD = re.compile(r"[\d_@/\\=<>{}|~$%^*+#]|\w[.:]\w")


class Language(LanguageDetector, Interpreter):
    """Fills an empty `language` with the ISO 639-1 code of the question's language ("en", "de", "zh").

    `languages` are those that askers use; the answer is one of them, or none. A script that only one of them
    has decides alone, but never the Latin one, for names and terms of all languages are written in it. Else
    the detector decides by the running words: names, codes and numbers say nothing. The language stays empty
    for fewer than three such words (four in a question without capitals) or fewer than `minimum` letters, and
    if the best language is less than `margin` (0 to 1) surer than the second.
    """

    def __init__(self, *, languages: Sequence[str], minimum: int = 8, margin: float = 0.4) -> None:
        self.languages = language_codes(languages)
        if wrong := [code for code in self.languages if not re.fullmatch("[a-z]{2}", code)]:
            raise ValueError(f'languages: {wrong[0]!r} is no ISO 639-1 code. Give two letters, such as "en".')
        if not self.languages:
            raise ValueError('languages is empty. List the languages of the questions, such as ["en", "de"].')
        if minimum < 1:
            raise ValueError(f"minimum {minimum!r} is no number of letters. Give 1 or more.")
        if not 0 <= margin <= 1:
            raise ValueError(f"margin {margin!r} is not between 0 and 1.")
        self._minimum, self._margin = minimum, margin

    @classmethod
    def example(cls) -> Self:
        """Four languages in two scripts, and one in a script of its own."""
        return cls(languages=["en", "de", "ru", "uk", "el"])

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with its language. One that is set already stays."""
        if intent.language:
            return intent
        script, words = running_words(intent.question)
        possible = [code for code in self.languages if _uses(code, script)]
        if len(possible) == 1 and script != LATIN:
            return intent.replace(language=possible[0])
        if not possible or not self._enough(intent.question, script, words):
            return intent
        pool, identifier = self._get_model()
        language = await pool.run(self._likeliest, identifier, possible, words[:_READ_WORDS])
        return intent.replace(language=language) if language else intent

    def _enough(self, question: str, script: str, words: Sequence[str]) -> bool:
        letters = sum(letter.isalpha() for word in words for letter in word)
        # Without a capital, a name looks like running words.
        minimum_words = _LEAST_WORDS + question.islower()
        return letters >= self._minimum and (script in _UNSPACED or len(words) >= minimum_words)

    def _likeliest(self, identifier: Any, possible: Sequence[str], words: Sequence[str]) -> str | None:
        """Return the likeliest of the possible languages, if it is clearly likelier than the next."""
        ranked = [(str(code), share) for code, share in identifier.rank(" ".join(words)) if code in possible]
        (best, share), (_, following) = (*ranked, ("", 0.0))[:2]
        return best if share - following >= self._margin * sum(share for _, share in ranked) else None


def _uses(code: str, script: str) -> bool:
    if script == LATIN:
        return code == "sr" or code not in SCRIPTS
    return code in _LANGUAGES_OF.get(script, "").split()


def running_words(question: str) -> tuple[str, list[str]]:
    """Return the script of a question and its running words in it; "" and none if no script prevails.

    Capitalised words are names, except the first one. Latin words count from the third on: questions in all
    scripts have some.
    """
    by_script = defaultdict[str, list[str]](list)
    for at, token in enumerate(unicodedata.normalize("NFKC", question[:_READ]).split()):
        word = token.strip(_EDGES)
        if script := _script(word):
            lower = word[:1].lower() + word[1:] if at == 0 else word
            if script in _UNSPACED or (lower == lower.lower() and not _NO_WORD.search(word)):
                by_script[script].append(word)
    if len(by_script[LATIN]) < _LEAST_WORDS:
        del by_script[LATIN]
    if "KANA" in by_script:
        by_script["KANA"] += by_script.pop("CJK", [])  # Japanese has both
    letters = {script: _count(script, words) for script, words in by_script.items()}
    script = max(letters, key=lambda name: letters[name], default="")
    others = sum(letters.values()) - letters.get(script, 0)
    minimum = 2 if script in _UNSPACED else 3
    return (script, by_script[script]) if letters.get(script, 0) >= max(minimum, 3 * others) else ("", [])


def _count(script: str, words: Sequence[str]) -> int:
    return sum(_letter_script(letter) in (script, "CJK") for word in words for letter in word)


def _script(word: str) -> str:
    """Return the script of a word: of its letters that are not Latin, if it has any."""
    scripts = {_letter_script(letter) for letter in word if letter.isalpha()}
    others = sorted(scripts - {LATIN})
    return "KANA" if "KANA" in others else others[0] if others else LATIN if scripts else ""


def _letter_script(letter: str) -> str:
    script = script_of(letter)
    return "KANA" if script in ("HIRAGANA", "KATAKANA") else script
