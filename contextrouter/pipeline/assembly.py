"""Context assembly (step 10): text with citation numbering for a model, within the token budget. Pure.

Each document is a block under `### [n] title — source — compartment`; facts follow under a heading of their
own. The budget is in tokens. Facts may use up to a quarter of it, documents the rest and what the facts
leave; the best document always goes in, cut and marked where it must be. What strangers wrote stands behind a
fence, without what no reader sees, and a notice before it all says what the fence means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from contextrouter.model import Citation, Envelope, Fact
from contextrouter.pipeline.envelopes import split
from contextrouter.text.prompt_injection import Fence, clean

CUT = " […]"
OVER = "token budget"
BETWEEN = 2
"""Tokens counted for the blank line between two blocks."""
_FACT_SHARE = 4
FACTS_HEADING = "### Facts"
_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # whatever `str.splitlines` takes for the end of a line
_UNSEEN = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_BLANK = rf"(?:[^\S{_ENDS}]|[{_UNSEEN}])"
# Patterns are texts, which `re` compiles when they are first used and keeps: to compile them takes longer
# than most imports.
_FORGED = rf"##{{0,15}}+{_BLANK}*+(?:\[{_BLANK}*+\d+{_BLANK}*+\]|(?i:facts)[^\w{_ENDS}]*+(?=[{_ENDS}]|\Z))"
_MARGIN = _UNSEEN + "#"

Count = Callable[[str], int]
Truncate = Callable[[str, int], str]


class Assembled:
    """What assembly makes: the text, the envelopes in it and those that did not fit, citations, facts,
    tokens.
    """

    __slots__ = (
        "citations",
        "cleaned",
        "cut",
        "envelopes",
        "facts",
        "fenced",
        "hidden",
        "lost",
        "lost_facts",
        "text",
        "tokens",
    )

    def __init__(self) -> None:
        self.text = ""
        self.envelopes: list[Envelope] = []
        self.lost: list[Envelope] = []
        self.citations: list[Citation] = []
        self.facts: list[Fact] = []
        self.lost_facts: list[Fact] = []
        self.tokens: int | None = None
        self.cut = False  # whether the best document had to be shortened
        self.fenced = 0  # documents of strangers
        self.cleaned = 0  # characters taken out of them here, which no reader sees
        self.hidden: dict[
            str, int
        ] = {}  # page -> characters that its source took out, which it hid from its readers

    @property
    def note(self) -> str:
        """What was done to the documents, for the trace; empty: nothing."""
        notes = ["the best document was cut to the token budget"] if self.cut else []
        if self.lost_facts:
            notes.append(f"{len(self.lost_facts)} facts were beyond the token budget")
        if self.fenced:
            notes.append(f"untrusted documents fenced: {self.fenced}")
        if self.cleaned:
            notes.append(f"control or invisible characters removed: {self.cleaned}")
        if self.hidden:
            notes.append(f"characters of hidden text removed: {sum(self.hidden.values())}")
        return "; ".join(notes)


def assemble(
    selected: Sequence[Envelope],
    facts: Sequence[Fact] = (),
    *,
    budget: int = 0,
    count: Count | None = None,
    truncate: Truncate | None = None,
) -> Assembled:
    """Number, cite and join the live ones among `selected`. `budget` 0: everything goes in, nothing is
    counted.

    `count(text)` gives tokens, `truncate(text, tokens)` the beginning of a text.
    """
    live, _ = split(selected)
    writer = _Writer(_fence(live), budget, count, truncate)
    writer.add_facts(facts, budget // _FACT_SHARE if live else budget)
    for envelope in live:
        writer.add_document(envelope)
    return writer.finish()


class _Writer:
    """Writes blocks while tokens are left. `fence` stands around the documents that strangers wrote."""

    def __init__(
        self, fence: Fence | None, budget: int, count: Count | None, truncate: Truncate | None
    ) -> None:
        self.fence, self.left, self.truncate = fence, budget, truncate
        self.count = count if budget else None
        self.result = Assembled()
        self.blocks: list[str] = []
        self.fact_lines: list[str] = []

    def add_facts(self, facts: Sequence[Fact], budget: int) -> None:
        """Add a line for each fact, as many as fit into `budget`."""
        count, cost = self.count, 0
        if count is not None and facts:
            cost = self._cost(FACTS_HEADING) + 1
        for fact in facts:
            line = f"- {_one_line(fact.subject)} — {_one_line(fact.predicate)} — {_one_line(fact.object)}"
            line += _validity(fact)
            if count is not None:
                line_cost = count(line) + 1
                if cost + line_cost > budget:
                    break
                cost += line_cost
            self.fact_lines.append(line)
            self.result.facts.append(fact)
        self.result.lost_facts = list(facts[len(self.fact_lines) :])
        if self.fact_lines:
            self.left -= cost

    def add_document(self, envelope: Envelope) -> None:
        """Add a document if it fits. The best one always does: it is cut where it must be."""
        result = self.result
        citation, block = _cite(len(self.blocks) + 1, envelope)
        fence = self.fence if envelope.document.untrusted else None
        fenced = block if fence is None else fence.around(block)
        if self.count is not None:
            notice = 0 if fence is None or result.fenced else self._cost(fence.notice)
            tokens = self.count(fenced)
            cost = tokens + BETWEEN + notice
            if cost > self.left and not self.blocks and self.truncate is not None:
                frame = notice + (0 if fence is None else self._cost(fence.around("")))
                block = self._cut(block, self.left - frame)
                fenced = block if fence is None else fence.around(block)
                result.cut, cost, tokens = True, self.left, self.count(fenced)
            elif cost > self.left:
                result.lost.append(envelope.drop(OVER))
                return
            self.left -= cost
            citation = citation.replace(tokens=tokens)
        if fence is not None:
            _note_cleaning(envelope, result)
        self.blocks.append(fenced)
        result.envelopes.append(envelope)
        result.citations.append(citation)

    def finish(self) -> Assembled:
        """Join the blocks: the notice of the fence first, facts last."""
        result, blocks = self.result, self.blocks
        if self.fact_lines:
            blocks.append("\n".join([FACTS_HEADING, *self.fact_lines]))
        if self.fence is not None and result.fenced:
            blocks.insert(0, self.fence.notice)
        result.text = "\n\n".join(blocks)
        if self.count is not None:
            result.tokens = self.count(result.text)
        return result

    def _cost(self, text: str) -> int:
        assert self.count is not None
        return self.count(text) + BETWEEN

    def _cut(self, block: str, budget: int) -> str:
        assert self.count is not None
        assert self.truncate is not None
        limit = budget - self.count(CUT)
        text = self.truncate(block, max(1, limit)).rstrip() + CUT
        return text if limit > 0 else CUT.strip()


def _validity(fact: Fact) -> str:
    if fact.valid_from is None and fact.valid_to is None:
        return ""
    start = fact.valid_from.date().isoformat() if fact.valid_from else "…"
    end = fact.valid_to.date().isoformat() if fact.valid_to else "…"
    return f" ({start} to {end})"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fence(live: Sequence[Envelope]) -> Fence | None:
    """The fence of the documents that strangers wrote; None when there are none."""
    foreign = [envelope.document for envelope in live if envelope.document.untrusted]
    return (
        Fence([part for d in foreign for part in (d.title, d.url, d.content, *d.path)]) if foreign else None
    )


def _note_cleaning(envelope: Envelope, done: Assembled) -> None:
    """Count a document of strangers, and what was taken out of it."""
    document = envelope.document
    done.fenced += 1
    done.cleaned += sum([clean(part)[1] for part in (document.title, document.content, *document.path)])
    hidden = document.metadata.get("hidden_characters")
    if isinstance(hidden, int) and hidden > 0:
        done.hidden[document.parent or document.id] = hidden


def _cite(number: int, envelope: Envelope) -> tuple[Citation, str]:
    document, provenance = envelope.document, envelope.provenance
    if document.untrusted:
        parts = {name: clean(getattr(document, name))[0] for name in ("title", "url", "id", "content")}
        document = document.replace(**parts, path=tuple([clean(part)[0] for part in document.path]))
    title = (
        " ".join(document.title.split()) or _one_line(document.url) or _one_line(document.id) or "untitled"
    )
    source = provenance[0].source if provenance else ""
    block = f"### [{number}] {title} — {source}" if source else f"### [{number}] {title}"
    if document.compartment:
        block += " — " + _one_line(document.compartment)
    below = document.content.strip()
    if document.path:
        below = " > ".join([_one_line(part) for part in document.path]) + ("\n" + below if below else "")
    if "#" in below:
        below = re.sub(_FORGED, _escape, below)
    if below:
        block = f"{block}\n{below}"
    return Citation(number=number, title=title, url=document.url, source=source), block


def _escape(match: re.Match[str]) -> str:
    """A backslash into what opens a line as the heading of a block, or of the facts, does."""
    text, at = match.string, match.start() - 1
    while at >= 0 and (text[at] in _MARGIN or text[at].isspace()) and text[at] not in _ENDS:
        at -= 1
    return match[0] if at >= 0 and text[at] not in _ENDS else "\\" + match[0]
