"""The whole text, fetched last: an index may hold less of a document than the store it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contextrouter.contracts import Stage, StageContext, SupportsFetch
from contextrouter.model import Document, Envelope, Hit


class Hydrate(Stage):
    """Puts the text that a source has under a document's `by` ("id", or "parent": what it was cut from) in
    place of its own.

    `source` names it; "": the source that found the document. What that source does not have, labels
    otherwise, or the scope and the filters keep back, stays as it is. Put it last, with `top_n` as many as go
    on, so that no more is fetched than is read.
    """

    def __init__(self, *, source: str = "", by: Literal["id", "parent"] = "id") -> None:
        if by not in ("id", "parent"):
            raise ValueError(f"by {by!r} is neither id nor parent.")
        self._source, self._by = source, by

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all in their order; those that were filled have the signal `hydrated`.

        Raises ValueError when `source` names none that fetches by id.
        """
        wanted: dict[str, dict[str, None]] = {}
        asked = [self._asked(envelope, context) for envelope in envelopes]
        for name, key in filter(None, asked):
            wanted.setdefault(name, {})[key] = None
        found: dict[tuple[str, str], Document] = {}
        for name, keys in wanted.items():
            source = context.sources[name]
            assert isinstance(source, SupportsFetch)
            for document in await source.fetch(list(keys), context.scope):
                sealed = context.seal(Hit(document=document), source=name)
                if sealed is not None and document.content.strip():
                    found[name, document.id] = sealed.document
        result = []
        for envelope, place in zip(envelopes, asked, strict=True):
            whole = found.get(place) if place else None
            if whole is None or not _no_stricter(whole, envelope.document):
                result.append(envelope)
            else:
                filled = envelope.document.replace(content=whole.content)
                result.append(envelope.replace(document=filled).scored(envelope.score, hydrated=1.0))
        return result

    def _asked(self, envelope: Envelope, context: StageContext) -> tuple[str, str] | None:
        """Which source is asked for what; None where there is none to ask."""
        key = envelope.document.id if self._by == "id" else envelope.document.parent
        if not key:
            return None
        if self._source:
            if not isinstance(context.sources.get(self._source), SupportsFetch):
                raise ValueError(f"source {self._source!r} is no source that fetches by id.")
            return self._source, key
        names = [
            seal.source
            for seal in envelope.provenance
            if isinstance(context.sources.get(seal.source), SupportsFetch)
        ]
        return (names[0], key) if names else None


def _no_stricter(whole: Document, document: Document) -> bool:
    """Whether the text may stand under the labels of the document that was found."""
    return all(
        getattr(whole, name) in (None, getattr(document, name))
        for name in ("tenant", "compartment", "sensitivity")
    )
