"""Query expansion and query rewriting without a model. Also entities, by rules or with a spaCy model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Self

from contextrouter.builtin.interpreters.periods import Periods
from contextrouter.builtin.shared.spacy_model import KINDS, ReadsWithSpacy, clean_name
from contextrouter.contracts import Interpreter, InterpreterContext
from contextrouter.model import Intent
from contextrouter.text.query_syntax import drop_exclusions, parse, write_exclusions
from contextrouter.text.stop_words import REQUEST_WORDS

_WORD = re.compile(r"\w+(?:[-'’.&+#]\w+)*[+#]*")
_QUOTED = re.compile(r"\"([^\"]{2,80})\"|“([^”]{2,80})”|«([^»]{2,80})»|„([^“”]{2,80})[“”]")
_SENTENCE = re.compile(r"(?<=[.!?;。！？；])\s*")
_BETWEEN = re.compile(
    r"\b(?:differences?\s+between|compare[sd]?|relations?(?:hips?)?\s+between)\s+(.+?)\s+(?:and|with|to)\s+(.+)",
    re.I,
)
_VERSUS = re.compile(r"^(.*?\w)\s+(?:vs\.?|versus|compared\s+(?:to|with)|as\s+opposed\s+to)\s+(.+)$", re.I)
_READ = 2_000  # characters of a question in which aspects are looked for; the question itself is asked whole


class Normalize(ReadsWithSpacy, Interpreter):
    """Splits the question into aspects, names its entities, and reads its period; nothing leaves the process.

    `max_queries` counts the original question. `extract_period` reads the period as the interpreter `periods`
    does with its defaults, on days in `timezone`; it is off by default, for a date in a question is not
    always one of its documents. `model` is an installed spaCy model, which finds entities beside the rules:
    names in lower case too, and no dates. With "", or if the model is not installed, entities are quoted
    phrases and runs of capitalised words.
    """

    without_model = "entities of questions are found by capital letters alone"

    def __init__(
        self, *, max_queries: int = 3, extract_period: bool = False, timezone: str = "UTC", model: str = ""
    ) -> None:
        super().__init__(model)
        if not 1 <= max_queries <= 3:
            raise ValueError(f"max_queries {max_queries!r} is not between 1 and 3.")
        self._periods = Periods(timezone=timezone)
        self._max_queries, self._extract_period = max_queries, extract_period

    @classmethod
    def example(cls) -> Self:
        """As it is by default."""
        return cls()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent with queries, entities and, where asked for, a period added to those it has."""
        question = intent.text
        before = intent.queries or (intent.question,)
        queries = _distinct([*before, *aspects(question)])[: self._max_queries]
        derived = (*intent.derived, *(query for query in queries if query not in before))
        without_syntax = re.sub(r"\bOR\b", "|", drop_exclusions(question))
        entities = _distinct([*intent.entities, *await self._entities(without_syntax)])
        intent = intent.replace(queries=tuple(queries), derived=derived, entities=tuple(entities))
        return await self._periods.interpret(intent, context) if self._extract_period else intent

    async def _entities(self, text: str) -> list[str]:
        """Return the names in the order of the text; those by rules where the model has nothing else."""
        names = entity_names(text)
        parts = await self.read_with_model(text[:_READ])
        if parts is None:
            return names
        spans = [entity for part in parts for entity in part.ents]
        named = [clean_name(entity.text) for entity in spans if entity.label_ in KINDS]
        words = [{*entity.text.casefold().split()} for entity in spans]
        others = [
            name for name in names if not any(span.issuperset(name.casefold().split()) for span in words)
        ]
        folded = text.casefold()
        return sorted(filter(None, (*named, *others)), key=lambda name: folded.find(name.casefold()))


def _distinct(texts: Iterable[str]) -> list[str]:
    return list({text.casefold(): text for text in reversed(list(texts)) if text.strip()}.values())[::-1]


def aspects(question: str) -> list[str]:
    """Queries beside the question itself: its parts where it has several; else its content words, then its
    longest phrase.

    Each has the question's exclusions, and the phrases of its part: the router lets a part without them count
    only where the question's phrases found nothing.
    """
    question = question[:_READ]
    parsed = parse(question)
    plain = drop_exclusions(question)
    queries = _keep_phrases(plain) if parsed.required else _plain_aspects(plain)
    return [" ".join(filter(None, (query, write_exclusions(parsed.excluded)))) for query in queries]


def _keep_phrases(question: str) -> list[str]:
    """Return the content words and the phrases of each part; nothing where OR offers a choice."""
    if any(len(part.alternatives) > 1 for part in parse(question).parts):
        return []
    parts = _parts(question)
    if any(part.count('"') % 2 for part in parts):  # an end of a sentence within a phrase
        parts = [question]
    queries = []
    for part in parts:
        texts = [(entry.alternatives[0], entry.required) for entry in parse(part).parts]
        words = [f'"{text}"' if required else " ".join(_content(text)) for text, required in texts]
        queries.append(" ".join(filter(None, words)))
    return [query for query in queries if query]


def _plain_aspects(question: str) -> list[str]:
    parts = _parts(question)
    if len(parts) > 1:
        queries = [" ".join(_content(part)) for part in parts]
        return [query for query in queries if query]
    phrases = _content_runs(question)
    words = " ".join(_content(question))
    longest = max(phrases, key=lambda phrase: len(phrase.split()), default="")
    phrase_queries = [longest] if len(longest.split()) > 1 else []
    return [query for query in (words, *phrase_queries) if query]


def _parts(question: str) -> list[str]:
    compared = _BETWEEN.search(question) or _VERSUS.search(question.strip(" ?!."))
    if compared:
        return [part for part in compared.groups() if _content(part)]
    sentences = _join_short(_SENTENCE.split(question))
    return sentences if len(sentences) > 1 else [question]


def _join_short(sentences: Iterable[str]) -> list[str]:
    """Return the sentences that are parts of a question. One content word is enough: "What is Kubernetes?".
    Only before a full stop it is an abbreviation, such as "Dr.", and goes on; "Thanks!" asks nothing.
    """
    parts: list[str] = []
    begun = ""
    for sentence in sentences:
        words = len(_content(sentence))
        if words == 1 and sentence.endswith("."):
            begun += f"{sentence} "
        elif words > 1 or (words == 1 and not sentence.endswith(("!", "！"))):
            parts.append(begun + sentence)
            begun = ""
    if begun and parts:
        parts[-1] += f" {begun.strip()}"
    return parts


def _content(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word.casefold() not in REQUEST_WORDS]


def _content_runs(text: str) -> list[str]:
    """Runs of content words that stand together."""
    runs: list[list[str]] = [[]]
    end = 0
    for match in _WORD.finditer(text):
        if text[end : match.start()].strip():
            runs.append([])
        end = match.end()
        if match.group().casefold() in REQUEST_WORDS:
            runs.append([])
        else:
            runs[-1].append(match.group())
    return [" ".join(run) for run in runs if run]


def entity_names(text: str) -> list[str]:
    """Quoted phrases and runs of capitalised words; a first word counts when more than its first letter says
    so.
    """
    entities = ["".join(match) for match in _QUOTED.findall(text)]
    for sentence in _SENTENCE.split(_QUOTED.sub(" | ", text)):
        run: list[str] = []
        words = list(_WORD.finditer(sentence))
        for index, match in enumerate(words):
            word = match.group()
            gap = sentence[words[index - 1].end() : match.start()] if index else ""
            if run and gap.strip():
                entities.append(" ".join(run))
                run = []
            if word[0].isupper() and not (word.casefold() in REQUEST_WORDS and (index == 0 or word == "I")):
                run.append(word)
            elif run:
                entities.extend(_name_in_run(run, words, index))
                run = []
        entities.extend(_name_in_run(run, words, len(words)))
    return _distinct(entities)


def _name_in_run(run: list[str], words: list[re.Match[str]], end: int) -> list[str]:
    if not run:
        return []
    begins_sentence = end == len(run)  # the run began the sentence
    if begins_sentence and len(run) == 1 and run[0][1:].islower() and len(words) > 1:
        return []  # capitalised because it comes first
    return [" ".join(run)]
