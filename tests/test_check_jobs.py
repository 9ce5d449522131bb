"""`contextrouter check` covers jobs, transforms and names in stages; a connector that a job reads is not asked
twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter import ContextRouter, Request
from contextrouter.ingest import run

ABSENT = """
from contextrouter import Embedder, MissingDependency

class Absent(Embedder):
    async def open(self):
        raise MissingDependency("absent", "large", what="Embedder 'absent'")
    async def embed(self, texts, *, query=False):
        return []
"""
STORE = '[providers.lib]\nuse = "sqlite"\npath = "lib.db"\nembedder = ""\n'
FILES = '[connectors.documents]\nuse = "files"\npath = "texts"\n'
JOB = '[ingest.all]\nfrom = "documents"\nto = "lib"\ntransforms = ["chunk"]\n'


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def project(at: Path, settings: str) -> Path:
    (at / "texts").mkdir()
    (at / "texts" / "a.md").write_text("# Otter\n\nThe otter swims.\n")
    (at / "settings.toml").write_text(settings)
    return at / "settings.toml"


def failures(cli: CommandLine, at: Path) -> dict[tuple[str, str], str]:
    findings = json.loads(cli("check", "--json", cwd=at).out)
    return {(f["what"], f["name"]): f["detail"] for f in findings if f["status"] == "failed"}


@pytest.mark.case("USE-10")
def test_a_package_that_is_missing_is_one_finding_among_all(cli: CommandLine, tmp_path: Path):
    (tmp_path / "absent.py").write_text(ABSENT)
    wrong = '[stages.full]\nuse = "hydrate"\nsource = "libb"\n[rag]\nstages = ["full"]\n'
    project(
        tmp_path, '[plugins]\npaths = ["."]\n[embedders.large]\nuse = "absent"\n[providers.memory]\n' + wrong
    )
    ran = cli("check", "--json", cwd=tmp_path)
    statuses = [(finding["name"], finding["status"]) for finding in json.loads(ran.out)]
    for expected in (("large", "failed"), ("memory", "ok"), ("full", "failed")):
        assert expected in statuses
    assert "Embedder 'absent' needs the extra 'large'" in ran.out
    assert ran.code == 1


@pytest.mark.case("USE-10")
@pytest.mark.parametrize(
    ("settings", "where", "message"),
    [
        (
            JOB.replace('"documents"', '"documnets"'),
            ("job", "all"),
            "settings.toml:9: ingest.all.from: 'documnets' is neither a path that exists",
        ),
        (
            JOB + "[ingest]\nworkers = 2\n",
            ("job", "all"),
            "settings.toml:13: ingest.workers: job 'all' can have no workers: store 'lib' can be filled by one process",
        ),
        (
            JOB + "[transforms.chunk]\noverlap = 200\ntarget = 100\n",
            ("transform", "chunk"),
            "settings.toml:13: transforms.chunk: overlap 200, target 100 and maximum 1024 are out of order.",
        ),
        (
            '[stages.full]\nuse = "hydrate"\nsource = "libb"\n[rag]\nstages = ["full"]\n',
            ("stage", "full"),
            "settings.toml:10: stages.full.source: 'libb' is no defined source. Did you mean 'lib'?",
        ),
        (
            '[facts.graph]\nuse = "sqlite"\nstore = "lib"\n[stages.full]\nuse = "hydrate"\nsource = "graph"\n'
            '[rag]\nstages = ["full"]\n',
            ("stage", "full"),
            "settings.toml:13: stages.full.source: source 'graph' does not return documents by id.",
        ),
    ],
    ids=["from", "workers", "sizes", "stage", "ability"],
)
def test_check_names_what_a_job_a_transform_or_a_stage_lacks(
    cli: CommandLine, tmp_path: Path, settings: str, where: tuple[str, str], message: str
) -> None:
    project(tmp_path, STORE + FILES + JOB)
    assert cli("ingest", cwd=tmp_path).code == 0
    (tmp_path / "settings.toml").write_text(STORE + FILES + settings)
    found = failures(cli, tmp_path)
    assert where in found
    assert found[where].startswith(message)


def test_check_says_that_a_job_lists_nothing_and_what_is_not_asked_live(
    cli: CommandLine, tmp_path: Path
) -> None:
    project(tmp_path, STORE + FILES + JOB)
    assert cli("ingest", cwd=tmp_path).code == 0
    findings = {f["name"]: f for f in json.loads(cli("check", "--json").out) if f["what"] == "job"}
    assert findings["all"]["status"] == "ok"
    assert (
        "documents is not asked live (live = true in its table asks both), 1 documents"
        in (findings["all"]["detail"])
    )
    (tmp_path / "texts" / "a.md").unlink()
    findings = {f["name"]: f for f in json.loads(cli("check", "--json").out) if f["what"] == "job"}
    assert findings["all"]["status"] == "warning"
    assert findings["all"]["detail"].endswith("no document is listed")


@pytest.mark.case("USE-14")
async def test_a_connector_whose_documents_are_in_an_asked_store_is_not_asked(tmp_path: Path) -> None:
    path = project(tmp_path, STORE + FILES + JOB)
    await run(path)
    async with ContextRouter.from_toml(path) as router:
        context = await router.route("otter")
        assert [envelope.document.content for envelope in context.envelopes] == [
            "# Otter\n\nThe otter swims."
        ]
        assert context.trace.plan.excluded["documents"] == (
            "job 'all' reads it into 'lib', which is asked; live = true asks both"
        )


@pytest.mark.parametrize(
    ("settings", "request_sources", "asked"),
    [
        ("live = true\n", None, {"documents", "lib"}),
        ("", ("documents",), {"documents"}),
        ("", ("documents", "lib"), {"documents", "lib"}),
        ('[rag]\nprovider = "other"\n[providers.other]\nuse = "memory"\n', None, {"documents", "other"}),
        ('[routes.default]\nsources = ["documents"]\n', None, {"documents"}),
    ],
    ids=["live", "named", "both named", "store not asked", "route without the store"],
)
async def test_a_connector_is_asked_where_the_store_is_not_or_both_are_wanted(
    tmp_path: Path, settings: str, request_sources: tuple[str, ...] | None, asked: set[str]
) -> None:
    path = project(tmp_path, STORE + JOB + FILES + settings)
    await run(path)
    async with ContextRouter.from_toml(path) as router:
        context = await router.route(Request(question="otter", sources=request_sources))
    assert {call.source for call in context.trace.plan.calls} == asked
