"""The official clients in JavaScript, the conformance suite of MCP, and a page in a browser, against a real
server. They need npm and chromium; what they install goes into a folder of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from support.chromium import browser
from support.serving import KEY, key, serve_router

from contextrouter import ContextRouter

PACKAGES = ("node@22", "openai@6", "@modelcontextprotocol/sdk@1", "@modelcontextprotocol/conformance")
LIBRARY = {
    "providers": {
        "memory": {
            "documents": [
                {"id": "hours", "title": "Opening hours", "content": "The library opens at nine."},
                {"id": "pay", "title": "Salaries", "content": "The library pays well.", "compartment": "hr"},
            ]
        }
    }
}
CONFORMING = {
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
}
"""The other scenarios call tools, prompts and resources of an example, or features that are not offered."""
ASK = """
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, dangerouslyAllowBrowser: true });
const messages = [{ role: "user", content: "When does the library open?" }];
const models = (await client.models.list()).data.map((model) => model.id);
const model = (await client.models.retrieve("contextrouter")).id;
const whole = await client.chat.completions.create({ model, messages, max_tokens: 64 });
const stream = await client.chat.completions.create({ model, messages, stream: true, tools: [], tool_choice: "auto" });
let text = "";
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
const refused = await client.embeddings.create({ model, input: "x" }).catch((error) => error.code);
const told = { models, model, whole: whole.choices[0].message.content, text, refused };
"""
TOLD = {
    "models": ["contextrouter"],
    "model": "contextrouter",
    "whole": "The library opens at nine. [1]",
    "text": "The library opens at nine. [1]",
    "refused": "unsupported_endpoint",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Node and the packages."""
    made = tmp_path_factory.mktemp("javascript")
    npm = shutil.which("npm")
    assert npm is not None, "npm is needed: apt-get install npm"
    (made / "package.json").write_text(
        json.dumps({"private": True, "type": "module", "allowScripts": {"node": True}})
    )
    for command in (["install", "--no-audit", "--no-fund", *PACKAGES], ["rebuild", "node"]):
        subprocess.run([npm, *command], cwd=made, check=True, capture_output=True, timeout=600)
    return made


async def run_node(folder: Path, code: str, **variables: str) -> str:
    """What a module prints."""
    (folder / "test.mjs").write_text(code)
    path = f"{folder}/node_modules/node/bin:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "node",
        "test.mjs",
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_the_official_client_in_javascript_lists_asks_streams_and_reads_errors(folder: Path):
    code = "const { URL: baseURL, KEY: apiKey } = process.env;\nimport OpenAI from 'openai';\n"
    async with serve_router(ContextRouter(LIBRARY | key())) as ask:
        printed = await run_node(
            folder, f"{code}{ASK}console.log(JSON.stringify(told));", URL=f"{ask.url}/v1", KEY=KEY
        )
    assert json.loads(printed) == TOLD


async def test_the_official_sdk_of_mcp_in_javascript_lists_and_calls_tools(folder: Path):
    code = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const headers = { Authorization: `Bearer ${process.env.KEY}` };
const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.env.URL), { requestInit: { headers } }));
const tools = (await client.listTools()).tools.map((tool) => [tool.name, tool.annotations.readOnlyHint]);
const found = await client.callTool({ name: "search", arguments: { query: "When does the library open?" } });
const ids = found.structuredContent.results.map((result) => result.id);
const fetched = await client.callTool({ name: "fetch", arguments: { id: ids[0] } });
console.log(JSON.stringify({ tools, ids, fetched: JSON.parse(fetched.content[0].text) }));
await client.close();
"""
    async with serve_router(ContextRouter(LIBRARY | key())) as ask:
        told = json.loads(await run_node(folder, code, URL=f"{ask.url}/mcp", KEY=KEY))
    assert told["tools"] == [[name, True] for name in ("route", "facts", "search", "fetch")]
    assert told["ids"] == ["memory:hours"]
    assert told["fetched"]["text"] == "The library opens at nine."


async def test_what_applies_of_the_conformance_suite_passes(folder: Path):
    async with serve_router(ContextRouter(LIBRARY)) as ask:
        code = """
import { spawnSync } from "node:child_process";
const cli = "node_modules/.bin/conformance";
const ran = spawnSync(cli, ["server", "--url", process.env.URL], { encoding: "utf8" });
console.log(ran.stdout);
"""
        printed = await run_node(folder, code, URL=f"{ask.url}/mcp")
    summary = printed.partition("=== SUMMARY ===")[2]
    passed = {line.split()[1].rstrip(":") for line in summary.splitlines() if line.startswith("✓")}
    assert passed >= CONFORMING, summary


@asynccontextmanager
async def page_of(folder: Path, code: str) -> AsyncIterator[str]:
    """The origin of a page that has the packages."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=f"<script type=module>{code}</script>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_static("/packages", folder / "node_modules")
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]  # it listens
    finally:
        await runner.cleanup()


async def test_a_page_of_an_allowed_origin_uses_the_official_client(folder: Path, tmp_path: Path):
    """In a real browser, which asks before it sends the headers of the client. Another origin gets nothing."""
    code = f"""
import OpenAI from "/packages/openai/index.mjs";
const asked = new URLSearchParams(location.search);
const baseURL = asked.get("url"), apiKey = asked.get("key");
try {{ {ASK} window.told = told; }} catch (error) {{ window.told = String(error); }}
"""
    async with page_of(folder, code) as origin, page_of(folder, code) as other:
        serve = {"serve": {"cors_origins": [origin]}}
        async with (
            serve_router(ContextRouter(LIBRARY | key() | serve)) as ask,
            browser(tmp_path / "profile") as page,
        ):
            found = []
            for place in (origin, other):
                await page.open(f"{place}/?url={ask.url}/v1&key={KEY}")
                await page.until("window.told !== undefined")
                found.append(await page.value("window.told"))
    assert found[0] == TOLD
    assert "Connection error" in found[1]
