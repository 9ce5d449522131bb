"""Whether a question refers to what was said before, and the words of a question that name its subject."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from contextrouter.builtin.shared.reference_words import REFERENCES, References
from contextrouter.text.analysis import has_unspaced
from contextrouter.text.query_syntax import drop_exclusions

_TOKEN = re.compile(r"[^\W_]+(?:[-.&+#/@][^\W_]+)*[+#]*")
_PART = re.compile(r"[^\W_]+")
_FEWEST = 3  # content words of a question that stands on its own
_MANY = 4  # content words before a pronoun, one of which it probably stands for
_BREAK = re.compile(r"[.,;:!?—–]")
_NO_DEMONSTRATIVE_AFTER = frozenset(
    "so such it all one those these now except something anything everything".split()
)


class _Word(NamedTuple):
    text: str  # in lower case
    spelled: str
    before: str  # what stands between it and the word before
    content: bool


def choose_language(question: str, before: str, language: str | None) -> str:
    """Return the language whose function words the question has, "" if none: of several alike that of the
    text before. A language that is set decides.
    """
    if language:
        return language if language in REFERENCES else ""
    counts = {
        code: (_count_function_words(question, references), _count_function_words(before, references))
        for code, references in REFERENCES.items()
    }
    best = max(counts, key=lambda code: counts[code])
    return best if counts[best][0] else ""


def _count_function_words(text: str, references: References) -> int:
    return sum(word.casefold() in references.function for word in _PART.findall(text))


def content_words(text: str, language: str) -> list[str]:
    """Return the words that name the subject, each once, as they are spelled; without exclusions."""
    references = REFERENCES.get(language)
    distinct: dict[str, str] = {}
    for token in _TOKEN.findall(drop_exclusions(text)):
        if references and all(part.casefold() in references.function for part in _PART.findall(token)):
            continue
        distinct.setdefault(token.casefold(), token)
    return list(distinct.values())


def refers_back(question: str, language: str) -> bool:
    """Whether a question cannot be understood alone: by its beginning, by a pronoun for which it has no name,
    or because it has fewer than three content words.

    Two content words suffice if a question word goes before them and one of them is a name, and one if the
    question asks what something is: "What is a photon?". In a language without a list of words, only their
    number counts.
    """
    question = drop_exclusions(question)
    references = REFERENCES.get(language)
    content = content_words(question, language)
    # A run of a script without spaces has about as many words as pairs of characters.
    number = sum(-(-len(word) // 2) if has_unspaced(word) else 1 for word in content)
    if references is None:
        return number < _FEWEST
    words = _read_words(question, references)
    texts = [word.text for word in words]
    if any(tuple(texts[: len(opener)]) == opener for opener in references.openers):
        return True
    if texts and texts[-1] in references.last:
        return True
    impersonal = [match.span() for match in references.impersonal.finditer(question)]
    places = [match.start() for match in _PART.finditer(question)]
    if any(
        _points_back(words, at, references)
        for at in range(len(words))
        if not any(start <= places[at] < end for start, end in impersonal)
    ):
        return True
    if number >= _FEWEST or _defines(question, language, references):
        return False
    return not (number == _FEWEST - 1 and _asks_of_a_name(words))


def _read_words(question: str, references: References) -> list[_Word]:
    words, end = [], 0
    for match in _PART.finditer(question):
        text = match.group().casefold()
        between = question[end : match.start()]
        words.append(_Word(text, match.group(), between, text not in references.function))
        end = match.end()
    return words


def _defines(question: str, language: str, references: References) -> bool:
    """Whether a question asks what something is that it names: with "a", with a name, or in two words."""
    match = references.definition.match(question)
    if match is None:
        return False
    subject = content_words(question[match.end() :], language)
    start = 1 if language == "de" else 0  # all nouns begin with a capital there
    named = any(not word[start:].islower() for word in subject if len(word) > start)
    return bool(subject) and bool(match["article"] or named or (match["one"] and len(subject) > 1))


def _asks_of_a_name(words: Sequence[_Word]) -> bool:
    """Whether a question begins with a word such as "who" and has a name: "Who founded OpenAI?"."""
    return not words[0].content and any(word.content and not word.spelled.islower() for word in words[1:])


def _points_back(words: Sequence[_Word], at: int, references: References) -> bool:
    """Whether the word at a place stands for something outside the question."""
    word, before = words[at], words[:at]
    following = words[at + 1].text if at + 1 < len(words) else ""
    if word.text in references.conjunctive:
        if before and (before[-1].content or before[-1].text in _NO_DEMONSTRATIVE_AFTER) and following:
            return False  # it joins sentences: "a car that runs on hydrogen"
    elif word.text in references.demonstratives:
        if following in references.exempt:
            return False
    elif word.text not in references.pronouns | references.possessives | references.persons:
        return False
    if before and word.spelled in ("Sie", "Ihnen", "Lei"):  # the polite form of address
        return False
    return not _names_antecedent(word, before, references)


def _names_antecedent(word: _Word, before: Sequence[_Word], references: References) -> bool:
    """Whether the question itself probably has what a pronoun stands for, before it."""
    content = [place for place, earlier in enumerate(before) if earlier.content]
    if not content:
        return False
    if word.text in references.possessives or word.before == "-" or len(content) >= _MANY:
        return True  # "When did Anna buy her car", « Quand Mozart est-il mort »
    if word.text in references.persons and any(not before[n].spelled.islower() for n in content if n):
        return True
    between = (*before[content[0] + 1 :], word)
    return any(w.text in references.conjunctions or _BREAK.search(w.before) for w in between)
