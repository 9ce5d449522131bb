"""Connections: the jobs and sources that documents come from, their titles, and which a scope leaves out.

Several jobs may fill one store. Each is a connection of its own: the id of a document begins with its origin.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextrouter.model import Document, Envelope
from contextrouter.pipeline.candidates import Candidates
from contextrouter.scope import Scope
from contextrouter.settings import Job, Settings

MOST_DUPLICATES = 20
"""Duplicates that a note lists; it counts the others."""


class Connections:
    """The connections of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._jobs = {(job.to, job.origin or name): job for name, job in settings.ingest.items()}
        sources = {**settings.providers, **settings.connectors}
        self._titles = {name: instance.keys.title for name, instance in sources.items()}

    def title(self, envelope: Envelope) -> str:
        """Return the title of the connection that a document comes from: that of its job, else of its source,
        else the name of the source. "": no source found it.
        """
        source, document = source_of(envelope), envelope.document
        title = self._titles.get(source) or source
        if self._jobs:
            job = self._jobs.get((source, (document.parent or document.id).partition(":")[0]))
            title = (job.title if job else None) or title
        return title


def source_of(envelope: Envelope) -> str:
    """Return the source that ranked a document best; "": none found it."""
    return envelope.provenance[0].source if envelope.provenance else ""


def jobs_out_of_scope(settings: Settings, store: str, scope: Scope | None) -> Iterator[str]:
    """Yield the jobs of a store whose labels a caller may not see."""
    if scope is not None:
        for name, job in settings.ingest.items():
            if job.to == store and not _may_see(scope, job):
                yield name


def _may_see(scope: Scope, job: Job) -> bool:
    tenant = job.tenant or scope.tenant
    return scope.allows(
        Document(content="", tenant=tenant, compartment=job.compartment, sensitivity=job.sensitivity)
    )


def describe_duplicates(candidates: Candidates) -> str:
    """Return which documents of several sources are one: `web:b = library:a`. "": none are."""
    numbers = candidates.duplicates()
    equal = [
        " = ".join([f"{source}:{document.id or document.url}" for source, document in copies])
        for copies in candidates.copies(numbers[:MOST_DUPLICATES]).values()
    ]
    more = f"; {len(numbers) - MOST_DUPLICATES} more" if len(numbers) > MOST_DUPLICATES else ""
    return f"duplicates: {'; '.join(equal)}{more}" if equal else ""
