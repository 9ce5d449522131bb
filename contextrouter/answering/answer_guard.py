"""Checks of a generated answer: it has citations, and is in the language of the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextrouter.answering.answer_language import same_language
from contextrouter.model import Context
from contextrouter.runtime.threads import work_aside

AGAIN = (
    "Write that answer again, in the language of my question, and put behind every statement the number of"
    " the context block it comes from, in brackets. If the context does not answer the question, say so."
)


async def check_answer(
    question: str, answer: str, cited: Sequence[int], context: Context
) -> Mapping[str, bool]:
    """Check an answer. Returns the name of each check that applies, and whether the answer passes it."""
    checks = {}
    if context.envelopes:
        checks["cited"] = bool(cited)
    same = await work_aside(same_language, question, answer)  # the detector loads once, and computes
    if same is not None:
        checks["language"] = same
    return checks
