"""Context assembly (step 10): text with citation numbering for a model, within the token budget. Pure.

Each document is a block under `### [n] title — source — compartment`; facts, entities and counts follow under
headings of their own. The budget is in tokens. Entities, facts and counts, in this order, may use up to a
quarter of it, documents the rest and what they leave; the best document always goes in, cut and marked where
it must be. What strangers wrote stands behind a
fence, without what no reader sees, and a notice before it all says what the fence means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from contextrouter.model import Citation, Entity, Envelope, Facet, Fact
from contextrouter.pipeline.envelopes import split
from contextrouter.text.prompt_injection import Fence, clean

CUT = " […]"
OVER = "token budget"
BETWEEN = 2
"""Tokens counted for the blank line between two blocks."""
_FACT_SHARE = 4
FACTS_HEADING, ENTITIES_HEADING, COUNTS_HEADING = "### Facts", "### Entities", "### Counts"
ENDED = "No longer true:"
"""Stands above the facts that stopped being true."""
_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # whatever `str.splitlines` takes for the end of a line
_UNSEEN = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_BLANK = rf"(?:[^\S{_ENDS}]|[{_UNSEEN}])"
# Patterns are texts, which `re` compiles when they are first used and keeps: to compile them takes longer
# than most imports.
_NAMES = rf"(?i:facts|entities|counts)[^\w{_ENDS}]*+(?=[{_ENDS}]|\Z)"
_FORGED = rf"##{{0,15}}+{_BLANK}*+(?:\[{_BLANK}*+\d+{_BLANK}*+\]|{_NAMES})"
_MARGIN = _UNSEEN + "#"

T = TypeVar("T")
Count = Callable[[str], int]
Truncate = Callable[[str, int], str]


class Beside(NamedTuple):
    """What stands beside documents and facts. `now` tells facts that stopped being true; None: none are told
    apart.
    """

    entities: Sequence[Entity] = ()
    facets: Sequence[Facet] = ()
    now: datetime | None = None


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
        lost = {
            "facts": len(self.lost_facts),
            "entities": len(self.lost_entities),
            "counts": len(self.lost_facets),
        }
        notes += [f"{number} {name} were beyond the token budget" for name, number in lost.items() if number]
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
    writer = _Writer(_fence(live), budget, count, truncate)
    writer.add_answers(facts, beside or Beside(), budget // _FACT_SHARE if live else budget)
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
        self.sections: list[str] = []

    def add_answers(self, facts: Sequence[Fact], beside: Beside, budget: int) -> None:
        """Add the sections of entities, facts and counts, as many lines as fit into `budget`. An entity is
        the answer to a question about one attribute, so that entities come first.
        """
        result, share = self.result, _Share(self.count, budget)
        result.entities, result.lost_entities = share.take(ENTITIES_HEADING, beside.entities, _entity_line)
        result.facts, result.lost_facts = self._take_facts(share, facts, beside.now)
        result.facets, result.lost_facets = _take_counts(share, beside.facets)
        self.left -= share.used
        current, ended = _split_ended(result.facts, beside.now)
        lines = [*map(_fact_line, current), *([ENDED, *map(_fact_line, ended)] if ended else [])]
        sections = {
            FACTS_HEADING: lines,
            ENTITIES_HEADING: list(map(_entity_line, result.entities)),
            COUNTS_HEADING: _count_lines(result.facets),
        }
        self.sections = ["\n".join([heading, *lines]) for heading, lines in sections.items() if lines]

    def _take_facts(
        self, share: _Share, facts: Sequence[Fact], now: datetime | None
    ) -> tuple[list[Fact], list[Fact]]:
        """Return the facts that fit, in their order, and those that do not."""
        oldest = next((fact for fact in facts if _has_ended(fact, now)), None)
        return share.take(
            FACTS_HEADING, facts, lambda f: f"{ENDED}\n{_fact_line(f)}" if f is oldest else _fact_line(f)
        )

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
        """Join the blocks: the notice of the fence first, facts, entities and counts last."""
        result, blocks = self.result, [*self.blocks, *self.sections]
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


class _Share:
    """The tokens that the sections beside the documents may use, and those used. `count` None: any number."""

    def __init__(self, count: Count | None, budget: int) -> None:
        self.count, self.budget, self.used = count, budget, 0

    def take(self, heading: str, items: Sequence[T], line: Callable[[T], str]) -> tuple[list[T], list[T]]:
        """Return the first items whose lines fit below a heading, and the rest."""
        count = self.count
        if count is None or not items:
            return list(items), []
        cost, number = self.used + count(heading) + BETWEEN + 1, 0
        for item in items:
            cost += count(line(item)) + 1
            if cost > self.budget:
                break
            self.used, number = cost, number + 1
        return list(items[:number]), list(items[number:])


def _fact_line(fact: Fact) -> str:
    parts = (fact.subject, fact.predicate, fact.object)
    return f"- {' — '.join(map(_one_line, parts))}{_validity(fact)}"


def _entity_line(entity: Entity) -> str:
    """An entity with its attributes: `- Anna — birthday: 5 May; child: Ben, Mia`."""
    attributes = [
        f"{_one_line(str(name))}: {_join_values(value)}" for name, value in entity.attributes.items()
    ]
    return f"- {_one_line(entity.name)}" + (f" — {'; '.join(attributes)}" if attributes else "")


def _join_values(value: object) -> str:
    values: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
    return ", ".join([_one_line(str(item)) for item in values])


def _take_counts(share: _Share, facets: Sequence[Facet]) -> tuple[list[Facet], list[Facet]]:
    """Return the facets that fit, and the rest, both in their order. The dimensions take turns: the first
    value of each, the second of each, and so on.
    """
    places: dict[int, int] = {}  # number of a facet -> its place in its dimension
    counts: Counter[str] = Counter()
    for number, facet in enumerate(facets):
        places[number] = counts[facet.dimension]
        counts[facet.dimension] += 1

    def text(number: int) -> str:
        facet = facets[number]
        begin = ", " if places[number] else f"- {_one_line(facet.dimension)}: "
        return f"{begin}{_one_line(facet.value)} ({facet.count})"

    fitting, lost = share.take(COUNTS_HEADING, sorted(places, key=places.__getitem__), text)
    return [facets[number] for number in sorted(fitting)], [facets[number] for number in sorted(lost)]


def _count_lines(facets: Sequence[Facet]) -> list[str]:
    """A line for each dimension: `- labels: work (12), home (3)`."""
    dimensions: dict[str, list[str]] = {}
    for facet in facets:
        values = dimensions.setdefault(_one_line(facet.dimension), [])
        values.append(f"{_one_line(facet.value)} ({facet.count})")
    return [f"- {dimension}: {', '.join(values)}" for dimension, values in dimensions.items()]


def _has_ended(fact: Fact, now: datetime | None) -> bool:
    end = fact.valid_to
    if end is None or now is None:
        return False
    return (end if end.tzinfo else end.replace(tzinfo=UTC)) <= now


def _split_ended(facts: Sequence[Fact], now: datetime | None) -> tuple[list[Fact], list[Fact]]:
    """Facts that hold, and those that stopped being true."""
    ended = [fact for fact in facts if _has_ended(fact, now)]
    return [fact for fact in facts if not _has_ended(fact, now)], ended


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
    """A backslash into what opens a line as the heading of a block or a section does."""
    text, at = match.string, match.start() - 1
    while at >= 0 and (text[at] in _MARGIN or text[at].isspace()) and text[at] not in _ENDS:
        at -= 1
    return match[0] if at >= 0 and text[at] not in _ENDS else "\\" + match[0]
