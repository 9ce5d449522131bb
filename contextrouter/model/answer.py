"""Answer: a text that is written from a context, with the documents it cites and how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from contextrouter.model.html_table import html_table, link_cell, paragraph, text_cell
from contextrouter.model.noun import EMPTY, Noun
from contextrouter.model.plain_form import (
    Detail,
    brief,
    builtins,
    check_detail,
    encode_json,
    shorten,
    with_noun,
)
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

    def to_dict(self, detail: Detail = "brief") -> dict[str, Any]:
        """Return the answer as mappings, lists and scalars, as `POST /v1/answer` has it; `detail` is that of
        the context in it. Raises ValueError for another one.
        """
        check_detail(detail)
        form = brief if detail == "brief" else builtins
        fields = {name: form(getattr(self, name)) for name in self.__struct_fields__ if name != "context"}
        return {**fields, "context": self.context.to_dict(detail)}

    def to_json(self, detail: Detail = "brief") -> str:
        """Return `to_dict` as JSON."""
        return encode_json(self.to_dict(detail)).decode()

    def __repr__(self) -> str:
        wrote = f"by {self.generator!r}" if self.generator else "by the settings"
        text = shorten(self.text)
        cited = with_noun(len(self.citations), "citation")
        return f"Answer({self.outcome}, {text!r}, {cited}, {wrote}, {self.context!r})"

    def _repr_html_(self) -> str:
        """Return the answer and a table of its citations, which notebooks show."""
        rows = [
            (str(citation.number), link_cell(citation.title, citation.url), text_cell(citation.source))
            for citation in self.citations
        ]
        return paragraph(self.text) + html_table(self.outcome, ("", "document", "source"), rows)
