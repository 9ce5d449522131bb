"""The embedding model of a served store changes: by a command in another process, and by SIGHUP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession
from support.postgres_server import run as run_sql
from support.postgres_server import schema, uri
from support.serving import start_server

from contextrouter import ContextRouter
from contextrouter.builtin.embedders.onnx_example import write_model
from contextrouter.ingest import embed, run, stored_models

ANIMALS = ("otter", "heron", "badger", "salmon", "kestrel", "beaver", "newt", "vole")


def write_settings(folder: Path, embedder: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(
        f'[providers.docs]\nuse = "sqlite"\npath = "docs.db"\nembedder = "{embedder}"\n'
        '[embedders.new]\nuse = "onnx"\npath = "model"\n[ingest.texts]\nfrom = "texts"\nto = "docs"\n'
    )
    return file


async def fill(folder: Path, texts: dict[str, str]) -> Path:
    """A store with these texts and the shipped embedder; its settings, which know another embedder."""
    (folder / "texts").mkdir()
    (folder / "model").mkdir()
    write_model(folder / "model")
    for name, text in texts.items():
        (folder / "texts" / f"{name}.txt").write_text(text)
    file = write_settings(folder, "default")
    await run(file)
    return file


async def start(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "contextrouter", "embed", *arguments]
    return await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=asyncio.subprocess.PIPE)


@pytest.mark.case("NEW-49")
async def test_a_server_changes_its_model_by_a_reload_and_loses_no_answer(tmp_path: Path) -> None:
    await fill(tmp_path, {animal: f"The {animal} lives by the river.\n" for animal in ANIMALS})
    process, address = await asyncio.to_thread(start_server, tmp_path)
    try:
        async with ClientSession() as session:

            async def ask() -> list[str]:
                body = {"question": "The otter lives by the river.", "legs": ["vector"], "limit": 50}
                async with session.post(f"{address}/v1/route", json=body) as answer:
                    context = await answer.json()
                assert answer.status == 200, context
                assert not context["degraded"], context
                return re.findall(r"The (\w+) lives", context["text"])

            before = await ask()
            assert sorted(before) == sorted(ANIMALS)
            filling = await start(tmp_path, "--model", "new", "--json")
            output = asyncio.create_task(filling.communicate())
            while not output.done():
                assert await ask() == before
            printed, _ = await output
            assert json.loads(printed)["docs"]["chunks"] == len(ANIMALS)
            assert await ask() == before
            write_settings(tmp_path, "new")
            os.kill(process.pid, signal.SIGHUP)
            while "Reloaded the settings." not in (tmp_path / "log").read_text():
                assert sorted(await ask()) == sorted(ANIMALS)
            after = await ask()
            assert sorted(after) == sorted(ANIMALS)
            assert after[0] == "otter"
            assert after != before  # the order is that of the other model
            dropping = await start(tmp_path, "--drop", "default")
            output = asyncio.create_task(dropping.communicate())
            while not output.done():
                assert await ask() == after
            await output
            assert dropping.returncode == 0
            assert await ask() == after
    finally:
        process.terminate()
        await asyncio.to_thread(process.communicate)


@pytest.mark.case("NEW-49")
async def test_a_killed_change_of_model_goes_on_where_it_was(tmp_path: Path) -> None:
    many = 600
    file = await fill(tmp_path, {f"text{number}": f"Text {number}." for number in range(many)})
    killed = await start(tmp_path, "--model", "new", "--batch", "1")
    async with ContextRouter.from_toml(file) as router:

        async def chunks() -> tuple[int, bool]:
            models = {model.embedder: model for model in (await stored_models(router))["docs"]}
            return (models["new"].chunks, models["new"].ready) if "new" in models else (0, False)

        while (await chunks())[0] < 5:
            assert killed.returncode is None
            await asyncio.sleep(0.01)
        killed.kill()
        await killed.communicate()
        kept, ready = await chunks()
        assert 5 <= kept < many
        assert not ready
        again = await start(tmp_path, "--model", "new", "--json")
        printed, _ = await again.communicate()
        assert json.loads(printed)["docs"]["chunks"] == many - kept
        assert await chunks() == (many, True)


async def test_worker_processes_store_the_vectors_of_both_models(tmp_path: Path) -> None:
    name = schema()
    (tmp_path / "texts").mkdir()
    (tmp_path / "model").mkdir()
    write_model(tmp_path / "model")
    (tmp_path / "texts" / "otter.txt").write_text("The otter lives by the river.")
    settings = {
        "providers": {"docs": {"use": "postgres", "dsn": await asyncio.to_thread(uri), "schema": name}},
        "embedders": {"new": {"use": "onnx", "path": str(tmp_path / "model")}},
        "ingest": {"texts": {"from": str(tmp_path / "texts"), "to": "docs"}},
    }
    try:
        async with ContextRouter(settings) as router:
            await run(router)
            await embed(router, "new")
            (tmp_path / "texts" / "heron.txt").write_text("The heron lives by the river.")
            report = (await run(router, workers=1))["texts"]
            assert (report.added, report.unchanged) == (1, 1)
            models = (await stored_models(router))["docs"]
            assert [(model.chunks, model.missing) for model in models] == [(2, 0), (2, 0)]
    finally:
        await run_sql(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
