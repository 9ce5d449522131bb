"""Taxonomy: reads its concepts, and finds their names and other words in a text."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from contextrouter.builtin.shared.text_segments import segments
from contextrouter.errors import SettingsError
from contextrouter.text.scripts import UNSPACED

# Between characters of a script without spaces there is always a boundary.
_INSIDE = rf"[^\W{UNSPACED}]"


class Concepts:
    """A mapping of concept to other words for it: `"AI / Machine Learning" = ["ml", "statistical learning"]`.

    A name with " / " in it is a path; its broader concepts are found with it, and each of them by its own
    name, too. Raises ValueError for a concept without a name.
    """

    def __init__(self, concepts: Mapping[str, list[str]]) -> None:
        self._of_word: dict[str, list[str]] = {}
        for concept, words in concepts.items():
            path = [part.strip() for part in concept.split(" / ") if part.strip()]
            if not path:
                raise ValueError(f"concept {concept!r} has no name. Give it one.")
            prefixes = {part: path[: depth + 1] for depth, part in enumerate(path)}
            for word, concept_path in (*prefixes.items(), *((word, path) for word in words)):
                if folded := _normalize(word):
                    self._of_word.setdefault(folded, []).extend(concept_path)
        longest_first = sorted(self._of_word, key=lambda word: (-len(word), word))
        pattern = _words_pattern(longest_first)
        self._pattern = re.compile(pattern) if pattern else None

    def count(self, text: str) -> Counter[str]:
        """How often each concept is named, in the order of the text; longer words win over shorter."""
        counts: Counter[str] = Counter()
        if self._pattern is None:
            return counts
        for match in (match for part in segments(text) for match in self._pattern.finditer(_normalize(part))):
            counts.update([*dict.fromkeys(self._of_word[" ".join(match.group().split())])])
        return counts


def _normalize(text: str) -> str:
    """A text as names are compared: compatible characters, cases and all white space are alike."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _words_pattern(words: Sequence[str]) -> str:
    """A pattern for the words between word boundaries, with any white space where they have some; the first
    that fits counts. Neighbours share a boundary: it is large, and takes long to compile.
    """
    parts = []
    for (starts_inside, ends_inside), group in groupby(words, _edges):
        either = "|".join([r"\s+".join(map(re.escape, word.split())) for word in group])
        start, end = (rf"(?<!{_INSIDE})" if starts_inside else "", rf"(?!{_INSIDE})" if ends_inside else "")
        parts.append(f"{start}(?:{either}){end}")
    return "|".join(parts)


def _edges(word: str) -> tuple[bool, bool]:
    """Whether a word begins, and ends, with a character that stands inside of words."""
    return re.match(_INSIDE, word[0]) is not None, re.match(_INSIDE, word[-1]) is not None


def read_taxonomy(path: Path) -> dict[str, list[str]]:
    """The mapping in a TOML or JSON file. Raises SettingsError when it is missing or not such a mapping."""
    try:
        text = path.read_text("utf-8")
        data: Any = json.loads(text) if path.suffix == ".json" else _parse_toml(text)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"Taxonomy file {str(path)!r} cannot be read: {error}. Give a TOML or JSON mapping of concept to"
            " words."
        ) from None
    if not isinstance(data, dict) or not all(
        isinstance(v, list) and all(isinstance(w, str) for w in v) for v in data.values()
    ):
        raise SettingsError(f"Taxonomy file {str(path)!r} is not a mapping of concept to a list of words.")
    return data


def _parse_toml(text: str) -> Any:
    import tomli

    return tomli.loads(text)
