"""Conversations, orders and drafts: what an answer is written to, and what is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from contextrouter.answering.markdown_markers import checked
from contextrouter.contracts import Completion, Writing
from contextrouter.model import ModelUsage
from contextrouter.model.answer import AnswerOutcome


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a conversation. The last user turn with a text, at `index`, is the question."""

    turns: Sequence[Mapping[str, str]]
    index: int

    @property
    def question(self) -> str:
        """The text of the question."""
        return self.turns[self.index]["content"]

    @property
    def history(self) -> Sequence[Mapping[str, str]]:
        """The turns before the question."""
        return self.turns[: self.index]

    @property
    def without_markers(self) -> list[Mapping[str, str]]:
        """The turns, those of the assistant without citation markers: their numbers are of other contexts."""
        return [
            {**turn, "content": checked(turn["content"], 0).text} if turn["role"] == "assistant" else turn
            for turn in self.turns
        ]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer: the conversation, the generator that writes, and its limits. A `task` is no
    question: a chat program asks for a title of the conversation, or the like.
    """

    conversation: Conversation
    generator: str
    writing: Writing
    task: bool = False


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is written: its text, the generator's completion, the numbers cited, the checks, and
    what all language models of the request cost. `refusal` is what a model says instead of an answer.
    """

    text: str
    completion: Completion
    outcome: AnswerOutcome
    generator: str = ""
    refusal: str = ""
    thinking: str = ""
    cited: Sequence[int] = ()
    checks: Mapping[str, bool] = {}
    models: Sequence[ModelUsage] = ()
    note: str = ""  # why another generator wrote than the one that was to
    reason: str = ""  # what failed, in the words of its error
