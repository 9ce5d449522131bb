"""`contextrouter fetch`: what the router sees of a page or feed, step by step."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.example import CommandLine
from support.hostile import FEED, PAGE

ROBOTS = "User-agent: *\nDisallow: /page"
ANSWERS = {
    "/page": ("text/html", PAGE),
    "/feed": ("application/rss+xml", FEED),
    "/robots.txt": ("text/plain", ROBOTS),
}
ALLOWED = ("--allow-private", "127.0.0.2/32")


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, text = ANSWERS.get(self.path, ("text/plain", ""))
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.2", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.2:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def test_a_page_is_shown_step_by_step(cli: CommandLine, site: str):
    ran = cli("fetch", f"{site}/page", *ALLOWED)
    assert ran.code == 0
    shown = [line.split(maxsplit=1) for line in ran.out.splitlines() if line.strip()]
    steps = {name: rest for name, rest in (line for line in shown if len(line) == 2)}
    assert steps["robots"] == "robots.txt does not allow a crawler to read it"
    assert steps["title"] == "On zebras"
    assert steps["language"] == "en"
    assert steps["passages"] == "1"
    assert "200 after" in ran.out


def test_a_feed_is_shown_with_its_items(cli: CommandLine, site: str):
    ran = cli("fetch", f"{site}/feed", *ALLOWED, "--json")
    assert ran.code == 0
    steps = [(step["step"], step["what"]) for step in json.loads(ran.out)["steps"]]
    assert ("feed", "'T': 1 items") in steps
    assert ("item", "undated zebra crossing") in steps


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{site}/none", *ALLOWED], 1, "status 404"),
        (["{site}/page"], 1, "is not a public address"),
        (["ftp://example.org/"], 2, "is not http or https"),
        (["{site}/page", "--source", "web", *ALLOWED], 2, "no effect with --source"),
    ],
)
def test_what_does_not_come_says_why(
    cli: CommandLine, site: str, arguments: list[str], code: int, message: str
):
    ran = cli("fetch", *(argument.format(site=site) for argument in arguments))
    assert ran.code == code
    assert message in " ".join(ran.err.split())


def test_a_connector_of_the_settings_fetches_with_its_own_keys(cli: CommandLine, site: str, tmp_path: Path):
    settings = (
        f'[connectors.pages]\nuse = "web"\nurls = ["{site}/page"]\nallow_private = ["127.0.0.2/32"]\n'
        '[connectors.notes]\nuse = "files"\npath = "."\n'
    )
    (tmp_path / "settings.toml").write_text(settings, "utf-8")
    assert cli("fetch", f"{site}/feed", "--source", "pages").code == 0
    for name, message in (("notes", "cannot show how it fetches"), ("other", "is not defined")):
        ran = cli("fetch", f"{site}/feed", "--source", name)
        assert ran.code == 2
        assert message in " ".join(ran.err.split())
