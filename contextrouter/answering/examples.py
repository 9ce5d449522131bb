"""Few-shot examples: good answers to other questions, chosen by their words or by their meaning."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from contextrouter.contracts import Embedder
from contextrouter.errors import Problem, SettingsError
from contextrouter.vectors import cosine

_WORD = re.compile(r"\w+")
_SHAPE = '{"question": "…", "answer": "…"}'


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A few-shot example: a question with a good answer."""

    question: str
    answer: str


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    answer: str | None = None
    ground_truth: str | None = None  # so sets of judged questions name it

    def example(self) -> Example:
        """Return the example. Raises ValueError without an answer."""
        answer = self.answer if self.answer is not None else self.ground_truth
        if answer is None:
            raise ValueError("Object missing required field `answer`")
        return Example(question=self.question, answer=answer)


def load_examples(path: str) -> list[Example]:
    """Load the examples of a file: a JSON list, or JSON lines; none where there is no such file.

    Raises SettingsError with the number of a line, or of an entry of a list, that is wrong.
    """
    if not path or not Path(path).is_file():
        return []
    text = Path(path).read_text("utf-8-sig")
    if text.lstrip().startswith("["):
        try:
            entries = msgspec.json.decode(text, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"no JSON list: {error}. Write [{_SHAPE}, …], or one object on each line."
            raise SettingsError([Problem(message, key="chat.examples", file=path)]) from None
        numbered: list[tuple[int, Any]] = list(enumerate(entries, 1))
        listed = True
    else:
        numbered, listed = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()], False
    examples = []
    for number, entry in numbered:
        try:
            examples.append(msgspec.json.decode(entry, type=_Line).example())
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            label = f"entry {number}: " if listed else ""
            message = f"no example: {label}{error}. Write {_SHAPE}{'' if listed else ' on one line'}."
            line = None if listed else number
            raise SettingsError([Problem(message, key="chat.examples", file=path, line=line)]) from None
    return examples


class Meanings:
    """The examples by meaning: their questions are embedded once."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self._examples = examples
        self._vectors: Sequence[Sequence[float]] | None = None

    async def similar(self, question: str, limit: int, embedder: Embedder) -> list[Example]:
        """Return the examples nearest to the question, best first; never the question itself."""
        if not self._examples or not limit:
            return []
        if self._vectors is None:
            self._vectors = await embedder.embed([e.question for e in self._examples], query=True)
        target = (await embedder.embed([question], query=True))[0]
        words = _WORD.findall(question.casefold())
        scored = [
            (cosine(target, vector), -index)
            for index, (example, vector) in enumerate(zip(self._examples, self._vectors, strict=True))
            if _WORD.findall(example.question.casefold()) != words
        ]
        return [self._examples[-index] for _, index in sorted(scored, reverse=True)[:limit]]


def similar(question: str, examples: Sequence[Example], limit: int) -> list[Example]:
    """Return the examples most like the question, by the cosine of their words. Rare words weigh more.

    An example with exactly the words of the question is left out.
    """
    target = _words(question)
    candidates = [(_words(example.question), example) for example in examples]
    candidates = [
        (words, example) for words, example in candidates if list(words) != list(target) or words != target
    ]
    spread = Counter(word for words, _ in candidates for word in words)
    weight = {word: math.log(1 + len(candidates) / count) for word, count in spread.items()}
    scored = [
        (_cosine(target, words, weight), -index, example) for index, (words, example) in enumerate(candidates)
    ]
    matches = sorted((match for match in scored if match[0] > 0), key=lambda match: match[:2], reverse=True)
    return [example for _, _, example in matches[:limit]]


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))


def _cosine(a: Mapping[str, int], b: Mapping[str, int], weight: Mapping[str, float]) -> float:
    def length(words: Mapping[str, int]) -> float:
        return math.sqrt(sum((count * weight.get(word, 1.0)) ** 2 for word, count in words.items()))

    shared = sum(count * b.get(word, 0) * weight.get(word, 1.0) ** 2 for word, count in a.items())
    return shared / (length(a) * length(b)) if shared else 0.0
