"""Step 8: numbered context that a language model can cite. Pure.

Each document is a block under `### [n] title — source — compartment`; facts follow under a heading of their
own. The budget is in tokens. Facts may use up to a quarter of it, documents the rest and what the facts
leave; the best document always goes in, cut and marked where it must be. What strangers wrote stands behind a
fence, without what no reader sees, and a notice before it all says what the fence means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from contextrouter.model import Citation, Envelope, Fact
from contextrouter.pipeline.lanes import split
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
    """
    done = Assembled()
    live, _ = split(selected)
    blocks: list[str] = []
    count = count if budget else None
    lines, fact_tokens = _fact_lines(facts, budget // _FACT_SHARE if live else budget, count, done)
    left = budget - fact_tokens
    fence = _fence(live)
    kept, citations = done.envelopes, done.citations
    for envelope in live:
        citation, block = _cited(len(blocks) + 1, envelope)
        whole, mine = block, None
        if fence is not None and envelope.document.untrusted:
            mine = fence
            whole = mine.around(block)
        if count is not None:
            extra = 0 if mine is None or done.fenced else _cost(mine.notice, left, count)
            tokens = count(whole)
            cost = tokens + BETWEEN + extra
            if cost > left and not blocks and truncate is not None:
                over = extra + (0 if mine is None else _cost(mine.around(""), left, count))
                block = _shortened(block, envelope, left - over, count, truncate)
                whole = block if mine is None else mine.around(block)
                done.cut, cost, tokens = True, left, count(whole)
            elif cost > left:
                done.lost.append(envelope.drop(OVER))
                continue
            left -= cost
            citation = citation.replace(tokens=tokens)
        if mine is not None:
            _noted(envelope, done)
        blocks.append(whole)
        kept.append(envelope)
        citations.append(citation)
    if lines:
        blocks.append("\n".join([FACTS_HEADING, *lines]))
    if fence is not None and done.fenced:
        blocks.insert(0, fence.notice)
    done.text = "\n\n".join(blocks)
    if count is not None:
        done.tokens = count(done.text)
    return done


def _cost(text: str, left: int, count: Count) -> int:
    return count(text) + BETWEEN


def _fact_lines(
    facts: Sequence[Fact], budget: int, count: Count | None, done: Assembled
) -> tuple[list[str], int]:
    lines: list[str] = []
    if not facts:
        return lines, 0
    used = _cost(FACTS_HEADING, budget, count) + 1 if count is not None else 0
    for fact in facts:
        line = (
            f"- {_one_line(fact.subject)} — {_one_line(fact.predicate)} —"
            f" {_one_line(fact.object)}{_validity(fact)}"
        )
        if count is not None:
            cost = count(line) + 1
            if used + cost > budget:
                break
            used += cost
        lines.append(line)
        done.facts.append(fact)
    done.lost_facts = list(facts[len(lines) :])
    return lines, used if lines else 0


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


def _noted(envelope: Envelope, done: Assembled) -> None:
    """Count a document of strangers, and what was taken out of it."""
    document = envelope.document
    done.fenced += 1
    done.cleaned += sum([clean(part)[1] for part in (document.title, document.content, *document.path)])
    hidden = document.metadata.get("hidden_characters")
    if isinstance(hidden, int) and hidden > 0:
        done.hidden[document.parent or document.id] = hidden


def _cited(number: int, envelope: Envelope) -> tuple[Citation, str]:
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
        below = re.sub(_FORGED, _escaped, below)
    if below:
        block = f"{block}\n{below}"
    return Citation(number=number, title=title, url=document.url, source=source), block


def _escaped(match: re.Match[str]) -> str:
    """A backslash into what opens a line as the heading of a block, or of the facts, does."""
    text, at = match.string, match.start() - 1
    while at >= 0 and (text[at] in _MARGIN or text[at].isspace()) and text[at] not in _ENDS:
        at -= 1
    return match[0] if at >= 0 and text[at] not in _ENDS else "\\" + match[0]


def _shortened(block: str, envelope: Envelope, budget: int, count: Count, truncate: Truncate) -> str:
    limit = budget - count(CUT)
    cut = truncate(block, max(1, limit)).rstrip() + CUT
    return cut if limit > 0 else CUT.strip()
