"""Key phrases without a model: runs of words between stop words and punctuation, scored by how often their words occur together.

The scoring is RAKE's (Rose, Engel, Cramer, Cowley 2010): a word scores degree / frequency, a phrase the sum of its words. Phrases
that occur often, in the title, or written with capitals in the middle of a sentence count for more.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from contextrouter.contracts import Transform
from contextrouter.model import Document

# Function words of English, and what else is frequent and says nothing.
_STOP = frozenset(
    """a about above after again against all also although always am among an and another any are around as at away back be
    because been before being below between both but by came can cannot come could did do does doing done down during each
    either else enough etc even ever every few first for from further get gets give given go goes got had has have having he
    her here hers herself him himself his how however i if in instead into is it its itself just keep last least less let like
    made make makes many may maybe me might more most much must my myself need neither never new no nor not nothing now of off
    often on once one only onto or other others otherwise our ours ourselves out over own per perhaps put quite rather really
    same second see seen several shall she should since so some still such take than that the their theirs them themselves then
    there therefore these they this those though through thus to together too toward two under until up upon us use used uses
    using very via was way we well were what when where whether which while who whom whose why will with within without would
    yes yet you your yours yourself yourselves""".split()
)
_WORD = re.compile(r"[^\W_]+(?:['’.&+#/_-][^\W_]+)*[+#]*")
_BREAK = re.compile(r"[^\w\s'’&+#/-]|\n\s*\n")
_SENTENCE_END = re.compile(r"[.!?。！？:\n]\s*[\"'“”‘’(]*$")
_LONGEST = 4  # words of a phrase
_READ = 100_000  # characters; what a text is about is said before


class Keywords(Transform):
    """Fills `keywords` up to `limit` phrases of 1 to 4 words, best first; those given already stay, and come first.

    Works for any script: where words are not parted by spaces, the runs between punctuation and particles are taken as they are
    written when they are short. Reads the title and the first 100,000 characters.
    """

    def __init__(self, *, limit: int = 12) -> None:
        if limit < 1:
            raise ValueError(f"limit {limit!r} is not a positive number. Give 1 or more.")
        self.limit = limit

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its keywords."""
        if len(document.keywords) >= self.limit:
            return [document]
        keywords = {_key(word): word for word in document.keywords}
        for phrase in key_phrases(document.content[:_READ], document.title):
            if len(keywords) >= self.limit:
                break
            keywords.setdefault(_key(phrase), phrase)
        return [document.replace(keywords=tuple(keywords.values()))]


def key_phrases(text: str, title: str = "") -> list[str]:
    """The phrases of `text` and `title`, best first, as they were first written; equal scores in the order of the text."""
    written: dict[str, str] = {}
    frequency: Counter[str] = Counter()
    capitals: Counter[str] = Counter()
    for words, capital in _phrases(f"{title}\n\n{text}"):
        key = _key(" ".join(words))
        written.setdefault(key, " ".join(words))
        frequency[key] += 1
        capitals[key] += capital
    weight = _word_weights(frequency)
    titled = {_key(" ".join(words)) for words, _ in _phrases(title)}

    def score(key: str) -> float:
        rake = sum(weight[word] for word in key.split()) / len(key.split()) ** 0.5
        return rake * frequency[key] ** 0.5 * (1.5 if capitals[key] else 1.0) * (1.5 if key in titled else 1.0)

    return [written[key] for key in sorted(written, key=lambda key: -score(key))]


def _word_weights(frequency: Counter[str]) -> dict[str, float]:
    """Degree ÷ frequency of each word: how many words it stands beside, itself included."""
    degree: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for key, times in frequency.items():
        words = key.split()
        for word in words:
            degree[word] += times * len(words)
            count[word] += times
    return {word: degree[word] / count[word] for word in count}


def _phrases(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield runs of at most 4 content words, and whether they are a name: capitals though no sentence begins there."""
    for part in _parts(text):
        words: list[str] = []
        begins = True
        for word in [*(match[0] for match in _WORD.finditer(part)), ""]:
            if word and word.casefold() not in _STOP and not word.isnumeric() and (len(word) > 1 or _ideographic(word)):
                words.append(word)
                continue
            if words:
                yield from _named(words[:_LONGEST], begins)
            words, begins = [], begins and not word
    return


def _named(words: list[str], begins: bool) -> Iterator[tuple[list[str], bool]]:
    inner = words[1:] if begins else words
    yield words, bool(inner) and all(word[0].isupper() for word in inner)


def _parts(text: str) -> Iterator[str]:
    return (part for part in _BREAK.split(text) if part.strip())


def _ideographic(word: str) -> bool:
    return unicodedata.category(word[0]) == "Lo"


def _key(phrase: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", phrase).casefold().split())
