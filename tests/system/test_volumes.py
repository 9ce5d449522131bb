"""Volumes that are full or read-only, few file descriptors, and a store that is replaced: each is named, and
nothing is lost.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.serving import start_server

from contextrouter.ingest import run

SETTINGS = """
[providers.docs]
use = "sqlite"
path = "{store}"
[ingest.notes]
from = "notes"
to = "docs"
"""
CACHE = '[cache]\ntier = "disk"\npath = "volume/cache"\n'
ROUTER = f"{sys.executable} -m contextrouter"


def lay_out(folder: Path, store: str, word: str = "otter") -> None:
    """Settings and twenty notes."""
    (folder / "notes").mkdir()
    for number in range(20):
        (folder / "notes" / f"{number}.md").write_text(f"# {word} {number}\n\nAn {word} {number} swims.\n")
    (folder / "settings.toml").write_text(SETTINGS.format(store=store))


def on_a_small_volume(folder: Path, *lines: str) -> str:
    """Run shell commands beside a volume of 4 MB, `volume`, in a mount namespace of their own."""
    script = "\n".join(("set -u", "mkdir volume", "mount -t tmpfs -o size=4m tmpfs volume", *lines))
    ran = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "bash", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "1000", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return ran.stdout + ran.stderr


FILL = "dd if=/dev/zero of=volume/fill bs=4k 2>/dev/null"
MORE = "for n in $(seq 300); do echo heron$n; done > notes/more.md"


@pytest.mark.case("OPS-04")
def test_a_full_volume_is_named_and_the_store_still_answers(tmp_path: Path):
    lay_out(tmp_path, "volume/store.db")
    (tmp_path / "cached.toml").write_text(SETTINGS.format(store="volume/store.db") + CACHE)
    printed = on_a_small_volume(
        tmp_path,
        f"{ROUTER} ingest",
        FILL,
        f"{ROUTER} route otter --text --settings cached.toml && echo ANSWERED",
        MORE,
        f"{ROUTER} ingest && echo STORED",
        "rm volume/fill",
        f"{ROUTER} ingest && echo STORED LATER",
    )
    assert "ANSWERED" in printed
    assert "Cache tier 'disk' is left out" in printed
    assert "is on a full volume" in printed
    assert "--rebuild" not in printed
    assert printed.count("STORED") == 1
    assert "STORED LATER" in printed


@pytest.mark.case("OPS-04")
def test_a_read_only_volume_is_named_and_the_store_still_answers(tmp_path: Path):
    lay_out(tmp_path, "volume/store.db")
    printed = on_a_small_volume(
        tmp_path,
        f"{ROUTER} ingest",
        "mount -o remount,ro volume",
        f"{ROUTER} route otter --text && echo ANSWERED",
        MORE,
        f"{ROUTER} ingest && echo STORED",
        "mount -o remount,rw volume",
        f"{ROUTER} ingest && echo STORED LATER",
    )
    assert "ANSWERED" in printed
    assert "is on a read-only volume" in printed
    assert "--rebuild" not in printed
    assert printed.count("STORED") == 1
    assert "STORED LATER" in printed


async def ask(url: str, question: str) -> tuple[int, str]:
    """The status of an answer, and its text."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/route", json={"question": question}) as response,
    ):
        return response.status, await response.text()


async def test_a_server_with_few_file_descriptors_goes_on(tmp_path: Path):
    lay_out(tmp_path, "store.db")
    await run(tmp_path / "settings.toml")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        process, url = await asyncio.to_thread(start_server, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        host, port = url.removeprefix("http://").split(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        for number in range(20):
            status, text = await ask(url, f"otter {number}")
            assert status == 200, text
        for _, writer in idle:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.communicate, timeout=60)
    log = (tmp_path / "log").read_text()
    assert process.returncode == 0
    assert "raise the limit with `ulimit -n`" in log
    assert "Traceback" not in log


async def test_a_store_replaced_under_the_server_is_read_at_the_next_question(tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, word in ((old, "otter"), (new, "heron")):
        folder.mkdir()
        lay_out(folder, "store.db", word)
        await run(folder / "settings.toml")
    process, url = await asyncio.to_thread(start_server, old)
    try:
        assert "An otter" in (await ask(url, "swims otter"))[1]
        shutil.copy(new / "store.db", old / "incoming.db")
        os.replace(old / "incoming.db", old / "store.db")
        (old / "store.db-wal").unlink(missing_ok=True)
        (old / "store.db-shm").unlink(missing_ok=True)
        status, text = await ask(url, "swims heron")
        assert (status, "An heron" in text, "An otter" in text) == (200, True, False)
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0
