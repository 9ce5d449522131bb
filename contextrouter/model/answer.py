"""Answer: a text that is written from a context, with the documents it cites and how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from contextrouter.model.noun import EMPTY, Noun
from contextrouter.model.result import Citation, Context, Usage

AnswerOutcome = Literal["answered", "clarify", "gated", "empty", "declined"]


class Answer(Noun, frozen=True, kw_only=True):
    """What the user reads, and why. `[n]` in the text is the citation with that number.

    Outcome "answered"; "clarify": the text asks back; "gated": nothing found is near enough to the question;
    "empty": nothing was found, or nothing that was found answers; "declined": the model refused, or a filter
    stopped it.
    """

    question: str
    outcome: AnswerOutcome
    text: str
    citations: tuple[Citation, ...] = ()  # those that the text cites, in the order of their first use
    context: Context
    usage: Usage  # of the context, and with the models of the answer
    generator: str = ""  # its name in the settings; "": none wrote, the text is that of the settings
    finish: str = "stop"  # stop, length, refusal, filter, abstained
    thinking: str = ""  # what the model thought before it answered: no part of the answer
    checks: Mapping[str, bool] = EMPTY  # "cited", "language": whether the answer passes
    note: str = ""  # why another generator wrote than the one that was to
