"""Connections: the jobs and sources that documents come from, their titles, and which a scope leaves out.

Several jobs may fill one store. Each is a connection of its own: the id of a document begins with its origin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from contextrouter.model import Document, Envelope
from contextrouter.pipeline.candidates import Candidates
from contextrouter.scope import Scope
from contextrouter.settings import Job, Settings

if TYPE_CHECKING:
    from contextrouter.runtime.local_files import LocalFile

MOST_DUPLICATES = 20
"""Duplicates that a note lists; it counts the others."""


class Origin(NamedTuple):
    """Where a document comes from: the title of its connection, the name of its ingestion job, and the path
    of its file; "": none.
    """

    title: str = ""
    job: str = ""
    file: str = ""


class Connections:
    """The connections of the settings. `sources` are the plugins, of which some know the files of their
    documents (`SupportsFiles`).
    """

    def __init__(self, settings: Settings, sources: Mapping[str, object] | None = None) -> None:
        self._settings, self._sources = settings, sources or {}
        self._jobs = {(job.to, job.origin or name): (name, job) for name, job in settings.ingest.items()}
        tables = {**settings.providers, **settings.connectors}
        self._titles = {name: instance.keys.title for name, instance in tables.items()}

    def origin(self, envelope: Envelope) -> Origin:
        """Return the connection that a document comes from. Its title is that of its job, else of its source,
        else the name of the source.
        """
        source, document = source_of(envelope), envelope.document
        name, job = self._job(source, document)
        file = self._file_of_job(source, document, job)
        title = (job.title if job else None) or self._titles.get(source) or source
        return Origin(title, name, str(file.path) if file else "")

    def file(self, source: str, document: Document) -> LocalFile | None:
        """Return the file of this machine that a document of a source was read from; None: none. Whether it
        is still there, it does not look.
        """
        return self._file_of_job(source, document, self._job(source, document)[1])

    def _file_of_job(self, source: str, document: Document, job: Job | None) -> LocalFile | None:
        id = document.parent or document.id
        if isinstance(part := document.metadata.get("part"), str):
            id = id.removesuffix(f"/{part}")
        if job is None:
            return self._file_of_source(source, id)
        id = id.partition(":")[2]
        if job.source in self._settings.connectors or job.source in self._settings.providers:
            return self._file_of_source(job.source, id)
        return self._below(job.source, id)

    def _file_of_source(self, source: str, id: str) -> LocalFile | None:
        plugin = self._sources.get(source)
        if plugin is not None:  # `isinstance` of a protocol would take longer than all else of a citation
            folder = getattr(plugin, "local_folder", None)
            return None if folder is None else _local_file(folder, id)
        table = self._settings.connectors.get(source)  # one that is only ingested is no open source
        path = table.options.get("path") if table is not None and table.use == "files" else None
        return self._below(path, id) if isinstance(path, str) else None

    def _below(self, path: str, id: str) -> LocalFile | None:
        return _local_file(os.path.join(os.path.dirname(self._settings.path), os.path.expanduser(path)), id)

    def _job(self, source: str, document: Document) -> tuple[str, Job | None]:
        if not self._jobs:
            return "", None
        origin = (document.parent or document.id).partition(":")[0]
        return self._jobs.get((source, origin), ("", None))


def _local_file(folder: str | os.PathLike[str], id: str) -> LocalFile | None:
    from contextrouter.runtime.local_files import local_file  # loaded only where documents are files

    return local_file(folder, id)


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
