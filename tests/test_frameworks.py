"""The web applications of the documentation against a real server: who goes away cancels the calls to the
sources, and the types of all its code are right.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from support.example import ROOT
from support.waiting import Waiting

from contextrouter import ContextRouter, SourceError
from contextrouter.testing.fakes import Raising

PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
BODY = {"question": "When does the library open?"}


@asynccontextmanager
async def served(source: Any) -> AsyncIterator[str]:
    """The address of the application of the page, over one source."""
    names: dict[str, Any] = {"__name__": "application", "asyncio": asyncio}
    code = next(block for block in BLOCKS if "FastAPI(lifespan=lifespan)" in block)
    names |= {"ContextRouter": lambda _: ContextRouter(connectors={"docs": source}), "LIBRARY": {}}
    exec(compile(code, "python.md", "exec", dont_inherit=True), names)
    config = uvicorn.Config(names["app"], port=0, log_level="warning")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done()
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/ask"
    finally:
        server.should_exit = True
        await task


@pytest.mark.case("USE-03")
async def test_a_client_of_fastapi_that_goes_away_cancels_the_calls_to_the_sources():
    source = Waiting()
    async with served(source) as url, aiohttp.ClientSession(headers={"X-Tenant": "acme"}) as session:
        asking = asyncio.create_task(session.post(url, json=BODY))
        async with asyncio.timeout(60):
            await asyncio.to_thread(source.asked.wait, 60)
            asking.cancel()
            await asyncio.to_thread(source.cancelled.wait, 60)
        with suppress(asyncio.CancelledError):
            await asking


@pytest.mark.case("USE-03")
async def test_errors_are_statuses_of_the_application():
    async with (
        served(Raising(SourceError("no line"))) as url,
        aiohttp.ClientSession(headers={"X-Tenant": "acme"}) as session,
    ):
        found = []
        for body in (BODY, {"question": " "}, {}):
            async with session.post(url, json=body) as response:
                found.append(response.status)
    assert found == [502, 422, 422]


@pytest.mark.case("USE-15")
def test_the_types_of_the_examples_are_right(tmp_path: Path):
    (tmp_path / "examples.py").write_text("\n".join(BLOCKS))
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", sys.executable, "examples.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
