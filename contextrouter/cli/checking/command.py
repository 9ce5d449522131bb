"""`contextrouter check`: checks settings, plugins, sources, embedders and ingestion jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

from contextrouter.cli import options, terminal
from contextrouter.cli.checking.jobs_and_names import (
    CheckFinding,
    check_jobs,
    check_stage_sources,
    check_transforms,
)
from contextrouter.cli.exit_codes import NOTHING, OK, command
from contextrouter.contracts import Embedder, Plugin, SupportsModel
from contextrouter.ingest.report import SupportsProblems
from contextrouter.router import ContextRouter
from contextrouter.runtime.masking import mask
from contextrouter.runtime.plugin_calls import containment, text_of

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


@command
async def check(settings: options.SettingsPath = options.DEFAULT, as_json: options.AsJson = False) -> int:
    """Check settings, plugins, sources, embedders and jobs. Exits 1 when something does not work."""
    with terminal.quiet(logging.CRITICAL):  # what cannot be opened is in the list below
        return await _run_checks(settings, as_json)


async def _run_checks(settings: str, as_json: bool) -> int:
    router = ContextRouter.from_toml(settings)
    terminal.hide(router.settings.secrets)
    findings = [CheckFinding(what="settings", name=settings, status="ok", detail="valid")]
    warnings = (*router.settings.warnings, *router.registry.warnings)
    findings += [
        CheckFinding(what="settings", name=settings, status="warning", detail=text) for text in warnings
    ]
    if not router.instances.sources:
        problem = "no source is defined and enabled"
        findings.append(CheckFinding(what="settings", name=settings, status="failed", detail=problem))
    async with aclosing(router):
        await _open_plugins(router)
        for kind, name in router.instances.all:
            findings.append(await _check_plugin(router, kind, name))
        findings += check_stage_sources(router)
        findings += check_transforms(router)
        findings += [finding async for finding in check_jobs(router)]
    if as_json:
        terminal.print_json(findings)
    else:
        _print_findings(findings)
    return NOTHING if any(finding.status == "failed" for finding in findings) else OK


async def _open_plugins(router: ContextRouter) -> None:
    """Open all plugins at once, as the router does. One that cannot be opened, for want of a package or for
    another reason, fails its own check and no other.
    """
    await router.open(kinds=())
    seconds = router.settings.rag.timeout_seconds

    async def open_one(kind: str, name: str) -> None:
        with suppress(Exception):
            async with asyncio.timeout(seconds):
                await router.instances.ready(kind, name)

    async with asyncio.TaskGroup() as group:
        for key in router.instances.all:
            if not router.instances.switched_off(key):
                group.create_task(open_one(*key))


async def _check_plugin(router: ContextRouter, kind: str, name: str) -> CheckFinding:
    """Open and ping a plugin; check that stores fit their embedders, and the length of vectors."""
    plugin = router.instances.all[kind, name]
    if switch := router.instances.switched_off((kind, name)):
        return CheckFinding(what=kind, name=name, status="ok", detail=f"off: [rag] {switch} = false")
    seconds = router.settings.rag.timeout_seconds
    steps: list[Callable[[], Awaitable[str]]] = [
        lambda: _check_ready(router, kind, name, plugin),
        lambda: _check_embedder_fit(router, plugin),
    ]
    if isinstance(plugin, Embedder):
        steps.append(lambda: _check_dimensions(plugin))
    detail = ""
    try:
        for step in steps:
            with containment():
                async with asyncio.timeout(seconds):
                    detail = await step() or detail
        with containment():
            problems = list(plugin.problems) if isinstance(plugin, SupportsProblems) else []
    except TimeoutError:
        return CheckFinding(what=kind, name=name, status="failed", detail=f"no answer within {seconds:g} s")
    except Exception as error:
        message = mask(text_of(error) or type(error).__name__, router.settings.secrets)
        return CheckFinding(what=kind, name=name, status="failed", detail=message)
    if problems:  # it answers, but not with all that it has
        first, *others = problems
        more = f" ({len(others)} more)" if others else ""
        problem = mask(f"{first}{more}", router.settings.secrets)
        return CheckFinding(what=kind, name=name, status="warning", detail=f"{detail}: {problem}")
    return CheckFinding(what=kind, name=name, status="ok", detail=detail)


async def _check_ready(router: ContextRouter, kind: str, name: str, plugin: Plugin) -> str:
    await router.instances.ready(kind, name)
    await plugin.ping()
    return type(plugin).__name__


async def _check_embedder_fit(router: ContextRouter, plugin: Plugin) -> str:
    """Ask a store whether the embedder it names is the one that filled it."""
    embedders = router.instances.embedders
    if isinstance(plugin, SupportsModel) and plugin.embedder in embedders:
        embedder = embedders[plugin.embedder]
        await plugin.embedded_by(embedder.model, embedder.dimensions)
        return f"{type(plugin).__name__}, embedded by {plugin.embedder}"
    return ""


async def _check_dimensions(embedder: Embedder) -> str:
    (vector,) = await embedder.embed(["a short text"], query=True)
    if len(vector) != embedder.dimensions:
        raise ValueError(f"vectors have {len(vector)} dimensions and the embedder says {embedder.dimensions}")
    return f"{embedder.model or type(embedder).__name__}, {embedder.dimensions} dimensions"


def _print_findings(findings: list[CheckFinding]) -> None:
    table = terminal.table("", "what", "name", {"header": "result", "overflow": "fold"})
    for finding in findings:
        terminal.row(
            table, terminal.style_text(_MARKS[finding.status]), finding.what, finding.name, finding.detail
        )
    terminal.show(table, indent=0)
    failures = sum(finding.status == "failed" for finding in findings)
    terminal.out.print()
    verdict = f"{terminal.count(failures, 'check')} failed." if failures else "Everything works."
    terminal.say((verdict, "red" if failures else "green"))
