"""The generator `extractive`: quotes sentences of the context with citations, without a language model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from contextrouter.contracts import Completion, Generator
from contextrouter.errors import PluginError
from contextrouter.text.analysis import analyse, has_unspaced
from contextrouter.text.query_syntax import query_terms

_BLOCK = re.compile(r"^### \[(\d+)\] (.*)\n((?:(?!^### ).*\n?)*)", re.M)
_FENCE = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1", re.M | re.S)
_SENTENCE = re.compile(r"[^\n.!?。！？]+(?:[.!?](?!\s|\Z)[^\n.!?。！？]*)*[.!?。！？]*")
_FENCED = re.compile(r"^<<<(?:untrusted|end) [0-9a-f]{16}>>>$", re.M)
_MARKUP = re.compile(r"^[\s>#*+-]+")
_APART = re.compile(r"\n\s*\n|\n(?=\s*(?:[#>*+-]|\d+[.)]\s))")
_ENDED = tuple(".!?。！？:;")
_MARKER = re.compile(r"\[(?=[\d\s,;–-]+\])")
_LONGEST = 400
NOTHING = "No passage of the context answers this."


class Sentence(NamedTuple):
    """A sentence of block `number`; `words` are those of its own, `title` those of its block's title."""

    number: int
    text: str
    words: frozenset[str]
    title: frozenset[str]


class Extractive(Generator):
    """Quotes up to `sentences` sentences from the numbered context, each followed by its citation. No model,
    no key, no network.

    Sentences are chosen by the words that they share with the question, rare ones weighing more, and shown in
    the order of the context. It adds no word of its own.
    """

    deviations: Mapping[str, str] = {
        "schema_is_answered_with_data": "it quotes what is there and makes no objects"
    }

    def __init__(self, *, sentences: int = 3) -> None:
        if sentences < 1:
            raise ValueError(
                f"sentences {sentences!r} is less than 1. Give the number of sentences to quote."
            )
        self.sentences = sentences

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The quotes. Raises PluginError for a schema."""
        if schema is not None:
            raise PluginError(
                "Generator 'extractive' quotes and makes no objects. Name a generator with a language model."
            )
        return Completion(text=" ".join(self._quotes(messages)), model="extractive")

    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """The quotes, one by one."""
        for index, quote in enumerate(self._quotes(messages)):
            yield f" {quote}" if index else quote

    def _quotes(self, messages: Sequence[Mapping[str, str]]) -> list[str]:
        question = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        context = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        best = choose_sentences(question, sentences_of(context), self.sentences)
        return [f"{_quote(sentence.text)} [{sentence.number}]" for sentence in best] or [NOTHING]


def sentences_of(context: str) -> list[Sentence]:
    """The sentences of every block under `### [n] title`; what is code is left out."""
    sentences = []
    for block in _BLOCK.finditer(_FENCED.sub("", _FENCE.sub("", context))):
        number, title = int(block[1]), frozenset(analyse(block[2]))
        head, _, tail = block[3].partition("\n")  # the heading path, or where the text begins
        parts = [head, *_APART.split(tail)] if not head.rstrip().endswith(_ENDED) else _APART.split(block[3])
        texts = [text for part in parts for text in _SENTENCE.findall(" ".join(part.split()))]
        for text in texts:
            bare = _MARKUP.sub("", text).strip()
            words = frozenset(analyse(bare))
            if len(words) > 1 or has_unspaced(bare):
                sentences.append(Sentence(number, bare, words, title))
    return sentences


def choose_sentences(question: str, sentences: Sequence[Sentence], limit: int) -> list[Sentence]:
    """The sentences that hold most of the question's words, weighed by their rarity, in the order of the
    context.
    """
    terms = {*query_terms(question).terms}
    frequencies = Counter(word for sentence in sentences for word in sentence.words)
    weight = {word: math.log(1 + len(sentences) / frequencies[word]) for word in terms if frequencies[word]}
    scored, texts = [], set()
    for index, sentence in enumerate(sentences):
        score = sum(weight[word] for word in sentence.words & weight.keys())
        if score and sentence.text not in texts:
            texts.add(sentence.text)
            title_score = sum(weight[word] for word in sentence.title & weight.keys()) / 2
            completeness = 1.0 if sentence.text.endswith(_ENDED) else 0.5  # a heading says little
            length = 1 + 0.02 * max(0, len(sentence.words) - 20)
            scored.append(((score + title_score) * completeness / length, -index, index))
    best = sorted(scored, reverse=True)[:limit]
    return [sentences[index] for _, _, index in sorted(best, key=lambda candidate: candidate[2])]


def _quote(text: str) -> str:
    """The text without what would read as a citation of ours."""
    excerpt = text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
    return _MARKER.sub("\\\\[", excerpt)
