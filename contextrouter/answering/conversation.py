"""Conversations, orders and drafts: what an answer is written to, and what is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from contextrouter.answering.markdown_markers import checked
from contextrouter.contracts import Completion, Writing
from contextrouter.model import ModelUsage
from contextrouter.model.answer import AnswerOutcome
from contextrouter.runtime.threads import work_aside

AT_ONCE = 1_000
"""Characters of former answers that are read on the event loop."""
LONGEST_PARSED = 10_000
"""Characters of a former answer that are parsed as Markdown, which can take as long as their square."""
_MARKER = re.compile(r" ?\[\d{1,4}(?:, ?\d{1,4})*\](?![(:])")


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

    async def without_markers(self) -> list[Mapping[str, str]]:
        """The turns, those of the assistant without citation markers: their numbers are of other contexts.
        Long ones are read in a thread, while the event loop answers others.
        """
        length = sum([len(turn["content"]) for turn in self.turns if turn["role"] == "assistant"])
        return self._clean_turns() if length <= AT_ONCE else await work_aside(self._clean_turns)

    def _clean_turns(self) -> list[Mapping[str, str]]:
        return [
            {**turn, "content": _without_markers(turn["content"])} if turn["role"] == "assistant" else turn
            for turn in self.turns
        ]


def _without_markers(text: str) -> str:
    """Return a text without its citation markers. In a long one they are taken out of code as well."""
    return checked(text, 0).text if len(text) <= LONGEST_PARSED else _MARKER.sub("", text)


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
