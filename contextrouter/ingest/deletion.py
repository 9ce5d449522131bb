"""Deletion of stored documents that the source no longer has, unless there are too many to be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextrouter.ingest.job_options import JobOptions, JobPlugins
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.ingest.report import Report, SupportsEmptyFolders, SupportsProblems
from contextrouter.ingest.stored_fingerprints import StoredFingerprints

_Ids = Mapping[str | None, Sequence[str]]
"""Tenant -> ids of documents."""


async def delete_vanished(
    plugins: JobPlugins, options: JobOptions, stored: StoredFingerprints, report: Report
) -> None:
    """Delete the documents of this origin that the source did not list, under every tenant.

    Call this only after the source was read to its end. Documents that the source could not read stay.
    `stored` knows which of them the source listed. A job that names a tenant keeps nothing
    under another one: what an earlier version of the job stored there would stay visible. A dry run only
    lists the documents.

    If nothing at all was listed, or more than `remove_at_most` of the documents would go, none goes and the
    report says so: a folder may not be mounted. `remove` in the options confirms it. This does not hold for
    documents under a tenant that the job no longer names. Nor do documents go of a folder that is empty now.
    """
    unread = _Unread(plugins, options)
    await stored.load_all()
    gone: dict[str | None, list[str]] = {}
    for tenant, id in stored.documents(options.origin, listed=False):
        if not unread.includes(tenant, id):
            gone.setdefault(tenant, []).append(id)
    named = options.labels.get("tenant")
    vanished = _without_emptied(plugins, options, gone, named, report)
    doubted = {tenant for tenant in vanished if named in (None, tenant)}
    doubt = _doubt({tenant: vanished[tenant] for tenant in doubted}, stored, options)
    if doubt:
        report.skip(options.origin, doubt)
    for tenant, ids in vanished.items():
        stays = bool(doubt) and tenant in doubted
        report.in_doubt += len(ids) if stays else 0
        if options.dry_run:
            report.deleted += 0 if stays else len(ids)
            report.changes += (("removed", id) for id in ids)
        elif ids and not stays:
            message = f"The store did not remove {len(ids)} vanished documents"
            with as_ingest_error(message, ids[0]):  # all others are stored; the next run deletes these
                report.deleted += await plugins.store.delete(ids, tenant)


def _without_emptied(
    plugins: JobPlugins, options: JobOptions, vanished: _Ids, named: str | None, report: Report
) -> _Ids:
    """Return the vanished documents without those of folders that are empty now, which the report names: a
    folder may not be mounted.
    """
    source = plugins.source
    folders = source.empty_folders if isinstance(source, SupportsEmptyFolders) and not options.remove else ()
    remaining = {tenant: list(ids) for tenant, ids in vanished.items()}
    for folder in folders:
        stay = 0
        for tenant in remaining if named is None else {named} & remaining.keys():
            others = [id for id in remaining[tenant] if not id.startswith(f"{options.origin}:{folder}")]
            stay += len(remaining[tenant]) - len(others)
            remaining[tenant] = others
        if stay:
            report.in_doubt += stay
            report.skip(
                options.origin,
                f"{folder} is empty now and had {stay} documents; they stay. If they are really gone, delete"
                f" the folder, or run `contextrouter ingest {options.job or options.origin} --remove`.",
            )
    return remaining


def _doubt(vanished: _Ids, stored: StoredFingerprints, options: JobOptions) -> str:
    """Return why so much is not removed, and how to confirm; "" if it may be removed.

    A document that is listed under another tenant is not lost. New documents count, too: a folder that was
    only renamed has as many as it loses.
    """
    lost = {id for ids in vanished.values() for id in ids if not stored.is_listed(id)}
    if options.remove or not lost:
        return ""
    named = options.labels.get("tenant")
    tenants = None if named is None else [named]
    total = stored.count_all(options.origin, tenants)
    if not stored.count_listed():
        reason = (
            f"the source lists no document, and the store has {stored.count_stored(options.origin, tenants)}"
        )
    elif len(lost) > options.remove_at_most * total:
        reason = (
            f"{len(lost)} of {total} documents would go, because the source no longer has them: more than"
            f" `[ingest] remove_at_most` = {options.remove_at_most:g}"
        )
    else:
        return ""
    return (
        f"{reason}; nothing was removed. If they are really gone, run `contextrouter ingest"
        f" {options.job or options.origin} --remove`."
    )


class _Unread:
    """The documents that exist in the source but could not be read."""

    def __init__(self, plugins: JobPlugins, options: JobOptions) -> None:
        unread = plugins.source.unread if isinstance(plugins.source, SupportsProblems) else ()
        self.ids = {f"{options.origin}:{id}" for id in unread}
        self.prefixes = tuple(f"{options.origin}:{id}" for id in unread if not id or id.endswith("/"))
        self.tenant = options.labels.get("tenant")

    def includes(self, tenant: str | None, id: str) -> bool:
        return self.tenant in (None, tenant) and (id in self.ids or id.startswith(self.prefixes))
