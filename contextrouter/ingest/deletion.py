"""Deletion of stored documents that the source no longer has."""

from __future__ import annotations

from collections.abc import Sequence, Set

from contextrouter.contracts import SupportsUpsert
from contextrouter.errors import IngestError
from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.report import Report, SupportsProblems
from contextrouter.ingest.stored_fingerprints import StoredFingerprints


async def delete_vanished(
    plugins: JobPlugins,
    options: JobOptions,
    stored: StoredFingerprints,
    source_documents: Set[tuple[str | None, str]],
    report: Report,
) -> None:
    """Delete the documents of this origin that the source did not list, under every tenant.

    Call this only after the source was read to its end. Documents that the source could not read stay.
    `source_documents` are the (tenant, id) that the source listed. A job that names a tenant keeps nothing
    under another one: what an earlier version of the job stored there would stay visible. A dry run only
    lists the documents.
    """
    unread = _Unread(plugins, options)
    for tenant, fingerprints in (await stored.load_all()).items():
        vanished = [
            id
            for id in fingerprints
            if id.startswith(f"{options.origin}:")
            and (tenant, id) not in source_documents
            and not unread.includes(tenant, id)
        ]
        if options.dry_run:
            report.deleted += len(vanished)
            report.changes += (("removed", id) for id in vanished)
        elif vanished:
            report.deleted += await _delete(plugins.store, vanished, tenant)


class _Unread:
    """The documents that exist in the source but could not be read."""

    def __init__(self, plugins: JobPlugins, options: JobOptions) -> None:
        unread = plugins.source.unread if isinstance(plugins.source, SupportsProblems) else ()
        self.ids = {f"{options.origin}:{id}" for id in unread}
        self.folders = tuple(id for id in self.ids if id.endswith("/"))
        self.tenant = options.labels.get("tenant")

    def includes(self, tenant: str | None, id: str) -> bool:
        return self.tenant in (None, tenant) and (id in self.ids or id.startswith(self.folders))


async def _delete(store: SupportsUpsert, ids: Sequence[str], tenant: str | None) -> int:
    try:
        return await store.delete(ids, tenant)
    except Exception as error:  # all new and changed documents are stored; the next run deletes these
        message = f"The store did not remove {len(ids)} vanished documents: {error}"
        raise IngestError(message, document=ids[0]) from error
