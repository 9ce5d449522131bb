"""A headless Chromium, driven over its own debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import aiohttp

PATIENCE = 60.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-port=0",
    "--hide-scrollbars",
)


class Page:
    """One page. `complaints` are what it wrote to the console as an error, `asked` the addresses it asked
    for.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def listen(self) -> None:
        """Take what the browser sends, until it closes."""
        async for message in self.socket:
            told = json.loads(message.data)
            if "id" in told and (waiting := self._waiting.pop(told["id"], None)) is not None:
                waiting.set_result(told)
            self._note(told.get("method"), told.get("params", {}))

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(told["entry"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])

    async def call(self, method: str, **params: Any) -> Any:
        """One command of the protocol."""
        self._number += 1
        answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": self._number, "method": method, "params": params})
        told = await asyncio.wait_for(answer, PATIENCE)
        assert "error" not in told, (method, told)
        return told["result"]

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is, awaited."""
        told = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true, and return it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if value := await self.value(expression):
                    return value
                await asyncio.sleep(0.05)

    async def open(self, url: str) -> None:
        """Go to an address; a new fragment alone is not taken for the same page."""
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key, as a person does."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more
            )

    async def picture(
        self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False, whole: bool = False
    ) -> None:
        """Save what the page looks like at this size."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        await asyncio.to_thread(_write, path, base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A page of a browser with a profile of its own in `folder`."""
    command = ["chromium", *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port = await asyncio.to_thread(_port, folder)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                target = next(each for each in await response.json() if each["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.call(f"{domain}.enable")
                yield page
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening
    finally:
        process.terminate()
        await process.wait()


def _port(folder: Path) -> str:
    """The port that the browser notes in its profile once it listens."""
    until = monotonic() + PATIENCE
    while monotonic() < until:
        noted = folder / "DevToolsActivePort"
        if noted.is_file() and (lines := noted.read_text().split()):
            return lines[0]
        sleep(0.05)
    raise TimeoutError("chromium does not listen")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
