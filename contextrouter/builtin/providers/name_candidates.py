"""Names of entities: how they are compared, and those that a question may contain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from contextrouter.model import Query
from contextrouter.text.analysis import LONGEST, atoms
from contextrouter.text.query_syntax import drop_exclusions
from contextrouter.text.stop_words import STOP_WORDS

_LONGEST_NAME = 16  # words, or characters of a script without spaces
_MOST_WORDS = 2_000  # of a question that are looked up


def name_key(name: str) -> str:
    """A name as it is compared: folded words, characters of a script without spaces one by one."""
    return " ".join(atoms(name))


class NameCandidates(NamedTuple):
    """The names that a query may contain: runs of words of its text as (start, end, key), and its explicit
    entities and concepts.
    """

    spans: Sequence[tuple[int, int, str]]
    explicit: Collection[str]

    @property
    def keys(self) -> set[str]:
        """All candidates, folded."""
        return {key for _, _, key in self.spans} | set(self.explicit)

    def matching(self, names: Collection[str]) -> set[str]:
        """Return the candidates that are in `names`; of overlapping runs of words the longest.

        A run of stop words ("it", "who") is no name, unless it is an explicit entity.
        """
        spans = [
            span
            for span in self.spans
            if span[2] in names and not all(word in STOP_WORDS for word in span[2].split())
        ]
        spans.sort(key=lambda span: (span[0] - span[1], span[0]))
        matches: list[tuple[int, int, str]] = []
        for begin, end, key in spans:
            if not any(start <= begin and end <= stop for start, stop, _ in matches):
                matches.append((begin, end, key))
        return {key for _, _, key in matches} | {key for key in self.explicit if key in names}


def name_candidates(query: Query) -> NameCandidates:
    """Return the candidates of a query: each run of words that is short enough, and the explicit names.

    What the text excludes is no name.
    """
    words = atoms(drop_exclusions(query.text[:LONGEST]))[:_MOST_WORDS]
    spans = [
        (start, end, " ".join(words[start:end]))
        for start in range(len(words))
        for end in range(start + 1, min(start + _LONGEST_NAME, len(words)) + 1)
    ]
    return NameCandidates(
        spans, {key for name in (*query.entities, *query.concepts) if (key := name_key(name))}
    )
