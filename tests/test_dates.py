"""The date of a document is its own, else that of its last commit, else its file's; and freshness believes only
dates that say something.
"""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contextrouter import ContextRouter, Document, Hit
from contextrouter.builtin.connectors.files import Files
from contextrouter.testing import Fixed

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def git(folder: Path, *arguments: str, day: str = "2026-01-01") -> None:
    moment = f"{day}T12:00:00+00:00"
    environment = {
        **os.environ,
        "GIT_AUTHOR_DATE": moment,
        "GIT_COMMITTER_DATE": moment,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
    }
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *names, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


async def dates(folder: Path) -> dict[str, tuple[str, str]]:
    """Id -> the day of the document, and whose it is."""
    source = Files(path=str(folder))
    await source.open()
    documents = {document.id: document async for document in source.crawl()}
    await source.aclose()
    return {
        id: (document.updated_at.date().isoformat(), document.metadata["dated_by"])
        for id, document in documents.items()
        if document.updated_at is not None
    }


def repository(at: Path) -> Path:
    """Two commits: `old.md` and `front.md` in January, `new.md` in March; `draft.md` in none."""
    git(at, "init", "-q", "-b", "main")
    (at / "notes").mkdir()
    (at / "notes" / "old.md").write_text("The old otter.\n")
    (at / "notes" / "front.md").write_text("---\ndate: 2020-02-02\n---\nThe otter with a date.\n")
    git(at, "add", ".")
    git(at, "commit", "-q", "-m", "one", day="2026-01-10")
    (at / "notes" / "new.md").write_text("The new otter.\n")
    git(at, "add", ".")
    git(at, "commit", "-q", "-m", "two", day="2026-03-20")
    (at / "notes" / "draft.md").write_text("The otter of today.\n")
    for path in (at / "notes").iterdir():
        os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    return at / "notes"


@pytest.mark.case("USE-09")
async def test_a_file_is_dated_by_itself_then_by_git_then_by_the_file(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    assert await dates(folder) == {
        "old.md": ("2026-01-10", "git"),
        "new.md": ("2026-03-20", "git"),
        "front.md": ("2020-02-02", "document"),
        "draft.md": ("2026-06-01", "file"),
    }
    (folder / "old.md").write_text("The old otter, changed since.\n")
    os.utime(folder / "old.md", (NOW.timestamp(), NOW.timestamp()))
    assert (await dates(folder))["old.md"] == ("2026-06-01", "file")
    git(tmp_path, "commit", "-q", "-a", "-m", "three", day="2026-04-04")
    assert (await dates(folder))["old.md"] == ("2026-04-04", "git")


async def test_a_clone_has_the_dates_of_the_commits(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    repository(tmp_path / "origin")
    git(tmp_path, "clone", "-q", "origin", "clone")
    found = await dates(tmp_path / "clone" / "notes")
    assert {name: day for name, (day, _) in found.items()} == {
        "old.md": "2026-01-10",
        "new.md": "2026-03-20",
        "front.md": "2020-02-02",
    }


async def test_settings_of_a_repository_start_no_program(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\ncat\n")
    program.chmod(0o755)
    names = ("core.fsmonitor", "gpg.program", "core.pager", "diff.external", "core.sshCommand")
    for name in (*names, "filter.x.clean", "filter.x.smudge", "diff.x.textconv", "core.editor"):
        git(tmp_path, "config", name, str(program))
    git(tmp_path, "config", "log.showSignature", "true")
    (tmp_path / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")
    assert (await dates(folder))["old.md"] == ("2026-01-10", "git")
    assert not (tmp_path / "started").exists()


async def test_a_folder_outside_git_has_the_dates_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("An otter.")
    os.utime(tmp_path / "a.md", (NOW.timestamp(), NOW.timestamp()))
    assert await dates(tmp_path) == {"a.md": ("2026-06-01", "file")}


async def order(*ages: tuple[float, str], **stage: Any) -> tuple[list[str], list[bool]]:
    """The ids of documents of these ages (days, and who dates them) behind `freshness`; and which were undated.

    Without freshness they are in this order.
    """
    hits = [
        Hit(
            document=Document(
                id=str(number),
                content=f"otter {number}",
                updated_at=datetime.fromtimestamp(NOW.timestamp() - 86_400 * days, UTC),
                metadata={"dated_by": by},
            ),
            score=1.0 - number / 100,
        )
        for number, (days, by) in enumerate(ages)
    ]
    settings = {"rag": {"stages": ["freshness"]}, "stages": {"freshness": stage}}
    async with ContextRouter(settings, connectors={"s": Fixed(hits)}, clock=lambda: NOW) as router:
        envelopes = (await router.route("otter")).envelopes
    by_id = sorted(envelopes, key=lambda envelope: envelope.document.id)
    return [e.document.id for e in envelopes], ["freshness_missing" in e.signals for e in by_id]


async def test_files_that_were_written_together_are_as_fresh_as_undated_ones() -> None:
    """As after a clone: the last file is a minute newer, and nothing follows from it."""
    assert await order((0.02, "file"), (0.01, "file"), (0.0, "file"), weight=5.0) == (
        ["0", "1", "2"],
        [True, True, True],
    )


async def test_files_that_were_written_on_several_days_are_dated_by_them() -> None:
    assert await order((300, "file"), (0, "file")) == (["1", "0"], [False, False])


async def test_a_date_of_the_document_counts_beside_files_that_have_none() -> None:
    """Missing is one half: an old document falls behind, a new one comes first."""
    ids, undated = await order((0.01, "file"), (900, "document"), (0, "git"), weight=1.0)
    assert (ids, undated) == (["2", "0", "1"], [True, False, False])
