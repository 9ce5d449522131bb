"""Context assembly (step 10): text with citation numbering for a model, within the token budget. Pure.

Each document is a block under `### [n] title — source — compartment`; facts, entities and counts follow under
headings of their own. The budget is in tokens. Entities, facts and counts, in this order, may use up to a
quarter of it, documents the rest and what they leave; the best document always goes in, cut and marked where
it must be. What strangers wrote stands within a fence, without what no reader sees; a notice before it all
says what the fence means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from contextrouter.model import Citation, Document, Entity, Envelope, Facet, Fact
from contextrouter.pipeline.citations import (
    heading_of,
    identity_of,
    make_citation,
    names_apart,
    one_line,
    visible_document,
)
from contextrouter.pipeline.connection_titles import Origin, source_of
from contextrouter.pipeline.envelopes import split
from contextrouter.text.answer_lines import (
    CountLine,
    count_lines,
    count_text,
    entity_line,
    fact_line,
    foreign_dimensions,
    has_ended,
    split_ended,
)
from contextrouter.text.prompt_injection import Fence, clean, clean_line, escape_marks
from contextrouter.text.repeated_titles import without_repeats

CUT = " […]"
OVER = "token budget"
BETWEEN = 2
"""Tokens counted for the blank line between two blocks."""
_FACT_SHARE = 4
FACTS_HEADING, ENTITIES_HEADING, COUNTS_HEADING = "### Facts", "### Entities", "### Counts"
ENDED = "No longer true:"
"""Stands above the facts that stopped being true."""

T = TypeVar("T", bound="Fact | Entity | CountLine")
Count = Callable[[str], int]
Truncate = Callable[[str, int], str]


class Beside(NamedTuple):
    """What stands beside documents and facts. `now` tells facts that stopped being true; None: none are told
    apart. `origin` names the connection that a document comes from, its job and its file; None: its source
    is all that is known. The words of the `question` tell which page is cited.
    """

    entities: Sequence[Entity] = ()
    facets: Sequence[Facet] = ()
    now: datetime | None = None
    origin: Callable[[Envelope], Origin] | None = None
    question: str = ""


class Assembled:
    """What assembly makes: the text, the envelopes in it and those that did not fit, citations, facts,
    entities, facets, tokens.
    """

    __slots__ = (
        "citations",
        "cleaned",
        "cut",
        "entities",
        "envelopes",
        "facets",
        "facts",
        "fenced",
        "hidden",
        "lost",
        "lost_entities",
        "lost_facets",
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
        self.entities: list[Entity] = []
        self.lost_entities: list[Entity] = []
        self.facets: list[Facet] = []
        self.lost_facets: list[Facet] = []
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
        for name, lost in (
            ("facts", self.lost_facts),
            ("entities", self.lost_entities),
            ("counts", self.lost_facets),
        ):
            if lost:
                notes.append(f"{len(lost)} {name} were beyond the token budget")
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
    beside: Beside | None = None,
    budget: int = 0,
    count: Count | None = None,
    truncate: Truncate | None = None,
) -> Assembled:
    """Number, cite and join the live ones among `selected`, with facts and what stands `beside`. `budget` 0:
    everything goes in, nothing is counted.

    `count(text)` gives tokens, `truncate(text, tokens)` the beginning of a text.
    """
    live, _ = split(selected)
    beside = beside or Beside()
    fence = make_fence([*(envelope.document for envelope in live), *facts, *beside.entities, *beside.facets])
    writer = _Writer(fence, budget, count, truncate)
    writer.origin = beside.origin or writer.origin
    writer.question = beside.question
    writer.names = names_apart(live, writer.origin)
    writer.add_answers(facts, beside, budget // _FACT_SHARE if live else budget)
    for envelope in live:
        writer.add_document(envelope)
    return writer.finish()


class _Writer:
    """Writes blocks while tokens are left. `fence` stands around what strangers wrote."""

    def __init__(
        self, fence: Fence | None, budget: int, count: Count | None, truncate: Truncate | None
    ) -> None:
        self.fence, self.left, self.truncate = fence, budget, truncate
        self.count = count if budget else None
        self.result = Assembled()
        self.blocks: list[str] = []
        self.sections: list[str] = []
        self.tokens = 0  # of the blocks
        self.origin: Callable[[Envelope], Origin] = lambda envelope: Origin(source_of(envelope))
        self.question = ""  # its words tell which page of a document is cited
        self.names: Mapping[str, str] = {}  # of documents that share their heading with others, by their ids
        self.noticed = False  # whether the text needs the notice of the fence

    def add_answers(self, facts: Sequence[Fact], beside: Beside, budget: int) -> None:
        """Add the sections of entities, facts and counts, as many lines as fit into `budget`. An entity is
        the answer to a question about one attribute, so that entities come first.
        """
        if not (facts or beside.entities or beside.facets):
            return
        result, now, share = self.result, beside.now, _Share(self.count, budget, self.fence)
        result.entities, result.lost_entities = share.take(ENTITIES_HEADING, beside.entities, entity_line)
        oldest = next((fact for fact in facts if has_ended(fact, now)), None)
        result.facts, result.lost_facts = share.take(
            FACTS_HEADING,
            facts,
            lambda fact: f"{ENDED}\n{fact_line(fact)}" if fact is oldest else fact_line(fact),
            part=lambda fact: has_ended(fact, now),
        )
        result.facets, result.lost_facets = _take_counts(share, beside.facets)
        self.left -= share.used
        self.noticed = share.noticed
        current, ended = split_ended(result.facts, now)
        lines = self._lines(current, fact_line)
        counts = count_lines(result.facets, foreign_dimensions(beside.facets))
        sections = {
            FACTS_HEADING: [*lines, *([ENDED, *self._lines(ended, fact_line)] if ended else [])],
            ENTITIES_HEADING: self._lines(result.entities, entity_line),
            COUNTS_HEADING: self._lines(counts, count_text),
        }
        self.sections = ["\n".join([heading, *lines]) for heading, lines in sections.items() if lines]

    def _lines(self, items: Sequence[T], line: Callable[[T], str]) -> list[str]:
        """The lines of items: those of strangers behind the others, within the fence."""
        lines = [line(item) for item in items if not item.untrusted]
        foreign = [line(item) for item in items if item.untrusted]
        if self.fence is not None and foreign:
            lines.append(self.fence.around("\n".join(foreign)))
        return lines

    def add_document(self, envelope: Envelope) -> None:
        """Add a document if it fits. The best one always does: it is cut where it must be."""
        result = self.result
        document = visible_document(envelope.document)
        origin = self.origin(envelope)
        citation = make_citation(len(self.blocks) + 1, envelope, origin, self.question)
        name = self.names.get(identity_of(envelope.document), "")
        block, content = _document_block(document, heading_of(citation, origin.title, document, name))
        fence = self.fence if envelope.document.untrusted else None
        fenced = block if fence is None else fence.around(block)
        if self.count is not None:
            notice = 0 if fence is None or self.noticed else self._cost(fence.notice)
            tokens = self._tokens_of(block, content, envelope.document) + (
                0 if fence is None else self._frame(fence)
            )
            cost = tokens + BETWEEN + notice
            if cost > self.left and not self.blocks and self.truncate is not None:
                frame = notice + (0 if fence is None else self._frame(fence) + BETWEEN)
                complete, block = block, self._cut(block, self.left - frame)
                citation = citation.replace(characters=_remaining(envelope.document, complete, block))
                fenced = block if fence is None else fence.around(block)
                result.cut, cost, tokens = True, self.left, self.count(fenced)
            elif cost > self.left:
                result.lost.append(envelope.drop(OVER))
                return
            self.left -= cost
            self.tokens += tokens
            citation = citation.replace(tokens=tokens)
        if fence is not None:
            self.noticed = True
            _note_cleaning(envelope, result)
        self.blocks.append(fenced)
        result.envelopes.append(envelope)
        result.citations.append(citation)

    def finish(self) -> Assembled:
        """Join the blocks: the notice of the fence first, facts, entities and counts last."""
        result = self.result
        notice = [self.fence.notice] if self.fence is not None and self.noticed else []
        result.text = "\n\n".join([*notice, *self.blocks, *self.sections])
        if self.count is not None:  # no token reaches across a blank line, and the blocks are counted already
            result.tokens = self.tokens + sum(map(self.count, [*notice, *self.sections]))
        return result

    def _tokens_of(self, block: str, content: str, document: Document) -> int:
        """The tokens of a document's block, which ends with its content. Those were counted when
        it was stored; a title that is not repeated was counted with them.
        """
        assert self.count is not None
        whole = document.content.strip()
        left_out = whole[: len(whole) - len(content)]
        known = content and whole.endswith(content) and left_out[-1:].strip() == ""
        if document.tokens is None or not known or not block.endswith(f"\n{content}"):
            return self.count(block)
        tokens = document.tokens - (self.count(left_out) if left_out else 0)
        return self.count(block[: -len(content)]) + tokens

    def _frame(self, fence: Fence) -> int:
        assert self.count is not None
        return self.count(fence.around(""))

    def _cost(self, text: str) -> int:
        assert self.count is not None
        return self.count(text) + BETWEEN

    def _cut(self, block: str, budget: int) -> str:
        assert self.count is not None
        assert self.truncate is not None
        limit = budget - self.count(CUT)
        text = self.truncate(block, max(1, limit)).rstrip() + CUT
        return text if limit > 0 else CUT.strip()


class _Share:
    """The tokens that the sections beside the documents may use, and those used. `count` None: any number."""

    def __init__(self, count: Count | None, budget: int, fence: Fence | None) -> None:
        self.count, self.budget, self.fence, self.used = count, budget, fence, 0
        self.noticed = False  # whether something taken needs the notice of the fence

    def take(
        self,
        heading: str,
        items: Sequence[T],
        line: Callable[[T], str],
        part: Callable[[T], bool] = lambda item: False,
    ) -> tuple[list[T], list[T]]:
        """Return the first items whose lines fit below a heading, and the rest. What strangers wrote has a
        fence in each `part` of the section.
        """
        count = self.count
        if count is None or not items:
            self.noticed = self.noticed or any([item.untrusted for item in items])
            return list(items), []
        cost, number, fenced = self.used + count(heading) + BETWEEN + 1, 0, set[bool]()
        for item in items:
            cost += count(line(item)) + 1
            if item.untrusted and part(item) not in fenced:
                cost += self._fence_cost(count)
                fenced.add(part(item))
            if cost > self.budget:
                break
            self.used, number = cost, number + 1
            self.noticed = self.noticed or item.untrusted
        return list(items[:number]), list(items[number:])

    def _fence_cost(self, count: Count) -> int:
        if self.fence is None:
            return 0
        notice = 0 if self.noticed else count(self.fence.notice) + BETWEEN
        return count(self.fence.around("")) + BETWEEN + notice


def _take_counts(share: _Share, facets: Sequence[Facet]) -> tuple[list[Facet], list[Facet]]:
    """Return the facets that fit, and the rest, both in their order. The dimensions take turns: the first
    value of each, the second of each, and so on.
    """
    turns: list[tuple[int, CountLine]] = []
    counts: Counter[str] = Counter()
    foreign = foreign_dimensions(facets)
    for number, facet in enumerate(facets):
        turn = counts[facet.dimension]
        begin = ", " if turn else f"- {clean_line(facet.dimension)}: "
        text = f"{begin}{clean_line(facet.value)} ({facet.count})"
        turns.append((turn, CountLine(number, text, facet.dimension in foreign)))
        counts[facet.dimension] += 1
    turns.sort(key=lambda turn: turn[0])
    fitting, lost = share.take(COUNTS_HEADING, [value for _, value in turns], count_text)
    return [facets[place] for place, *_ in sorted(fitting)], [facets[place] for place, *_ in sorted(lost)]


def make_fence(items: Iterable[Document | Fact | Entity | Facet]) -> Fence | None:
    """The fence of what strangers wrote; None where nothing is theirs."""
    return Fence() if any([item.untrusted for item in items]) else None


def _remaining(document: Document, block: str, cut: str) -> int:
    """Return how many characters of a document's text a block still holds when it is cut."""
    content = clean(document.content)[0] if document.untrusted else document.content
    head = len(block) - len(escape_marks(content.strip()))
    return max(0, len(cut) - len(CUT) - head)


def _note_cleaning(envelope: Envelope, done: Assembled) -> None:
    """Count a document of strangers, and what was taken out of it."""
    document = envelope.document
    done.fenced += 1
    done.cleaned += sum([clean(part)[1] for part in (document.title, document.content, *document.path)])
    hidden = document.metadata.get("hidden_characters")
    if isinstance(hidden, int) and hidden > 0:
        done.hidden[document.parent or document.id] = hidden


def _document_block(document: Document, heading: str) -> tuple[str, str]:
    """The block of a document below its heading, and its content without a repeated title."""
    block = heading
    path, content = without_repeats(document.title, document.path, document.content)
    below = content = content.strip()
    if path:
        below = " > ".join([one_line(part) for part in path]) + ("\n" + below if below else "")
    if below:
        block = f"{block}\n{escape_marks(below)}"
    return block, content
