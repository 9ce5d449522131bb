"""The ids of documents for agents, and the documents of sources that cannot be read by id."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from contextrouter.contracts import SupportsFetch
from contextrouter.model import Citation, Document, Envelope, Provenance
from contextrouter.pipeline.citations import make_citation
from contextrouter.router import ContextRouter
from contextrouter.runtime.lru import Lru
from contextrouter.server.auth import Caller
from contextrouter.server.citation_links import follow_citation
from contextrouter.text.prompt_injection import clean_line

MOST_CHARACTERS = 20_000_000
"""Of the documents that are kept for `fetch`."""
_OWN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,500}")
_FOREIGN = re.compile(r"[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]{1,500}")
"""Ids that may be shown: of a stranger only such as an address could be, which says nothing to a model."""


class FoundDocuments:
    """Documents that were shown to agents. An id names the source, and the document there: a chunk stands for
    its whole document. What a source does not return by id is kept for a while, for whoever may see as much.
    """

    def __init__(self, router: ContextRouter) -> None:
        self._router = router
        self._kept: Lru[tuple[Any, ...], Document] = Lru(MOST_CHARACTERS)

    def id_of(self, envelope: Envelope, citation: Citation, caller: Caller) -> str:
        """Return the id of a document that is shown."""
        document, source = envelope.document, self._source_of(envelope, citation)
        name = document.id or envelope.id[:16]
        by_id = self._reads_by_id(source)
        if by_id:
            name = document.parent or name
        if not (_FOREIGN if document.untrusted else _OWN).fullmatch(name):  # no text of a stranger, no novel
            by_id, name = False, envelope.id[:16]
        if not by_id:
            self._kept.put((_rights(caller), source, name), document, weight=len(document.content) + 500)
        return f"{source}:{name}"

    def _source_of(self, envelope: Envelope, citation: Citation) -> str:
        sources = [seal.source for seal in envelope.provenance]
        return next(filter(self._reads_by_id, sources), sources[0] if sources else citation.source)

    def _reads_by_id(self, source: str) -> bool:
        return isinstance(self._router.instances.sources.get(source), SupportsFetch)

    async def fetch(self, id: str, caller: Caller) -> Document | None:
        """Return the document of an id, as the caller may see it; None: there is none. Raises SourceError."""
        source, _, name = id.partition(":")
        if caller.sources is not None and source not in caller.sources:
            return None
        entry = self._kept.get((_rights(caller), source, name))
        if entry is None and self._reads_by_id(source):
            return await self._router.document(source, name, scope=caller.scope)
        return entry

    def address(self, document: Document, source: str, caller: Caller, origin: str) -> str:
        """Return the address at which a caller opens a document of a source, as in a citation of it."""
        place = Provenance(source=source, leg="", query="", rank=1, score=None)
        envelope = Envelope(document=document, provenance=(place,))
        citation = make_citation(1, envelope, self._router.engine.connections.origin(envelope))
        return follow_citation(citation, document, caller, origin).url


def _rights(caller: Caller) -> tuple[Any, ...]:
    scope = caller.scope
    sees = None if scope is None else (scope.tenant, scope.compartments, scope.ceiling)
    return sees, caller.sources


def about(document: Document, source: str) -> Mapping[str, Any]:
    """Return what is to be known of a document beside its text."""
    path: Sequence[str] = document.path
    if document.untrusted:
        path = [clean_line(part) for part in path]
    fields = {
        "source": source,
        "kind": document.kind,
        "path": [part[:300] for part in path],
        "language": document.language,
        "updated_at": document.updated_at.isoformat() if document.updated_at else None,
        "labels": list(document.labels)[:50],
        "untrusted": document.untrusted,
    }
    return {name: value for name, value in fields.items() if value}
