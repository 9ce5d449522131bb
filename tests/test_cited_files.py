"""Citations that can be followed: what they name, where they open, and who is served which file."""

from __future__ import annotations

import html
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import Client as McpClient
from support.pdf_files import pdf
from support.serving import KEY, Client, key, serve_router

from contextrouter import Context, ContextRouter, Scope
from contextrouter.ingest import run
from contextrouter.server.auth import Caller
from contextrouter.server.mcp_server.tools import make_mcp_server

README = "# README\n\nHow to start.\n\n## Walrus\n\nThe walrus of {name} lives {where}.\n"
QUESTION = "Where does the walrus live?"


def write(folder: Path) -> Path:
    """Two jobs with a README.md each, a PDF of two pages and a note that is read live."""
    for name, where in (("north", "on ice"), ("south", "in the zoo")):
        (folder / name).mkdir(parents=True)
        (folder / name / "README.md").write_text(README.format(name=name, where=where))
    (folder / "north" / "report.pdf").write_bytes(
        pdf([["Contents of this report. " * 150], ["The narwhal has one tusk"]])
    )
    (folder / "notes").mkdir()
    (folder / "notes" / "seal.md").write_text("---\ntitle: Seals\n---\n\n# Seals\n\nA seal eats fish.\n")
    return folder


def settings(folder: Path, **tables: Any) -> dict[str, Any]:
    return {
        "rag": {"interpreters": [], "cache_enabled": False},
        "providers": {"library": {"use": "sqlite", "path": str(folder / "library.db")}},
        "connectors": {"notes": {"use": "files", "path": str(folder / "notes")}},
        "ingest": {
            "north": {"from": str(folder / "north"), "to": "library"},
            "south": {"from": str(folder / "south"), "to": "library"},
        },
        **tables,
    }


@pytest.fixture
async def made(tmp_path: Path) -> dict[str, Any]:
    """Settings whose jobs were run."""
    tables = settings(write(tmp_path))
    async with ContextRouter(tables) as router:
        await run(router)
    return tables


async def ask(tables: dict[str, Any], question: str = QUESTION, **fields: Any) -> Context:
    async with ContextRouter(tables) as router:
        return await router.route(question, **fields)


@pytest.mark.case("USE-05")
async def test_two_files_of_one_name_are_told_apart_by_job_heading_and_file(
    made: dict[str, Any], tmp_path: Path
):
    context = await ask(made, sources=("library",))
    walrus = {citation.job: citation for citation in context.citations if citation.title == "README"}
    assert set(walrus) == {"north", "south"}
    for job, citation in walrus.items():
        file = tmp_path / job / "README.md"
        assert (citation.file, citation.url) == (str(file), file.as_uri())
        assert citation.path == ()
        assert citation.line == 1
        assert citation.place == f"line {citation.line}"
        assert f"README — library — {job}:README.md\n" in context.text
    assert context.to_dict("full")["citations"][0]["file"] == context.citations[0].file


@pytest.mark.case("USE-05")
async def test_a_filter_for_a_job_leaves_the_others_out(made: dict[str, Any]):
    one = await ask(made, filters={"job": "south"})
    assert {citation.job for citation in one.citations} == {"south"}
    both = await ask(made, filters={"job": ["south", "north"]})
    assert {citation.job for citation in both.citations} == {"south", "north"}
    assert (await ask(made, filters={"job": "west"})).citations == ()


@pytest.mark.case("USE-05")
async def test_a_page_of_a_pdf_and_a_line_of_a_live_file_are_cited(made: dict[str, Any], tmp_path: Path):
    context = await ask(made, "How many tusks has the narwhal?", sources=("library",))
    (page,) = [citation for citation in context.citations if citation.file.endswith(".pdf")][:1]
    assert (page.page, page.place) == (2, "page 2")
    assert page.url == (tmp_path / "north" / "report.pdf").as_uri() + "#page=2"
    assert "— page 2\n" in context.text
    (seal,) = (await ask(made, "What does a seal eat?", sources=("notes",))).citations
    assert (seal.job, seal.file, seal.line) == ("", str(tmp_path / "notes" / "seal.md"), 7)


async def test_front_matter_chooses_neither_the_file_nor_the_line(tmp_path: Path):
    """A document that names a part, a line or a job of its own says nothing about its file."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "other").write_text("secret")
    front = "---\npart: md\nfirst_line: 900\njob: treasury\nfile: ../other\n---\n\nA seal eats fish.\n"
    (tmp_path / "notes" / "seal.md").write_text(front)
    tables = settings(tmp_path, ingest={})
    (seal,) = (await ask(tables, "What does a seal eat?")).citations
    assert (seal.file, seal.line, seal.job) == (str(tmp_path / "notes" / "seal.md"), 8, "")
    assert (await ask(tables, "seal", filters={"job": "treasury"})).citations == ()


def local(tables: dict[str, Any], **more: Any) -> ContextRouter:
    return ContextRouter({**tables, "serve": {"files": True}, **more})


async def cited(client: Client, question: str, name: str) -> dict[str, Any]:
    body = {"question": question, "detail": "full"}
    citations = (await client("/v1/route", body)).json["citations"]
    return next(each for each in citations if name in each["url"])


@pytest.mark.case("USE-05")
async def test_the_address_of_a_citation_serves_its_file_at_its_place(made: dict[str, Any], tmp_path: Path):
    """A PDF as it is, a text for programs as it is, and for people with an address for each line."""
    async with serve_router(local(made)) as client:
        page = await cited(client, "How many tusks has the narwhal?", "report.pdf")
        assert page["url"].startswith(f"{client.url}/v1/files?source=library&id=north%3Areport.pdf")
        assert page["url"].endswith("#page=2")
        async with client.session.get(page["url"]) as response:
            assert response.content_type == "application/pdf"
            assert await response.read() == (tmp_path / "north" / "report.pdf").read_bytes()
        seal = await cited(client, "What does a seal eat?", "seal.md")
        assert seal["url"].endswith("#L7")
        address = seal["url"].removeprefix(client.url)
        plain = await client(address)
        assert plain.text == (tmp_path / "notes" / "seal.md").read_text()
        assert plain.headers["Content-Type"] == "text/plain; charset=utf-8"
        shown = await client(address, headers={"Accept": "text/html"})
        assert '<li id="L7">A seal eats fish.</li>' in shown.text
        assert "sandbox" in shown.headers["Content-Security-Policy"]
        chat = await client(
            "/v1/chat/completions",
            {"model": "contextrouter", "messages": [{"role": "user", "content": "What does a seal eat?"}]},
        )
        sources = chat.json["contextrouter"]["sources"]
        assert [source["url"] for source in sources if "seal" in source["url"]] == [seal["url"]]
        answer = (await client("/v1/answer", {"question": "What does a seal eat?"})).json
        assert answer["citations"][0]["url"] == seal["url"]


async def test_a_file_is_made_a_page_outside_the_event_loop(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """A long text would hold up every other caller for as long as that takes."""
    threads = []
    monkeypatch.setattr(
        "contextrouter.server.cited_files.html",
        SimpleNamespace(escape=lambda text: threads.append(threading.current_thread()) or html.escape(text)),
    )
    async with serve_router(local(made)) as client:
        page = await client("/v1/files?source=notes&id=seal.md", headers={"Accept": "text/html"})
    assert "A seal eats fish." in page.text
    assert threads
    assert threading.current_thread() not in threads


async def test_a_host_that_is_no_name_makes_no_address(made: dict[str, Any]):
    """What a caller, or a proxy that was deceived, puts into the header ends up in no link of a page."""
    async with serve_router(local(made, **key()), token=KEY) as client:
        body = {"question": "What does a seal eat?", "sources": ["notes"]}
        for host, url in (
            ("docs.example.org:8080", "http://docs.example.org:8080/v1/files?source=notes&id=seal.md#L7"),
            ("[::1]:8080", "http://[::1]:8080/v1/files?source=notes&id=seal.md#L7"),
            ('x"><script>', "seal.md"),
            ("user@evil.example", "seal.md"),
            ("evil.example/path?", "seal.md"),
        ):
            answer = await client("/v1/route", body, headers={"Host": host})
            assert [citation["url"] for citation in answer.json["citations"]] == [url], host


async def test_without_the_switch_no_file_is_served(made: dict[str, Any]):
    async with serve_router(ContextRouter(made)) as client:
        assert (await client("/v1/files?source=notes&id=seal.md")).status == 404


async def test_no_id_leads_out_of_the_folder_of_its_source(made: dict[str, Any], tmp_path: Path):
    """Neither a path, nor a link that was put there after the file was read."""
    (tmp_path / "secret.md").write_text("# Secret\n\nNobody sees this.\n")
    async with serve_router(local(made)) as client:
        for id in (
            "../secret.md",
            "north:../secret.md",
            "..%2Fsecret.md",
            str(tmp_path / "secret.md"),
            "seal.md/../../secret.md",
            "seal.md%00.pdf",
            "",
        ):
            for source in ("notes", "library", "nobody", ""):
                answer = await client(f"/v1/files?source={source}&id={id}")
                assert answer.status in (404, 422), (source, id)
                assert "Nobody sees this" not in answer.text
        assert (await client("/v1/files?source=library&id=north:README.md")).status == 200
        (tmp_path / "north" / "README.md").unlink()
        (tmp_path / "north" / "README.md").symlink_to(tmp_path / "secret.md")
        assert (await client("/v1/files?source=library&id=north:README.md")).status == 404
        (tmp_path / "north" / "README.md").unlink()
        os.mkfifo(tmp_path / "north" / "README.md")
        assert (await client("/v1/files?source=library&id=north:README.md")).status == 404


async def test_a_page_that_is_cited_runs_no_script_of_its_own(tmp_path: Path):
    """HTML and SVG are shown as text; the headers forbid whatever a browser might make of them."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "seal.html").write_text(
        "<h1>Seals</h1><p>A seal eats fish, and the fish that it eats are herring, cod and eel.</p><script>hurt()</script>"
    )
    async with serve_router(local(settings(tmp_path, ingest={}))) as client:
        for accept in ("text/html", "*/*"):
            answer = await client("/v1/files?source=notes&id=seal.html", headers={"Accept": accept})
            assert answer.status == 200
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "script-src" not in answer.headers["Content-Security-Policy"]
            is_page = answer.headers["Content-Type"].startswith("text/html")
            assert ("<script>hurt()" in answer.text) is not is_page
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_caller_gets_the_files_of_the_documents_that_it_may_see(tmp_path: Path):
    """And learns neither paths of the machine, nor whether another file exists."""
    folder = write(tmp_path)
    tables = settings(folder, **key(ceiling="internal"))
    tables["ingest"]["south"]["sensitivity"] = "restricted"
    tables["connectors"]["notes"]["compartment"] = "hr"
    async with ContextRouter(tables) as router:
        await run(router)
    async with serve_router(local(tables), token=KEY) as client:
        north = await cited(client, QUESTION, "README.md")
        assert north["file"] == ""
        assert (await client(north["url"].removeprefix(client.url))).status == 200
        refusals = [
            await client(f"/v1/files?source={source}&id={id}")
            for source, id in (("library", "south:README.md"), ("notes", "seal.md"), ("library", "no"))
        ]
        assert {(answer.status, answer.json["detail"]) for answer in refusals} == {
            (404, "There is no such document for you, or it comes from no file.")
        }
        whole = (await client("/v1/route", {"question": QUESTION, "detail": "trace"})).text
        assert str(tmp_path) not in whole
        file = tmp_path / "north" / "README.md"
        (moved := tmp_path / "moved.md").write_text("---\nsensitivity: restricted\n---\nNew and secret.\n")
        os.utime(moved, (0, 0))
        whole_file = file.read_text()
        moved.replace(file)  # a file of old: what says so is not when it came here
        changed = await client(north["url"].removeprefix(client.url))
        assert (changed.status, changed.json["code"]) == (409, "file_changed")
        file.write_text(whole_file)
        async with ContextRouter(tables) as router:
            await run(router)
        assert (await client(north["url"].removeprefix(client.url))).status == 200
        file.write_text(file.read_text() + "\nNew and secret.\n")
        later = time.time() + 60
        os.utime(file, (later, later))
        changed = await client(north["url"].removeprefix(client.url))
        assert (changed.status, changed.json["code"]) == (409, "file_changed")
    async with serve_router(local(tables)) as client:
        assert (await client("/v1/files?source=library&id=north:README.md")).status == 401


async def test_a_file_of_several_documents_is_served_to_no_caller_with_a_scope(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    mail = "From a@b Mon Jan  5 10:00:00 2026\nFrom: a@b\nSubject: {0}\n\nThe {0} eats fish every day.\n\n"
    (tmp_path / "notes" / "box.mbox").write_text(mail.format("seal") + mail.format("walrus"))
    tables = settings(tmp_path, ingest={})
    async with serve_router(local(tables)) as client:
        seal = await cited(client, "What does the seal eat?", "box.mbox")
        assert seal["file"] == str(tmp_path / "notes" / "box.mbox")
        assert "walrus" in (await client(seal["url"].removeprefix(client.url))).text
        path = seal["url"].removeprefix(client.url)
    async with serve_router(local(tables, **key()), token=KEY) as client:
        answer = (await client("/v1/route", {"question": "What does the seal eat?"})).json
        assert "/v1/files" not in answer["citations"][0]["url"]
        assert (await client(path)).status == 404


@pytest.mark.case("USE-05")
async def test_agents_read_job_place_and_address(made: dict[str, Any], tmp_path: Path):
    async with ContextRouter(made) as router:
        server = make_mcp_server(router, lambda call: Caller(name="me"))
        async with McpClient(server) as agent:
            question = "How many tusks has the narwhal?"
            answer = await agent.call_tool("route", {"question": question})
            (page,) = [each for each in answer.structured_content["documents"] if each["title"] == "report"][
                :1
            ]
            assert (page["job"], page["page"]) == ("north", 2)
            address = (tmp_path / "north" / "report.pdf").as_uri() + "#page=2"
            assert page["url"] == address
            assert f"### [{page['number']}] report — library — page 2 — north — {address}" in (
                answer.content[0].text
            )
    async with serve_router(local(made)) as client, McpClient(f"{client.url}/mcp") as agent:
        answer = await agent.call_tool("route", {"question": question})
        urls = [each["url"] for each in answer.structured_content["documents"]]
        address = f"{client.url}/v1/files?source=library&id=north%3Areport.pdf#page=2"
        assert address in urls
        assert (await client(address.removeprefix(client.url))).status == 200


@pytest.mark.case("USE-05")
@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "\tJava\nScript:x", "data:text/html,x", "vbscript:x"]
)
async def test_an_address_that_would_run_a_program_is_no_citation(address: str, tmp_path: Path):
    """The file of the document is cited in its place; where there is none, there is no address."""
    tables = {
        "rag": {"interpreters": []},
        "providers": {"memory": {"documents": [{"id": "o", "content": "Otters swim.", "url": address}]}},
    }
    assert (await ask(tables, "otters")).citations[0].url == ""
    (tmp_path / "notes").mkdir()
    front = f"---\nurl: {address.strip().replace(chr(10), '')}\n---\n\nA seal eats fish.\n"
    (file := tmp_path / "notes" / "seal.md").write_text(front)
    (seal,) = (await ask(settings(tmp_path, ingest={}), "What does a seal eat?")).citations
    assert seal.url == file.as_uri()


@pytest.mark.case("USE-05")
async def test_a_file_address_of_a_document_leads_to_no_other_file(tmp_path: Path):
    """A document leads to its own file, and a caller with a scope to none of the machine's."""
    (tmp_path / "notes").mkdir()
    (file := tmp_path / "notes" / "seal.md").write_text("---\nurl: file:///etc/passwd\n---\n\nA seal eats.\n")
    tables = settings(tmp_path, ingest={})
    assert [citation.url for citation in (await ask(tables, "seal")).citations] == [file.as_uri()]
    stored = {"documents": [{"id": "w", "content": "A walrus eats.", "url": "file:///srv/hr/walrus.md"}]}
    tables["providers"] = {"memory": stored}
    async with serve_router(ContextRouter(tables | key()), token=KEY) as client:
        for question in ("seal", "walrus"):
            citations = (await client("/v1/route", {"question": question})).json["citations"]
            assert {citation["url"] for citation in citations} == {""}
    caller = Caller(name="me", scope=Scope())
    async with (
        ContextRouter(tables) as router,
        McpClient(make_mcp_server(router, lambda call: caller)) as agent,
    ):
        for question in ("seal", "walrus"):
            found = await agent.call_tool("search", {"query": question})
            for result in found.structured_content["results"]:
                fetched = await agent.call_tool("fetch", {"id": result["id"]})
                assert (result["url"], fetched.structured_content["url"]) == ("", "")


@pytest.mark.case("NEW-16")
async def test_a_fetched_document_has_the_address_that_opens(made: dict[str, Any]):
    async with serve_router(local(made)) as client, McpClient(f"{client.url}/mcp") as agent:
        found = await agent.call_tool("search", {"query": QUESTION})
        first = found.structured_content["results"][0]
        fetched = await agent.call_tool("fetch", {"id": first["id"]})
        assert first["url"].startswith(fetched.structured_content["url"])
        assert fetched.structured_content["url"].startswith(f"{client.url}/v1/files?source=library&id=")
        assert (await client(fetched.structured_content["url"].removeprefix(client.url))).status == 200
