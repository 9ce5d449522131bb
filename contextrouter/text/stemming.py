"""Stemming: the stem of a word by the Snowball algorithms, English (Porter2) where no language is named.

Index and question are stemmed alike, so that "connections" finds "connected".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

ALGORITHMS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "norwegian",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
"""Language -> the Snowball algorithm that stems it."""
ENGLISH = "en"
"""The language of texts that name none, or one without stems."""
STEMMED = frozenset(ALGORITHMS) - {ENGLISH}
"""Languages other than English that have stems."""

_local = threading.local()  # a stemmer holds the word it works on, so each thread has its own


@lru_cache(maxsize=100_000)
def stem(word: str, language: str = "en") -> str:
    """Return the stem of a lower-case word. `language` is a key of `ALGORITHMS`; any other language has no
    stems.
    """
    if language not in ALGORITHMS:
        return word
    stemmed: str = _stemmer(ALGORITHMS[language]).stemWord(word)
    return stemmed


def stem_language(language: str | None) -> str:
    """Return the language whose stems the words of a language get: "de" for "de-AT"; "en" where there are no
    others.
    """
    code = (language or "").lower().replace("_", "-").partition("-")[0]
    return code if code in ALGORITHMS else ENGLISH


def stemmer(language: str | None) -> Callable[[str], str] | None:
    """Return what stems the words of a language ("de", "de-AT"); None for English, and where there are no
    stems.
    """
    code = stem_language(language)
    return None if code == ENGLISH else partial(stem, language=code)


def begins(term: str) -> str:
    """Return what every word begins with whose English stem is `term`.

    Such a word differs from its stem in the stem's last two letters at most; "dying" has the stem "die".
    """
    if len(term) == 3 and term.endswith("ie"):
        return term[:1]
    return term[: max(2, len(term) - 2)]


def _stemmer(algorithm: str) -> Any:
    """Return this thread's stemmer.

    The pure Python one, also where PyStemmer is installed: its older versions stem otherwise, and processes
    that share a store must agree.
    """
    stemmers: dict[str, Any] = _local.__dict__
    if algorithm not in stemmers:
        from importlib import import_module  # loaded with the first word: importing contextrouter stays cheap

        module = import_module(f"snowballstemmer.{algorithm}_stemmer")
        stemmers[algorithm] = getattr(module, f"{algorithm.title()}Stemmer")()
    return stemmers[algorithm]
