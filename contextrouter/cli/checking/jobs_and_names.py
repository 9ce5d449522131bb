"""Checks of ingestion jobs, of transforms, and of the sources that stages name, for `contextrouter check`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import msgspec

from contextrouter.contracts import SupportsFetch
from contextrouter.errors import ContextRouterError
from contextrouter.ingest.job_models import add_models
from contextrouter.ingest.job_plugins import Wiring
from contextrouter.ingest.report import SupportsSize
from contextrouter.ingest.runners.choice import Runners
from contextrouter.router import ContextRouter
from contextrouter.runtime.masking import mask
from contextrouter.runtime.plugin_calls import containment, text_of
from contextrouter.settings import Instance, Job
from contextrouter.settings.suggestions import unknown


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    what: str
    name: str
    status: str  # ok, warning, failed
    detail: str = ""


def check_transforms(router: ContextRouter) -> Iterator[CheckFinding]:
    """Build every transform of the settings: its keywords may contradict each other."""
    for name, instance in router.settings.transforms.items():
        try:
            plugin = router.instances.build(instance)
        except ContextRouterError as error:
            yield CheckFinding(what="transform", name=name, status="failed", detail=str(error))
        else:
            yield CheckFinding(what="transform", name=name, status="ok", detail=type(plugin).__name__)


async def check_jobs(router: ContextRouter) -> AsyncIterator[CheckFinding]:
    """Open what each job names, and count its documents where its source can do that cheaply."""
    for name, job in router.settings.ingest.items():
        async with AsyncExitStack() as stack:
            try:
                with containment():
                    status, detail = await _check_job(Wiring(router, stack), name, job)
            except Exception as error:  # the finding says it; the other jobs are checked, too
                message = text_of(error) or type(error).__name__
                status, detail = "failed", mask(message, router.settings.secrets)
        yield CheckFinding(what="job", name=name, status=status, detail=detail)


async def _check_job(wiring: Wiring, name: str, job: Job) -> tuple[str, str]:
    plugins = await wiring.plugins(name, job)
    await add_models(plugins, wiring.embedder_of, dry_run=False)  # the job would stop without one of them
    Runners(wiring.router, wiring.stack).check({name: job}, {name: plugins})
    detail = f"{job.source} into {job.to}"
    connector = wiring.settings.connectors.get(job.source)
    if connector is not None and connector.keys.enabled and not connector.keys.live:
        detail += f"; {job.source} is not asked live (live = true in its table asks both)"
    if not isinstance(plugins.source, SupportsSize):
        return "ok", detail
    size = await plugins.source.size()
    return ("ok", f"{detail}, {size} documents") if size else ("warning", f"{detail}: no document is listed")


def check_stage_sources(router: ContextRouter) -> Iterator[CheckFinding]:
    """Check the sources that stages and interpreters name in their key `source`."""
    for kind in ("stage", "interpreter"):
        for name, instance in router.settings.instances(kind).items():
            if message := _source_problem(router, instance):
                problem = router.settings.problem(f"{kind}s.{name}.source", message)
                yield CheckFinding(what=kind, name=name, status="failed", detail=str(problem))


def _source_problem(router: ContextRouter, instance: Instance) -> str:
    source = instance.options.get("source")
    sources = router.instances.sources
    if not isinstance(source, str) or not source:
        return ""
    if source not in sources:
        return unknown(f"{source!r} is no defined source", source, list(sources), "Defined sources")
    can_fetch = isinstance(sources[source], SupportsFetch)
    return "" if can_fetch else f"source {source!r} does not return documents by id."
