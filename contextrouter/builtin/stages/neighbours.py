"""Linked neighbours: adds documents that are linked with the best ones, directly or over several hops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from contextrouter.contracts import Stage, StageContext, SupportsNeighbours
from contextrouter.model import Document, Envelope

MOST_HOPS = 10
_MOST_ASKED = 1000  # documents that one source returns for one hop
_MOST_FOLLOWED = 50  # documents of one source whose links are followed in the next hop, the strongest first


class Neighbours(Stage):
    """Asks the sources of the best `of` documents for what is linked with those, and lets in up to `add` that
    are not there yet.

    With `hops` above 1 it follows the links of what it reached, hop by hop, while fewer than `add` came in:
    the nearer come first. It only goes through documents that may come in. They stand behind the best `most`
    − their number, so that they are among the first `most`, with the score of what they stand behind and the
    signal `neighbour`, 1 ÷ hops. A source that knows no links adds nothing; the scope and the filters hold
    for what comes in.
    """

    switch = "enable_multidoc"

    def __init__(self, *, of: int = 1, add: int = 2, most: int = 7, hops: int = 1) -> None:
        for name, value in (("of", of), ("add", add), ("most", most)):
            if value < 1:
                raise ValueError(f"{name} {value!r} is below 1.")
        if add >= most:
            raise ValueError(
                f"add {add!r} leaves no place for what was found among most {most!r}; give a smaller one."
            )
        if not 1 <= hops <= MOST_HOPS:
            raise ValueError(f"hops {hops!r} is not between 1 and {MOST_HOPS}.")
        self._of, self._add, self._most, self._hops = of, add, most, hops

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all, with the neighbours among them."""
        added = await _Walk(envelopes[: self._of], envelopes, context, self._add).follow(self._hops)
        if added:
            context.note(_note_of_distances(hop for _, hop in added))
        position = max(1, self._most - len(added))
        head = list(envelopes[:position])
        if not added or not head:
            return list(envelopes)
        anchor = head[-1]
        neighbours = [
            admitted.scored(anchor.score, anchor.normalized, neighbour=1 / hop) for admitted, hop in added
        ]
        return [*head, *neighbours, *envelopes[position:]]


class _Walk:
    """A walk along the links of several sources at once, nearest documents first."""

    def __init__(
        self, start: Sequence[Envelope], envelopes: Sequence[Envelope], context: StageContext, add: int
    ) -> None:
        self.context, self.add = context, add
        self.added: list[tuple[Envelope, int]] = []
        self.present = {key for envelope in envelopes for key in _marks(envelope.document)}
        self.frontier: dict[str, list[str]] = {}  # source -> ids whose links come next
        self.visited: set[tuple[str, str]] = set()  # source, and the id of a whole document
        for envelope in start:
            id, document_id = envelope.document.id, envelope.document.parent or envelope.document.id
            for name in dict.fromkeys(seal.source for seal in envelope.provenance) if id else ():
                self.frontier.setdefault(name, []).append(id)
                self.visited.add((name, document_id))

    async def follow(self, hops: int) -> list[tuple[Envelope, int]]:
        """Return the documents that come in, each with its distance."""
        for hop in range(1, hops + 1):
            reached: dict[str, list[str]] = {}
            for name, ids in self.frontier.items():
                if len(self.added) < self.add:
                    reached[name] = await self._step(name, ids, hop)
            self.frontier = {name: ids for name, ids in reached.items() if ids}
        return self.added

    async def _step(self, name: str, ids: Sequence[str], hop: int) -> list[str]:
        """Let in what is linked with `ids`; return the ids from which the next hop starts."""
        source: object = self.context.sources.get(name)
        if not isinstance(source, SupportsNeighbours):
            return []
        limit = min(_MOST_ASKED, self.add + len(self.present) + len(self.visited))
        reached: list[str] = []
        for hit in await source.neighbours(ids, limit, self.context.scope):
            document = hit.document
            document_id = document.parent or document.id
            if (name, document_id) in self.visited:
                continue
            is_new = not _marks(document) & self.present
            if is_new and len(self.added) >= self.add:
                break
            if is_new:
                admitted = self.context.seal(hit, source=name)
                if admitted is None:
                    continue
                self.present |= _marks(document)
                self.added.append((admitted, hop))
            self.visited.add((name, document_id))
            if document.id and len(reached) < _MOST_FOLLOWED:
                reached.append(document.id)
        return reached


def _marks(document: Document) -> set[str]:
    """Return what a document is recognised by: its id, the id of what it was cut from, its text."""
    return {key for key in (document.id, document.parent, document.fingerprint) if key}


def _note_of_distances(distances: Iterable[int]) -> str:
    counts = sorted(Counter(distances).items())
    parts = [f"{many} at {hop} hop{'s' if hop > 1 else ''}" for hop, many in counts]
    return f"{sum(many for _, many in counts)} added: {', '.join(parts)}"
