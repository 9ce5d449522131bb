"""Collapse: replaces several pieces of one session or article by its summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextrouter.contracts import Stage, StageContext, SupportsFetch
from contextrouter.model import Document, Envelope, Hit


class Collapse(Stage):
    """Puts the summary of a group in the place of its best piece, where `least` pieces of the group or more
    were found.

    A group is what shares a `by`: "parent", or a key of the metadata, such as "session". Its summary is the
    document with that value as id, or with `prefix` before it, among those found or fetched from `source`
    ("": the source that found the pieces). Without a summary, in scope and with a text, the pieces stay.
    """

    def __init__(self, *, by: str = "parent", least: int = 3, prefix: str = "", source: str = "") -> None:
        if not by:
            raise ValueError("by is empty; give parent or a key of the metadata.")
        if least < 2:
            raise ValueError(f"least {least!r} is below 2; one piece needs no summary.")
        self._by, self._least, self._prefix, self._source = by, least, prefix, source

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return the others in their order, summaries among them with the signal `collapsed`, how many pieces
        they stand for.

        Raises ValueError when `source` names none that fetches by id.
        """
        groups: dict[str, list[Envelope]] = {}
        for envelope in envelopes:
            if key := self._group(envelope.document):
                groups.setdefault(self._prefix + key, []).append(envelope)
        groups = {
            id: pieces
            for id, pieces in groups.items()
            if len([e for e in pieces if e.document.id != id]) >= self._least
        }
        summaries = await self._summaries(groups, envelopes, context) if groups else {}
        summary_at: dict[int, Envelope] = {}  # the best piece of a group -> its summary
        replaced: dict[int, str] = {}
        for id, summary in summaries.items():
            pieces = [e for e in groups[id] if e is not summary]
            best = min([summary, *pieces], key=_position_key(envelopes))
            promoted = summary.scored(best.score, best.normalized, collapsed=float(len(pieces)))
            summary_at[_identity(best)] = promoted
            replaced |= {_identity(e): id for e in (*pieces, summary)}
        result, gone = [], []
        for envelope in envelopes:
            identity = _identity(envelope)
            if identity in summary_at:
                result.append(summary_at[identity])
            if identity not in replaced:
                result.append(envelope)
            elif not any(identity == _identity(promoted) for promoted in summary_at.values()):
                gone.append(envelope.drop(f"collapse: {replaced[identity]!r} stands for it"))
        return [*result, *gone]

    def _group(self, document: Document) -> str:
        value = document.parent if self._by == "parent" else document.metadata.get(self._by)
        return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""

    async def _summaries(
        self, groups: dict[str, list[Envelope]], envelopes: Sequence[Envelope], context: StageContext
    ) -> dict[str, Envelope]:
        summaries = {e.document.id: e for e in envelopes if e.document.id in groups}
        wanted_ids: dict[str, dict[str, None]] = {}
        for id, pieces in groups.items():
            names = (
                [self._source]
                if self._source
                else dict.fromkeys(p.source for e in pieces for p in e.provenance)
            )
            for name in names if id not in summaries else ():
                wanted_ids.setdefault(name, {})[id] = None
        for name, ids in wanted_ids.items():
            source: object = context.sources.get(name)
            if not isinstance(source, SupportsFetch):
                if self._source:
                    raise ValueError(f"source {name!r} is no source that fetches by id.")
                continue
            for document in await source.fetch([id for id in ids if id not in summaries], context.scope):
                admitted = (
                    context.seal(Hit(document=document), source=name) if document.content.strip() else None
                )
                if admitted is not None and document.id in groups:
                    summaries.setdefault(document.id, admitted)
        return {id: summaries[id] for id in groups if id in summaries}


def _identity(envelope: Envelope) -> int:
    return id(envelope.provenance)


def _position_key(envelopes: Sequence[Envelope]) -> Callable[[Envelope], int]:
    positions = {_identity(envelope): position for position, envelope in enumerate(envelopes)}
    return lambda envelope: positions.get(_identity(envelope), len(positions))
