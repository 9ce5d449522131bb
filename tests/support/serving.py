"""A real server on a free port of this machine, for tests."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from contextrouter import ContextRouter, Document, Hit
from contextrouter.contracts import Completion, Generator
from contextrouter.server import serve
from contextrouter.server.auth import hash_key
from contextrouter.server.worker_share import ALONE, Worker
from contextrouter.testing.fakes import Fixed

KEY = "cr_of-the-tests"


class ScriptedGenerator(Generator):
    """Writes what it was made to write, in pieces; `seen` are the messages of each answer."""

    def __init__(self, *pieces: str, error: Exception | None = None) -> None:
        self.pieces, self.error = pieces, error
        self.seen: list[list[dict[str, str]]] = []

    async def complete(self, messages, *, schema=None) -> Completion:
        self.seen.append([dict(message) for message in messages])
        return Completion(text="".join(self.pieces))

    async def stream(self, messages):
        self.seen.append([dict(message) for message in messages])
        for piece in self.pieces:
            yield piece
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error


def document(name: str, content: str = "", **labels: Any) -> Hit:
    return Hit(
        document=Document(
            id=name,
            title=name,
            url=f"https://example.org/{name}",
            content=content or f"About {name}.",
            **labels,
        )
    )


def key(name: str = "anna", secret: str = KEY, **more: Any) -> dict[str, Any]:
    """Settings with one key."""
    return {"keys": {name: {"hash": hash_key(secret), **({"ceiling": "public"} | more)}}}


def router(
    settings: dict[str, Any] | None = None, *, answer: Any = "a b c", **instances: Any
) -> ContextRouter:
    """A router of one source, "docs"."""
    instances.setdefault("connectors", {"docs": Fixed(answer)})
    return ContextRouter(
        {"rag": {"interpreters": [], "cache_enabled": False}, **(settings or {})}, **instances
    )


class Client:
    """Asks one server."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def __call__(self, path: str, body: Any = None, *, method: str = "", **more: Any) -> Answer:
        if body is not None and "data" not in more:
            more["data"] = json.dumps(body)
            more["headers"] = {"Content-Type": "application/json", **more.get("headers", {})}
        async with self.session.request(
            method or ("GET" if "data" not in more else "POST"), self.url + path, **more
        ) as response:
            return Answer(response.status, response.headers, await response.text())


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, headers, text

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The events of a stream: (name, data)."""
        found = []
        for block in self.text.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            data = fields["data"]
            found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
        return found


@asynccontextmanager
async def serve_router(
    made: ContextRouter, *, token: str = "", agents_only: bool = False, worker: Worker = ALONE
) -> AsyncIterator[Client]:
    """Serve a router; the client sends `token` as its key."""
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(made, port=0, listening=address.set_result, stop=stop, agents_only=agents_only, worker=worker)
    )
    await asyncio.wait([task, address], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with aiohttp.ClientSession(headers=headers) as session:
            yield Client(address.result(), session)
    finally:
        stop.set()
        await task


def start_server(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """`contextrouter serve` in a process of its own, and its address. What it logs goes into a file, which is
    never full.
    """
    code = "from contextrouter.cli import main; main()"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", "--port", "0", *arguments],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("http://"):
        process.communicate()
        raise AssertionError(line + (folder / "log").read_text())
    return process, line.split()[0]
