"""Incremental ingestion: find the documents of a source that are new or changed since the last run.

A document is unchanged if the store has it with the same fingerprint: same content, same labels, same
transforms and embedder. Unchanged documents are only counted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from contextrouter.errors import IngestError
from contextrouter.ingest.document_versions import (
    Listed,
    SupportsVersions,
    content_fingerprint,
    format_fingerprint,
    list_documents,
    recipe_digest,
)
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.preparation import apply_labels, configuration, fingerprint
from contextrouter.ingest.report import Progress
from contextrouter.ingest.stored_fingerprints import StoredFingerprints, StoredVersions
from contextrouter.ingest.storing import surrogate_in
from contextrouter.ingest.survey import survey, surveying
from contextrouter.model import Document
from contextrouter.runtime.plugin_calls import containment


class Change(NamedTuple):
    """A document that is new or changed."""

    document: Document  # with its labels
    fingerprint: str  # to be stored with it
    stored: bool  # the store has another version of it


class Changes:
    """The comparison of a source with the store.

    It notes in `stored` all documents that the source listed. `failure` is the exception with which the
    source stopped before its end.
    """

    def __init__(
        self, plugins: JobPlugins, options: JobOptions, stored: StoredFingerprints, progress: Progress
    ) -> None:
        self.source, self.options, self.stored, self.progress = plugins.source, options, stored, progress
        self.report = progress.report
        self.surveyors = surveying(plugins.transforms)
        self.configuration = configuration(
            plugins.transforms, plugins.embedder, plugins.store.vector_legs, plugins.fingerprint_model
        )
        self.recipe = recipe_digest(self.configuration, options.labels)
        self.failure: Exception | None = None

    async def survey(self) -> None:
        """Show the whole source to the transforms that need it first."""
        await survey(self.source, self.surveyors, self.options.origin)

    async def read(self) -> AsyncGenerator[Change, None]:
        """Read the whole source and yield the documents that are new or changed.

        If the source fails, this ends without an exception, and `failure` has it.
        """
        versions = StoredVersions(self.stored, self.options.origin, self.recipe)
        comparable = not self.options.rebuild and not self.surveyors
        if comparable and isinstance(self.source, SupportsVersions):
            await self.stored.load_all()
        listing = list_documents(self.source, versions if comparable else {})
        try:
            while (listed := await self._next(listing)) is not None:
                self.report.read += 1
                id, version, document = listed
                if document is None:
                    await self._pass_over(id, versions if comparable else None)
                elif (change := await self._compare(document, version)) is not None:
                    yield change
                self.progress.send_if_due()
        finally:
            await listing.aclose()

    async def _next(self, listing: AsyncGenerator[Listed, None]) -> Listed | None:
        try:
            with containment():
                return await anext(listing, None)
        except Exception as error:  # the run still stores what came before, removes nothing, and reports this
            self.failure = error
            return None

    async def _pass_over(self, id: str, versions: StoredVersions | None) -> None:
        """Count a document that the source has in a version of `versions`. Report one that is not there: what
        is stored of it stays.
        """
        name = self._id_in_store(id)
        try:
            owners = [versions.tenant(id)] if versions is not None else []
        except KeyError:
            owners = []
        if owners:
            self.report.unchanged += 1
        else:
            await self.stored.load_all()
            owners = [tenant for tenant, _ in self.stored.owners(name)]
            self.report.skip(
                name, "was listed without its document, in a version that the store does not have"
            )
        for tenant in owners or [self.options.labels.get("tenant")]:
            self.stored.add_listed(tenant, name)

    def _id_in_store(self, id: str) -> str:
        return f"{self.options.origin}:{id}"

    async def _compare(self, document: Document, version: str) -> Change | None:
        """Return the document as a change; None if it is unchanged, or is skipped for a problem."""
        labelled = self._label(document)
        if labelled is None or not self._see(labelled):
            return None
        await self.stored.load(labelled.tenant or None)
        content = self._fingerprint(labelled)
        if content is None:
            return None
        before = self.stored.fingerprint(labelled.tenant, labelled.id)
        if content_fingerprint(before or "") == content and not self.options.rebuild:
            self.report.unchanged += 1
            return None
        return Change(labelled, format_fingerprint(content, self.recipe, version), stored=before is not None)

    def _label(self, document: Document) -> Document | None:
        """Return the document with the labels of the job and its id in the store."""
        if not document.id:
            self.report.skip(document.title or document.url or "?", "has no id")
            return None
        id = self._id_in_store(document.id)
        if flaw := surrogate_in(document):
            self.stored.add_listed(document.tenant, id)  # it exists: its stored version stays
            self.report.skip(id.encode("utf-8", "backslashreplace").decode(), flaw)
            return None
        try:
            labelled = apply_labels(document.replace(id=id), self.options.labels)
            return labelled.replace(job=self.options.job or None)
        except IngestError as error:
            self.report.skip(id, str(error))
            return None

    def _see(self, document: Document) -> bool:
        """Note that the source lists the document. False if it listed the id before."""
        if self.stored.add_listed(document.tenant, document.id):
            return True
        self.report.skip(document.id, "was listed twice; the first one was taken")
        return False

    def _fingerprint(self, document: Document) -> str | None:
        try:
            surveyed = [surveyor.mark(document) for surveyor in self.surveyors]
            recipe = (self.configuration, *surveyed) if any(surveyed) else (self.configuration,)
            return fingerprint(document, "\n".join(recipe))
        except Exception as error:  # the run goes on; the document is skipped, its stored version stays
            self.report.skip(document.id, f"{type(error).__name__}: {error}")
            return None
