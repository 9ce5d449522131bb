"""Asks back where a question is too vague to search for: few words, no conversation, nothing of the asker."""

from __future__ import annotations

import re
from typing import Self

from contextrouter.contracts import Interpreter, InterpreterContext
from contextrouter.model import Clarification, Intent
from contextrouter.text.analysis import has_unspaced
from contextrouter.text.stop_words import REQUEST_WORDS

_WORD = re.compile(r"\w+")
_WITHOUT_TOPIC = REQUEST_WORDS | frozenset(
    (
        "anything everything hello help hi know learn like need question questions something "
        "stuff teach thank thanks thing things topic understand want"
    ).split()
)


class Clarify(Interpreter):
    """Asks `clarification` back for a question with fewer than `least_words` words that say something.

    One such word is a topic: "What is photosynthesis?". Words such as "help" or "something" say nothing. A
    question with a history or a profile is never asked back, for these say what it is about. Words of
    scripts without spaces count by their characters.
    """

    def __init__(
        self,
        *,
        least_words: int = 1,
        clarification: str = "What exactly do you want to know? Please name the thing you ask about.",
    ) -> None:
        if least_words < 1:
            raise ValueError(f"least_words {least_words!r} is below 1.")
        if not clarification.strip():
            raise ValueError("clarification is empty. Give the question to ask back.")
        self._least_words, self._clarification = least_words, clarification

    @classmethod
    def example(cls) -> Self:
        """As it is by default."""
        return cls()

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        """Return the intent, with a question to ask back where it is vague."""
        request = context.request
        if intent.clarify is not None or request.history or request.profile:
            return intent
        if _content_words(intent.question) >= self._least_words:
            return intent
        return intent.replace(clarify=Clarification(question=self._clarification, reason="vague"))


def _content_words(question: str) -> int:
    """Return how many words say something; a run of letters of a script without spaces has many."""
    words = [word for word in _WORD.findall(question) if word.casefold() not in _WITHOUT_TOPIC]
    return sum([len(word) if has_unspaced(word) else 1 for word in words])
