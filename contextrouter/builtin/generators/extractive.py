"""The generator `extractive`: quotes sentences of the context with citations, without a language model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from contextrouter.builtin.generators.context_blocks import Sentence, Statement, sentences_of, statements_of
from contextrouter.builtin.shared.back_references import choose_language, refers_back
from contextrouter.contracts import Abstention, Completion, Generator
from contextrouter.errors import PluginError
from contextrouter.runtime.threads import work_aside
from contextrouter.text.analysis import analyse, stop_terms
from contextrouter.text.query_syntax import query_terms

_ENDED = tuple(".!?。！？:;")
_MARKER = re.compile(r"\[(?=[\d\s,;–-]+\])")
_LONGEST = 400

_KINDS = (
    (
        re.compile(r"(?i)\b(?:when|(?:what|which) (?:year|date|day|time)s?|since when|how long ago)\b"),
        re.compile(
            r"\b1\d{3}s?\b|\b20\d\ds?\b|\b\d{1,2}:\d\d\b|(?i:\b(?:january|february|march|april|may|june|july"
            r"|august|september|october|november|december|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b)"
        ),
    ),
    (
        re.compile(
            r"(?i)\bhow (?:many|much|long|old|far|tall|high|large|big|fast|often)\b"
            r"|\bwhat (?:number|percentage)\b"
        ),
        re.compile(
            r"\d|(?i:\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|hundred|thousand|once|twice"
            r"|daily|weekly|monthly|every)\b)"
        ),
    ),
    (
        re.compile(r"(?i)\bwhy\b"),
        re.compile(r"(?i)\b(?:because|since|so that|due to|in order to|therefore|reason)\b"),
    ),
)
"""Questions, and what the sentence that answers one has."""
_ASKS_NAME = re.compile(
    r"(?i)\b(?:who|whom|whose)\b"
    r"|\b(?:which|what) (?:\w+ )?(?:company|person|individual|team|country|city|platform|firm|player)\b"
    r"|\b(?:which|what) (?:\w+ )?organi[sz]ation\b"
)
_ASKING_VERB = re.compile(r"(?i)\b(?:comes? from|looks? like|means?|happen(?:s|ed)?)\b")
_NAME = re.compile(r"(?<=[a-z,;’'\"“(] )[A-Z][\w'’-]+|(?<=[A-Z][a-z] )[A-Z]\w+")
_HAS = 1.5  # times the score of such a sentence
_LENDS = 0.1  # of the weight of all words, added to it: "When was that?" has no word of its own
_AGAIN = 0.5  # of the weight of a word counts once it is quoted
_SHORT, _SHORT_FACTOR = 4, 1.1  # words of a short question, and how much more of it a block has to hold
_MANY = 14  # words of a question that asks for more than one block holds
_WHOLE = 0.3  # weighed share of such a question from which on one block holds enough
_COVERED = 0.3  # weighed share of the question's words that one block holds, or it does not answer
_NEXT = 0.75  # of the score of the best block, for another one to be quoted too
_MOST_FACTS = 20  # that are written: of "Who founded it?" not a part
_LONGEST_QUESTION = 4_000
"""Characters of a question that are read."""
_AT_ONCE = 10_000
"""Characters of messages that are read on the event loop."""
NOTHING = "No passage of the context answers this."


class _Ranked(NamedTuple):
    """A block with its score, the share of the question's words that it holds, and its sentences."""

    score: float
    share: float
    sentences: Sequence[Sentence]


class Extractive(Generator):
    """Quotes up to `sentences` sentences from the numbered context, with their citations. No model, no key,
    no network.

    The block that holds most of the question's words is quoted, rare words weighing more, and others that
    come near it. A long question of which no block holds much is answered from several, each with its title.
    An attribute of a name is read from the row or record of that name, or from the facts where no sentence
    says it. It adds no word of its own, and abstains where no block holds `coverage` of the words' weight: of
    a question of up to four words more, of one with over fourteen less.
    """

    deviations: Mapping[str, str] = {
        "schema_is_answered_with_data": "it quotes what is there and makes no objects"
    }

    def __init__(self, *, sentences: int = 3, coverage: float = _COVERED) -> None:
        if sentences < 1:
            raise ValueError(
                f"sentences {sentences!r} is less than 1. Give the number of sentences to quote."
            )
        if not 0 <= coverage <= 1:
            raise ValueError(f"coverage {coverage!r} is not between 0 and 1. Give a share, such as 0.5.")
        self.sentences, self.coverage = sentences, coverage

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """The quotes. Raises PluginError for a schema."""
        if schema is not None:
            raise PluginError(
                "Generator 'extractive' quotes and makes no objects. Name a generator with a language model."
            )
        quotes = await self._find_quotes(messages)
        finish = "stop" if quotes else "abstained"
        return Completion(text=" ".join(quotes) or NOTHING, model="extractive", finish=finish)

    async def stream(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """The quotes, one by one."""
        for index, quote in enumerate(await self._find_quotes(messages) or [Abstention(NOTHING)]):
            yield f" {quote}" if index else quote

    async def _find_quotes(self, messages: Sequence[Mapping[str, str]]) -> list[str]:
        """The quotes. Long messages are read in a thread, while the event loop answers others."""
        if sum([len(message["content"]) for message in messages]) <= _AT_ONCE:
            return self._quotes(messages)
        return await work_aside(self._quotes, messages)

    def _quotes(self, messages: Sequence[Mapping[str, str]]) -> list[str]:
        questions = [message["content"] for message in messages if message["role"] == "user"] or [""]
        questions = [question[:_LONGEST_QUESTION] for question in questions[-2:]]
        context = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        terms = _question_terms(questions)
        sentences = sentences_of(context)
        chosen = choose_sentences(questions[-1], terms, sentences, self.sentences, self.coverage)
        facts = _matching_facts(terms, statements_of(context), chosen)
        if facts:
            return ["\n".join(f"- {' — '.join(fact)}" for fact in facts[:_MOST_FACTS])]
        return _join_neighbours(chosen, terms)


def _question_terms(questions: Sequence[str]) -> frozenset[str]:
    """The terms of the last question, with those of the one before where it goes on from that: "And why?"."""
    terms = frozenset(query_terms(questions[-1]).terms)
    if len(questions) == 1:
        return terms
    question, previous = questions[-1], questions[-2]
    if not refers_back(question, choose_language(question, previous, None)):
        return terms
    return (terms - stop_terms()) | frozenset(query_terms(previous).terms)


def _matching_facts(
    terms: frozenset[str], facts: Sequence[Statement], chosen: Sequence[Sentence]
) -> list[Statement]:
    """The facts whose subject or object the question names, and of whose predicate it has a word; without
    those that a sentence says, for that can be cited.
    """
    matching = []
    for fact in facts:
        subject, object = frozenset(analyse(fact.subject)), frozenset(analyse(fact.object))
        predicate = frozenset(analyse(fact.predicate.replace("_", " ")))
        is_answer = any(name and name <= terms and predicate & (terms - name) for name in (subject, object))
        if is_answer and not any(subject | object <= sentence.words | sentence.title for sentence in chosen):
            matching.append(fact)
    return matching


def choose_sentences(
    question: str, terms: frozenset[str], sentences: Sequence[Sentence], limit: int, coverage: float
) -> list[Sentence]:
    """The sentences of the best blocks, in the order of the context; none where no block holds enough."""
    weight = _weigh(_terms_of_topic(question, terms), sentences)
    blocks = _rank_blocks(question, weight, sentences)
    if not blocks or not _is_covered(question, weight, blocks, coverage):
        return []
    if len(terms) > _MANY and blocks[0].share < _WHOLE:
        chosen = _best_of_several(question, weight, sentences, limit)
    else:
        chosen = _best_blocks(question, weight, blocks, limit)
    return sorted(chosen, key=lambda sentence: (sentence.number, sentence.place))


def _is_covered(
    question: str, weight: Mapping[str, float], blocks: Sequence[_Ranked], coverage: float
) -> bool:
    """Whether the best block holds enough of the question. The longer a question is, the less of it stands in
    one block; of two words both count, for one says little, unless it is a name.
    """
    words, topic = len(weight), _terms_of_topic(question, frozenset(query_terms(question).terms))
    if words == 2 and coverage > 0 and weight.keys() == topic:
        sentences = blocks[0].sentences
        present = frozenset[str]().union(*(s.words | s.title for s in sentences)) & weight.keys()
        names = {term for name in _NAME.findall(question) for term in analyse(name)}
        # "On which days do we deploy?" is answered by a weekday, without the word day
        if any(_has_answer(question, sentence.text) for sentence in sentences if sentence.words & present):
            present |= _kind_terms(question) & weight.keys()
        return len(present) == 2 or bool(present & names)
    factor = _SHORT_FACTOR if words <= _SHORT else min(1.0, _MANY / words)
    return blocks[0].share >= coverage * factor


def _best_blocks(
    question: str, weight: Mapping[str, float], blocks: Sequence[_Ranked], limit: int
) -> list[Sentence]:
    """The best sentences of the best block, and of others that come near it."""
    chosen: list[Sentence] = []
    for block in blocks:
        if block.score < _NEXT * blocks[0].score or len(chosen) >= limit:
            break
        if chosen and len(weight) == 1 and not _asks_for_kind(question):
            break  # whatever holds a single word comes near: the best one is the answer
        sentences = _named_rows(weight, block.sentences) or block.sentences
        ordered = sorted(sentences, key=lambda s: (-_score(question, s, weight), s.place))
        best = [s for s in ordered if _score(question, s, weight) > 0 or len(sentences) <= limit]
        texts = {sentence.text for sentence in chosen}
        chosen += [s for s in best if s.text not in texts][: limit - len(chosen)]
    return chosen


def _named_rows(weight: Mapping[str, float], sentences: Sequence[Sentence]) -> list[Sentence]:
    """The rows and records whose name is in the question: of several the one with the longest name."""
    names = [(frozenset(analyse(s.parts[0][1])), s) for s in sentences if s.parts]
    named = [(len(name), s) for name, s in names if name and name <= weight.keys()]
    longest = max((length for length, _ in named), default=0)
    return [s for length, s in named if length == longest]


def _best_of_several(
    question: str, weight: Mapping[str, float], sentences: Sequence[Sentence], limit: int
) -> list[Sentence]:
    """The best sentences of all blocks: a long question asks for what no single block holds. A word that is
    quoted already counts less.
    """
    chosen: list[Sentence] = []
    unquoted = dict(weight)
    pool = list({sentence.text: sentence for sentence in reversed(sentences)}.values())[::-1]
    while pool and len(chosen) < limit:
        best = max(pool, key=lambda s: _score(question, s, unquoted))
        pool.remove(best)
        text = f"{best.heading}: {best.text}" if best.heading else best.text
        chosen.append(best._replace(text=text))
        unquoted = {word: value * (_AGAIN if word in best.words else 1.0) for word, value in unquoted.items()}
    return chosen


def _weigh(terms: frozenset[str], sentences: Sequence[Sentence]) -> dict[str, float]:
    """Weigh the words of the question by their rarity among the blocks."""
    blocks: dict[int, set[str]] = {}
    for sentence in sentences:
        blocks.setdefault(sentence.number, set()).update(sentence.words, sentence.title)
    frequencies = Counter(word for words in blocks.values() for word in words)
    return {word: math.log(1 + (len(blocks) + 1) / (max(frequencies[word], 1) + 0.5)) for word in terms}


def _rank_blocks(question: str, weight: Mapping[str, float], sentences: Sequence[Sentence]) -> list[_Ranked]:
    """The blocks, best first: by the words of the question that they hold, and a little by their place."""
    by_number: dict[int, list[Sentence]] = {}
    for sentence in sentences:
        by_number.setdefault(sentence.number, []).append(sentence)
    total = sum(weight.values()) or 1.0
    ranked = []
    for place, group in enumerate(by_number.values()):
        words = frozenset[str]().union(*(sentence.words for sentence in group))
        title = group[0].title
        text_share = sum(weight[word] for word in words & weight.keys()) / total
        title_share = sum(weight[word] for word in (title - words) & weight.keys()) / total
        best = max(_score(question, sentence, weight) for sentence in group) / total
        score = text_share + 0.5 * title_share + 0.5 * best + 0.3 / (1 + place)
        ranked.append(_Ranked(score, text_share + title_share, group))
    return sorted(ranked, key=lambda block: -block.score)


def _score(question: str, sentence: Sentence, weight: Mapping[str, float]) -> float:
    """What a sentence holds of the question; more if it has what is asked for."""
    score = sum(weight[word] for word in sentence.words & weight.keys())
    score += sum(weight[word] for word in (sentence.title - sentence.words) & weight.keys()) / 4
    if not sentence.text.endswith(_ENDED) and not sentence.parts:
        score /= 2  # a heading says little
    if _has_answer(question, sentence.text):
        score = score * _HAS + _LENDS * sum(weight.values())
    return score / (1 + 0.02 * max(0, len(sentence.words) - 20))


def _has_answer(question: str, text: str) -> bool:
    """Whether a sentence has what a question asks for: a time, a number, a reason, or a name of its own."""
    has, asks_name = _asked_kind(question)
    if has is not None:
        return has.search(text) is not None
    return asks_name and any(name not in question for name in _NAME.findall(text))


@lru_cache(maxsize=16)
def _asked_kind(question: str) -> tuple[re.Pattern[str] | None, bool]:
    """The pattern of what a question asks for, and whether it is a name."""
    has = next((has for asks, has in _KINDS if asks.search(question)), None)
    return has, has is None and _ASKS_NAME.search(question) is not None


def _terms_of_topic(question: str, terms: frozenset[str]) -> frozenset[str]:
    """The terms without verbs that an answer need not have: "Where does rain come from?"."""
    verbs = {term for match in _ASKING_VERB.finditer(question) for term in analyse(match[0])}
    return terms - verbs or terms


def _kind_terms(question: str) -> frozenset[str]:
    """The words of a question that only say what it asks for, such as the day of "on which day"."""
    matches = (asks.search(question) for asks, _ in _KINDS)
    return frozenset(term for match in matches if match for term in analyse(match[0]))


def _asks_for_kind(question: str) -> bool:
    """Whether a question says what it asks for: a time, a number, a reason or a name."""
    return any(asks.search(question) for asks in (_ASKS_NAME, *(asks for asks, _ in _KINDS)))


def _join_neighbours(sentences: Sequence[Sentence], terms: frozenset[str]) -> list[str]:
    """The quotes: sentences that follow each other stand under one citation."""
    quotes: list[str] = []
    texts: list[str] = []
    for index, sentence in enumerate(sentences):
        texts.append(_quote(sentence, terms))
        after = sentences[index + 1] if index + 1 < len(sentences) else None
        if after is None or (after.number, after.place) != (sentence.number, sentence.place + 1):
            quotes.append(f"{' '.join(texts)} [{sentence.number}]")
            texts = []
    return quotes


def _quote(sentence: Sentence, terms: frozenset[str]) -> str:
    """The text without what would read as a citation of ours; of a record the name, and what is asked for."""
    text = sentence.text
    if sentence.parts:
        (_, name), *others = sentence.parts
        asked_fields = [(key, value) for key, value in others if frozenset(analyse(key)) & terms]
        if asked_fields:
            text = f"{name} — " + "; ".join(f"{key}: {value}" for key, value in asked_fields)
    excerpt = text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
    return _MARKER.sub("\\\\[", excerpt)
