"""The generator `extractive`: quotes sentences of the context with citations, without a language model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from contextrouter.builtin.generators.asked_kinds import (
    NAME,
    TIME,
    asks_for_kind,
    asks_for_thing,
    has_answer,
    kind_terms,
    says_when,
    terms_of_topic,
)
from contextrouter.builtin.generators.context_blocks import Sentence, Statement, sentences_of, statements_of
from contextrouter.builtin.shared.back_references import choose_language, refers_back
from contextrouter.contracts import Abstention, Completion, Generator
from contextrouter.errors import PluginError
from contextrouter.runtime.threads import work_aside
from contextrouter.text.analysis import analyse, stop_terms
from contextrouter.text.query_syntax import query_terms

_ENDED = tuple(".!?。！？:;")
_MARKER = re.compile(r"\[(?=[\d\s,;–-]+\])")
_THINKING = re.compile(r"<(?=/?(?:think|thinking|reasoning)>)", re.I)
_OPEN_FENCE = re.compile(r"\A(?=```|~~~)")
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
_TICK = re.compile(r"\\*`")
_LONGEST = 400

_HAS = 1.5  # times the score of such a sentence
_LENDS = 0.1  # of the weight of all words, added to it: "When was that?" has no word of its own
_AGAIN = 0.5  # of the weight of a word counts once it is quoted
_SHORT, _SHORT_FACTOR = 8, 1.1  # words of a short question, and how much more of it has to be held
_MANY = 14  # words of a question that asks for more than one block holds
_WHOLE = 0.3  # weighed share of such a question from which on one block holds enough
_COVERED = 0.3  # weighed share of the question's words that is held, or it does not answer
_CALLED = (
    0.6  # of the share of a title's words, added to the score of a block that is called what is asked for
)
_NEXT = 0.75  # of the score of the best block, for another one to be quoted too
_NEAR = 0.4  # of the score of the best sentence, for another one of a long block to be quoted too
_ASKING = "tell explain describe"
_DOER = re.compile(r"(?<=\w{3})[eo]r\Z")
_WRITES = re.compile(r"(?:auth|wrote|write|writ)\Z")  # without the ending of a doer
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
    come near it; of a long block the sentences that come near its best one. A long question of which no block
    holds much is answered from several, each with its title. An attribute of a name is read from the row or
    record of that name, or from facts and entities where no sentence says it. A question for a time is
    answered by a block that has one, or a condition, or whose title it names. It adds no word of its own,
    and abstains where block and sentence hold less than `coverage` of the words' weight: of a question of up
    to eight words more, of one with over fourteen less.
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
            return ["\n".join(map(_line, facts[:_MOST_FACTS]))]
        return _join_neighbours(chosen, terms)


def _question_terms(questions: Sequence[str]) -> frozenset[str]:
    """The terms of the last question, with those of the one before where it goes on from that: "And why?".
    Words that only ask are none: "Explain", "Tell me".
    """
    terms = frozenset(query_terms(questions[-1]).terms)
    terms = terms.difference(analyse(_ASKING)) or terms
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
        subject, object = (_content_terms(analyse(name)) for name in (fact.subject, fact.object))
        relations = _relations(analyse(fact.predicate.replace("_", " ")))
        is_answer = any(
            name and name <= terms and relations & _relations(terms - name) for name in (subject, object)
        )
        words = frozenset(analyse(f"{fact.subject} {fact.object}"))
        if is_answer and not any(words <= sentence.words | sentence.title for sentence in chosen):
            matching.append(fact)
    return matching


def _content_terms(terms: Iterable[str]) -> frozenset[str]:
    """The terms that questions are searched with; all of them where there is no other one."""
    found = frozenset(terms)
    return found - stop_terms() or found


def _relations(terms: Iterable[str]) -> frozenset[str]:
    """The terms, those that name a doer as what is done: "founder" as "found", "author" as "written"."""
    doers = [_DOER.sub("", term) for term in terms]
    return frozenset([_WRITES.sub("written", term) for term in doers])


def _line(fact: Statement) -> str:
    """A fact as a line of a list, without what would read as a citation."""
    text = " — ".join((fact.subject, fact.predicate, fact.object))
    return _escape(f"- {text} {fact.since}".rstrip())


def choose_sentences(
    question: str, terms: frozenset[str], sentences: Sequence[Sentence], limit: int, coverage: float
) -> list[Sentence]:
    """The sentences of the best blocks, in the order of the context; none where no block holds enough."""
    weight = _weigh(terms_of_topic(question, terms), sentences)
    blocks = _rank_blocks(question, weight, sentences)
    if TIME[0].search(question) and len(terms) <= _MANY and coverage > 0:
        blocks = [
            block for block in blocks if _has_time(block) or _is_called(block.sentences[0].title, weight)
        ]
    if not blocks or not _is_covered(question, weight, blocks, coverage):
        return []
    if len(terms) > _MANY and blocks[0].share < _WHOLE:
        chosen = _best_of_several(question, weight, sentences, limit)
    else:
        chosen = _best_blocks(question, weight, blocks, limit)
    return sorted(chosen, key=lambda sentence: (sentence.number, sentence.place))


def _has_time(block: _Ranked) -> bool:
    """Whether a block can answer a question for a time; of a row or a record it need not be words of ours."""
    return any(sentence.parts or says_when(sentence.text) for sentence in block.sentences)


def _is_called(title: frozenset[str], weight: Mapping[str, float]) -> bool:
    """Whether a question has all words of a title: then it asks for what the document is about."""
    called = _content_terms(title)
    return bool(called) and called <= weight.keys()


def _is_covered(
    question: str, weight: Mapping[str, float], blocks: Sequence[_Ranked], coverage: float
) -> bool:
    """Whether the best block and the best sentence hold enough of the question. The longer a question is, the
    less of it stands in one place; of two words both count, for one says little, unless it is a name.
    """
    words, total = len(weight), sum(weight.values()) or 1.0
    topic = terms_of_topic(question, frozenset(query_terms(question).terms))
    if words == 2 and coverage > 0 and weight.keys() <= topic:
        sentences = blocks[0].sentences
        present = frozenset[str]().union(*(s.words | s.title for s in sentences)) & weight.keys()
        names = {term for name in NAME.findall(question) for term in analyse(name)}
        # "On which days do we deploy?" is answered by a weekday, without the word day
        if any(has_answer(question, sentence.text) for sentence in sentences if sentence.words & present):
            present |= kind_terms(question) & weight.keys()
        return len(present) == 2 or bool(present & names)
    factor = _SHORT_FACTOR if words <= _SHORT else min(1.0, _MANY / words)
    sentences = [sentence for block in blocks for sentence in block.sentences]
    best = max(sum(weight[w] for w in (s.words | s.title) & weight.keys()) for s in sentences) / total
    return (blocks[0].share + best) / 2 >= coverage * factor


def _best_blocks(
    question: str, weight: Mapping[str, float], blocks: Sequence[_Ranked], limit: int
) -> list[Sentence]:
    """The best sentences of the best block, and of others that come near it."""
    chosen: list[Sentence] = []
    asks_time = TIME[0].search(question) is not None and _has_time(blocks[0])
    for block in blocks:
        if block.score < _NEXT * blocks[0].score or len(chosen) >= limit:
            break
        if chosen and len(weight) == 1 and not asks_for_kind(question):
            break  # whatever holds a single word comes near: the best one is the answer
        sentences = _named_rows(weight, block.sentences) or block.sentences
        scores = {s.place: _score(question, s, weight) for s in sentences}
        ordered = sorted(sentences, key=lambda s: (-scores[s.place], s.place))
        least = _NEAR * scores[ordered[0].place]
        best = [s for s in ordered if scores[s.place] > least or len(sentences) <= limit]
        if asks_time and not any(s.parts or says_when(s.text) for s in best):
            continue  # its time is not of what is asked for
        if chosen and asks_for_thing(question):
            best = [s for s in best if has_answer(question, s.text)]
        texts = {sentence.text for sentence in chosen}
        chosen += [s for s in best if s.text not in texts][: limit - len(chosen)]
    return chosen


def _named_rows(weight: Mapping[str, float], sentences: Sequence[Sentence]) -> list[Sentence]:
    """The rows and records whose name is in the question: of several the one with the longest name."""
    names = [(_content_terms(analyse(s.parts[0][1])), s) for s in sentences if s.parts]
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
        score = text_share + 0.5 * title_share + 0.8 * best + 0.3 / (1 + place)
        if _is_called(title, weight):
            score += _CALLED * sum(weight[word] for word in _content_terms(title)) / total
        ranked.append(_Ranked(score, text_share + title_share, group))
    return sorted(ranked, key=lambda block: -block.score)


def _score(question: str, sentence: Sentence, weight: Mapping[str, float]) -> float:
    """What a sentence holds of the question; more if it has what is asked for."""
    score = sum(weight[word] for word in sentence.words & weight.keys())
    score += sum(weight[word] for word in (sentence.title - sentence.words) & weight.keys()) / 4
    if not (sentence.text.endswith(_ENDED) or sentence.parts or sentence.item):
        score /= 2  # a heading says little
    if has_answer(question, sentence.text):
        score = score * _HAS + _LENDS * sum(weight.values())
    return score / (1 + 0.02 * max(0, len(sentence.words) - 20))


def _join_neighbours(sentences: Sequence[Sentence], terms: frozenset[str]) -> list[str]:
    """The quotes: sentences that follow each other stand under one citation."""
    quotes: list[str] = []
    text = ""
    for index, sentence in enumerate(sentences):
        text += _quote(sentence, terms)
        after = sentences[index + 1] if index + 1 < len(sentences) else None
        if after is None or (after.number, after.place) != (sentence.number, sentence.place + 1):
            quotes.append(f"{text} [{sentence.number}]")
            text = ""
        else:
            text += " " if text.endswith(_ENDED) else "; "  # items of a list, rows of a table
    return quotes


def _quote(sentence: Sentence, terms: frozenset[str]) -> str:
    """The text without what would read as a mark of ours; of a record the name, and what is asked for."""
    text = sentence.text
    if sentence.parts:
        (_, name), *others = sentence.parts
        asked_fields = [(key, value) for key, value in others if frozenset(analyse(key)) & terms]
        if asked_fields:
            text = f"{name} — " + "; ".join(f"{key}: {value}" for key, value in asked_fields)
    return _escape(text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …")


def _escape(text: str) -> str:
    """Escape what would read as a citation, as the thinking of a model, or as code that does not end."""
    text = _THINKING.sub("&lt;", _MARKER.sub("\\\\[", text))
    text = _OPEN_FENCE.sub(r"\\", text)
    return _TICK.sub(r"\\`", text) if "`" in _CODE.sub("", text) else text
