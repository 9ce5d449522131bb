"""Test documents of the store laws: canaries with all combinations of access labels, and searches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from contextrouter.contracts import Entry
from contextrouter.model import Document
from contextrouter.scope import SENSITIVITIES, SHARED
from contextrouter.testing.exercise import entry_for, make_query
from contextrouter.testing.subject import Subject

WORD = "quokka"
"""A word that all canaries contain, and no other document."""
HUB = "kit-hub"
"""The id of the document that all canaries link to."""
TENANTS = (None, "acme", "globex", SHARED)
COMPARTMENTS = (None, "hr", "legal")
LEVELS = (None, *SENSITIVITIES, "cosmic")


def canaries() -> list[Document]:
    """Return a document for every combination of access labels; each contains `WORD`."""
    return [
        Document(
            id=f"canary-{number}",
            content=f"The {WORD} number {number} is seen by few.",
            title=f"Canary {number}",
            tenant=tenant,
            compartment=room,
            sensitivity=level,
        )
        for number, (tenant, room, level) in enumerate(product(TENANTS, COMPARTMENTS, LEVELS))
    ]


def store_entry(
    subject: Subject, plugin: Any, document: Document, chunks: Sequence[Document] = (), fingerprint: str = ""
) -> Entry:
    """Make an entry with vectors as long as the subject wants them."""
    return entry_for(plugin, document, chunks, fingerprint=fingerprint, dimensions=subject.dimensions)


async def find_ids(subject: Subject, plugin: Any, leg: str, text: str, **fields: Any) -> list[str]:
    """Return the ids of all documents that a leg finds for a text."""
    hits = await plugin.search(make_query(plugin, text, leg, subject, **{"limit": 1000, **fields}))
    return [hit.document.id for hit in hits]


async def find_texts(subject: Subject, plugin: Any, leg: str, word: str, **fields: Any) -> list[str]:
    """Return the texts that hold a word, among all that a leg finds for it."""
    hits = await plugin.search(make_query(plugin, word, leg, subject, **{"limit": 1000, **fields}))
    return sorted(hit.document.content for hit in hits if word in hit.document.content)
