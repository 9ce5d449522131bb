"""Stemming: the stem of a word by the Snowball algorithms, English (Porter2) where no language is named.

Index and question are stemmed alike, so that "connections" finds "connected".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, lru_cache, partial
from importlib import import_module
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
    """Return this thread's stemmer."""
    stemmers: dict[str, Any] = _local.__dict__
    if algorithm not in stemmers:
        stemmers[algorithm] = compiled_stemmer(algorithm) or python_stemmer(algorithm)
    return stemmers[algorithm]


def python_stemmer(algorithm: str) -> Any:
    """Return the stemmer of the package snowballstemmer, which is in Python."""
    module = import_module(f"snowballstemmer.{algorithm}_stemmer")
    return getattr(module, f"{algorithm.title()}Stemmer")()


def compiled_stemmer(algorithm: str) -> Any:
    """Return the stemmer of PyStemmer, which is in C and takes a fortieth of the time.

    None where PyStemmer is missing, and where it is of another version than snowballstemmer: others stem
    otherwise, and processes that share a store must agree.
    """
    compiled = _compiled()
    if compiled is None or algorithm not in compiled.algorithms():
        return None
    stemmer_of_language = compiled.Stemmer(algorithm)
    stemmer_of_language.maxCacheSize = 0  # `stem` remembers
    return stemmer_of_language


@cache
def _compiled() -> Any:
    from importlib.metadata import version  # loaded with the first word: importing contextrouter stays cheap

    try:
        compiled = import_module("Stemmer")
        versions = compiled.version(), version("snowballstemmer")
    except (ImportError, AttributeError):  # of a damaged installation as well
        return None
    ours, theirs = (text.split(".")[:2] for text in versions)
    return compiled if ours == theirs else None
