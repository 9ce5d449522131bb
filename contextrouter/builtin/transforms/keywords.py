"""Key phrase extraction (keyword extraction) with a spaCy model, or with RAKE.

A model gives entities and noun phrases. RAKE (Rose, Engel, Cramer, Cowley 2010) takes runs of words between
stop words and punctuation. It scores a word by degree / frequency, and a phrase by the sum of its words.
Phrases get a higher score if they occur often, occur in the title, or have capitals inside a sentence.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from contextrouter.builtin.shared.spacy_model import ReadsWithSpacy
from contextrouter.contracts import Transform
from contextrouter.model import Document
from contextrouter.text.scripts import IDEOGRAPHS, KANA
from contextrouter.text.stop_words import WEAK_WORDS

if TYPE_CHECKING:
    from spacy.tokens import Doc

# Vowel signs and other marks belong to the letter before; `re` does not count them as letters.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_MARKS += "\u0e31-\u0e4e\u0eb1-\u0ece\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3"
_WORD_OR_BREAK = re.compile(
    rf"[^\W_][\w{_MARKS}]*(?:['’&+#/-][^\W_][\w{_MARKS}]*)*[+#]*|[^\w\s{_MARKS}'’&+#/-]|\n\s*\n"
)
# Chinese and Japanese write no spaces: runs of ideographs or katakana, separated by frequent function
# characters.
_CJK = re.compile(f"[{KANA}{IDEOGRAPHS}]")
_PARTICLE = "[的是了在和与及或也都就而但被把对从到为之其这那我你他她它们个很]"
_CJK_RUN = re.compile(rf"(?:(?!{_PARTICLE})[\u3005{IDEOGRAPHS}])+|[ァ-ヺー]+")
_LONGEST = 4  # words of a phrase
_LONGEST_RUN = 24, 8  # characters of a word; of a run of ideographs
_NUMBERS = (
    "CARDINAL",
    "ORDINAL",
    "PERCENT",
    "QUANTITY",
    "TIME",
    "DATE",
    "MONEY",
)  # kinds of entities that are no names
_READ = 100_000  # characters; the beginning of a text shows its topic


class Keywords(ReadsWithSpacy, Transform):
    """Fills `keywords` with up to `limit` phrases of 1 to 4 words, best first. Existing keywords come first.

    `model` is an installed spaCy model, such as "en_core_web_sm". The phrases are its entities and noun
    phrases. It reads long texts in parts. With "", or if the model is not installed, RAKE finds the phrases
    in the title and the first 100,000 characters. RAKE works for any script, and knows the stop words of
    English. In scripts without spaces it takes short runs between punctuation and particles.
    """

    without_model = "keywords are found by RAKE instead"

    def __init__(self, *, limit: int = 12, model: str = "") -> None:
        if limit < 1:
            raise ValueError(f"limit {limit!r} is not a positive number. Give 1 or more.")
        super().__init__(model)
        self.limit = limit

    async def transform(self, document: Document) -> Sequence[Document]:
        """Return the document with its keywords."""
        if len(document.keywords) >= self.limit:
            return [document]
        keywords = {_key(word): word for word in document.keywords}
        parts = await self.read_with_model(document.content)
        if parts is None:
            phrases = key_phrases(document.content[:_READ], document.title)
        else:
            phrases = noun_phrases(parts, document.title)
        for phrase in phrases:
            if len(keywords) >= self.limit:
                break
            keywords.setdefault(_key(phrase), phrase)
        return [document.replace(keywords=tuple(keywords.values()))]


def capitalized_names(text: str) -> list[str]:
    """Return runs of capitalized words inside sentences, each once, in the order of the text."""
    runs = (
        words if all(w[0].isupper() for w in words) else words[1:]
        for words, capital in _word_runs(text)
        if capital
    )
    return list(dict.fromkeys(" ".join(words) for words in runs))


def noun_phrases(parts: Sequence[Doc], title: str) -> list[str]:
    """Return the entities and noun phrases of a model, best first.

    Frequent phrases, entities, phrases of the title and longer phrases score higher.
    """
    spelling: dict[str, str] = {}
    weight: Counter[str] = Counter()
    for part in parts:
        spans = [(span, 1.5) for span in part.ents if span.label_ not in _NUMBERS]
        spans += [(span, 1.0) for span in part.noun_chunks] if part.has_annotation("DEP") else []
        for span, counts in spans:
            words = [
                token.text
                for token in span
                if not token.is_stop and not token.is_punct and not token.is_space
            ]
            phrase = " ".join(words)
            if 1 <= len(words) <= _LONGEST + 2 and 2 <= len(phrase) <= 80 and any(map(str.isalpha, phrase)):
                spelling.setdefault(_key(phrase), phrase)
                weight[_key(phrase)] += counts  # type: ignore[assignment]  # a Counter that counts in fractions
    title_key = _key(title)

    def score(key: str) -> float:
        return math.sqrt(weight[key]) * (1.0 + 0.25 * key.count(" ")) * (1.5 if key in title_key else 1.0)

    return [spelling[key] for key in sorted(spelling, key=lambda key: -score(key))]


def key_phrases(text: str, title: str = "") -> list[str]:
    """Return the phrases of `text` and `title` in their first spelling, best first.

    Phrases with equal scores keep the order of the text.
    """
    spelling: dict[str, str] = {}
    frequency: dict[str, int] = {}
    capitals: set[str] = set()
    for words, capital in _word_runs(f"{title}\n\n{text}"):
        phrase = " ".join(words)
        key = phrase.lower() if phrase.isascii() else _key(phrase)
        if key in frequency:
            frequency[key] += 1
        else:
            spelling[key], frequency[key] = phrase, 1
        if capital:
            capitals.add(key)
    words_of = {key: key.split() for key in frequency}
    weight = _word_weights(frequency, words_of)
    title_keys = {_key(" ".join(words)) for words, _ in _word_runs(title)}
    scores = {
        key: -sum([weight[word] for word in words])
        / math.sqrt(len(words))
        * math.sqrt(frequency[key])
        * (1.5 if key in capitals else 1.0)
        * (1.5 if key in title_keys else 1.0)
        for key, words in words_of.items()
    }
    return [spelling[key] for key in sorted(spelling, key=scores.__getitem__)]


def _word_weights(frequency: Mapping[str, int], words_of: Mapping[str, list[str]]) -> dict[str, float]:
    """Return degree ÷ frequency of each word. The degree counts the words of all its phrases."""
    degree: dict[str, int] = {}
    count: dict[str, int] = {}
    for key, words in words_of.items():
        times = frequency[key]
        for word in words:
            degree[word] = degree.get(word, 0) + times * len(words)
            count[word] = count.get(word, 0) + times
    return {word: degree[word] / count[word] for word in count}


def _word_runs(text: str) -> list[tuple[list[str], bool]]:
    """Return runs of at most 4 content words, and whether a run is a name (capitals inside a sentence)."""
    runs: list[tuple[list[str], bool]] = []
    words: list[str] = []
    begins = True
    for word in _WORD_OR_BREAK.findall(text):
        if _content(word):
            words.append(word)
            continue
        if not word.isascii() and _CJK.search(word):
            runs += [([run], False) for run in _CJK_RUN.findall(word) if 2 <= len(run) <= _LONGEST_RUN[1]]
        if words:
            runs.append(_classify_run(words, begins))
            words = []
        begins = not word[0].isalnum()  # a break: a sentence, or part of one, begins
    if words:
        runs.append(_classify_run(words, begins))
    return runs


@lru_cache(maxsize=50_000)
def _content(word: str) -> bool:
    """Whether a word may stand in a phrase. Of what has ideographs, short runs are phrases of their own."""
    if not word.isascii() and _CJK.search(word):
        return False
    long_enough = 2 <= len(word) <= _LONGEST_RUN[0] and word[0].isalnum()
    return long_enough and word.casefold() not in WEAK_WORDS and not word.isnumeric()


def _classify_run(words: list[str], begins: bool) -> tuple[list[str], bool]:
    """Return the phrase, and whether it is a name. The capital of a sentence's first word does not count."""
    words = words[:_LONGEST]
    telling = words[1:] if begins else words
    return words, bool(telling) and all([word[0].isupper() for word in telling])


def _key(phrase: str) -> str:
    if phrase.isascii():
        return " ".join(phrase.lower().split())
    return " ".join(unicodedata.normalize("NFKC", phrase).casefold().split())
