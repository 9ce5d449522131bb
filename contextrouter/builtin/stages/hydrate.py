"""Full text loading: gets the full text of the last documents from their store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from contextrouter.contracts import Stage, StageContext, SupportsFetch
from contextrouter.model import Document, Envelope, Hit


class Hydrate(Stage):
    """Puts the text that a source has under a document's `by` ("id", or "parent": what it was cut from) in
    place of its own.

    `source` names it; "": the source that found the document. What that source does not have, labels
    otherwise, or the scope and the filters keep back, stays as it is, and the stage's note in the trace says
    how many were filled. Stores share ids where their jobs have one `origin`. Put it last, with `top_n` as
    many as go on, so that no more is fetched than is read.
    """

    def __init__(self, *, source: str = "", by: Literal["id", "parent"] = "id") -> None:
        if by not in ("id", "parent"):
            raise ValueError(f"by {by!r} is neither id nor parent.")
        self._source, self._by = source, by

    async def apply(self, envelopes: Sequence[Envelope], context: StageContext) -> Sequence[Envelope]:
        """Return all in their order; those that were filled have the signal `hydrated`.

        Raises ValueError when `source` names none that fetches by id.
        """
        keys_by_source: dict[str, dict[str, None]] = {}
        targets = [self._find_source(envelope, context) for envelope in envelopes]
        for name, key in filter(None, targets):
            keys_by_source.setdefault(name, {})[key] = None
        full_documents: dict[tuple[str, str], Document] = {}
        for name, keys in keys_by_source.items():
            source = context.sources[name]
            assert isinstance(source, SupportsFetch)
            for document in await source.fetch(list(keys), context.scope):
                admitted = context.seal(Hit(document=document), source=name)
                if admitted is not None and document.content.strip():
                    full_documents[name, document.id] = admitted.document
        result, filled_count = [], 0
        for envelope, target in zip(envelopes, targets, strict=True):
            full = full_documents.get(target) if target else None
            if full is None or not _has_compatible_labels(full, envelope.document):
                result.append(envelope)
            else:
                filled = envelope.document.replace(content=full.content)
                result.append(envelope.replace(document=filled).scored(envelope.score, hydrated=1.0))
                filled_count += 1
        if filled_count < len(envelopes):
            context.note(f"{filled_count} of {len(envelopes)} filled")
        return result

    def _find_source(self, envelope: Envelope, context: StageContext) -> tuple[str, str] | None:
        """Which source is asked for what; None where there is none to ask."""
        key = envelope.document.id if self._by == "id" else envelope.document.parent
        if not key:
            return None
        if self._source:
            if not isinstance(context.sources.get(self._source), SupportsFetch):
                raise ValueError(f"source {self._source!r} is no source that fetches by id.")
            return self._source, key
        names = [
            provenance.source
            for provenance in envelope.provenance
            if isinstance(context.sources.get(provenance.source), SupportsFetch)
        ]
        return (names[0], key) if names else None


def _has_compatible_labels(full: Document, document: Document) -> bool:
    """Whether the text may stand under the labels of the document that was found."""
    return all(
        getattr(full, name) in (None, getattr(document, name))
        for name in ("tenant", "compartment", "sensitivity")
    )
