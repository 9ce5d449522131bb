"""Linked neighbours: adds documents that are linked with the best ones."""

from __future__ import annotations

from collections.abc import Sequence

from contextrouter.contracts import Stage, StageContext, SupportsNeighbours
from contextrouter.model import Envelope


class Neighbours(Stage):
    """Asks the sources of the best `of` documents for what is linked with those, and lets in up to `add` that
    are not there yet.

    They stand behind the best `most` − their number, so that they are among the first `most`, with the score
    of what they stand behind and the signal `neighbour`. A source that knows no links adds nothing; the scope
    and the filters hold for what comes in.
    """

    switch = "enable_multidoc"

    def __init__(self, *, of: int = 1, add: int = 2, most: int = 7) -> None:
        for name, value in (("of", of), ("add", add), ("most", most)):
            if value < 1:
                raise ValueError(f"{name} {value!r} is below 1.")
        if add >= most:
            raise ValueError(
                f"add {add!r} leaves no place for what was found among most {most!r}; give a smaller one."
            )
        self._of, self._add, self._most = of, add, most

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all, with the neighbours among them."""
        present = {name for e in envelopes for name in (e.document.id, e.document.parent) if name}
        added: list[Envelope] = []
        for name, ids in self._ids_by_source(envelopes).items():
            source: object = context.sources.get(name)
            if not isinstance(source, SupportsNeighbours) or len(added) >= self._add:
                continue
            for hit in await source.neighbours(ids, self._add + len(present), context.scope):
                keys = {hit.document.id, hit.document.parent} - {None, ""}
                if len(added) >= self._add or keys & present:
                    continue
                admitted = context.seal(hit, source=name)
                if admitted is not None:
                    present |= {key for key in keys if key}
                    added.append(admitted)
        position = max(1, self._most - len(added))
        head = list(envelopes[:position])
        if not added or not head:
            return list(envelopes)
        anchor = head[-1]
        neighbours = [admitted.scored(anchor.score, anchor.normalized, neighbour=1.0) for admitted in added]
        return [*head, *neighbours, *envelopes[position:]]

    def _ids_by_source(self, envelopes: Sequence[Envelope]) -> dict[str, list[str]]:
        """Source -> the ids of its documents among the best."""
        ids: dict[str, list[str]] = {}
        for envelope in envelopes[: self._of]:
            for name in dict.fromkeys(seal.source for seal in envelope.provenance):
                if envelope.document.id:
                    ids.setdefault(name, []).append(envelope.document.id)
        return ids
