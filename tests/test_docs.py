"""The documents are run: Python and TOML blocks execute, console blocks show real output, and nothing goes
unmentioned.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import tomli
from example import ROOT, CommandLine, filled
from hostile import ALLOWED, FEED, PAGE, Hostile, send

from contextrouter import ContextRouter, errors
from contextrouter.cli.exit_codes import EXIT_CODES
from contextrouter.contracts import KINDS
from contextrouter.runtime.registry import Registry
from contextrouter.settings import FactKeys, InterpreterKeys, SourceKeys, StageKeys, load, schema
from contextrouter.settings.sections import NAMED, SECTIONS
from contextrouter.settings.values import OtherKeys

PAGES = [ROOT / "README.md", ROOT / "plugins" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STRUCTS = [*SECTIONS.values(), *NAMED.values(), SourceKeys, StageKeys, InterpreterKeys, OtherKeys, FactKeys]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
MEASURED = re.compile(r"\b\d+(\.\d+)? (ms|s|tokens)\b")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line it begins at."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [Block(m.group(1), m.group(2), text.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(text)]


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(filled(tmp_path_factory.mktemp("example")))


@pytest.fixture
def folder(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ingested example in a folder of the test's own, which is the current one."""
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_python_blocks_run_and_print_what_the_page_says(page: Path, folder: Path):
    """A ```text block behind a Python block is its output. A page's blocks share their names."""
    for module in [name for name in sys.modules if name == "plugins" or name.startswith("plugins.")]:
        del sys.modules[module]
    names: dict[str, object] = {"__name__": "__main__"}
    found = blocks(page)
    for index, block in enumerate(found):
        if block.language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
        following = found[index + 1] if index + 1 < len(found) else None
        if following is not None and following.language == "text":
            assert lines(printed.getvalue()) == lines(following.text), f"{page.name}:{following.line}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_toml_blocks_are_valid_settings(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "SEARCH_KEY", "TICKETS_TOKEN"):
        monkeypatch.setenv(name, "sk-of-the-test")
    for block in blocks(page):
        if block.language == "toml":
            path = folder / "block.toml"
            path.write_text(block.text, "utf-8")
            settings, _ = load(path, Registry)
            assert settings.path, f"{page.name}:{block.line}"


async def _answers(path: str, head: str, writer: asyncio.StreamWriter, url: str) -> None:
    """A site with a feed, pages, a sitemap, a search engine and an API, whatever host it is asked as."""
    path = path.partition("?")[0]
    found = {"results": [{"url": f"{url}/handbook", "title": "zebra", "text": "A zebra.", "id": 1}]}
    kinds = {
        "/feed": ("application/rss+xml", FEED),
        "/robots.txt": ("text/plain", ""),
        "/sitemap.xml": ("text/xml", f"<urlset><url><loc>{url}/handbook/more</loc></url></urlset>"),
    }
    searched = path in ("/search", "/find", "/api")
    kind, text = (
        ("application/json", json.dumps(found))
        if searched
        else kinds.get(path, ("text/html; charset=utf-8", PAGE))
    )
    await send(writer, "200 OK", text.encode(), {"Content-Type": kind})


async def test_every_example_of_a_live_source_is_asked_on_this_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("SEARCH_KEY", "TICKETS_TOKEN"):
        monkeypatch.setenv(name, "sk-of-the-test")
    used = set()
    async with Hostile() as server:
        monkeypatch.setattr(
            server, "answer", lambda path, head, writer: _answers(path, head, writer, server.url)
        )
        for block in blocks(ROOT / "docs" / "live-sources.md"):
            if block.language != "toml":
                continue
            text = re.sub(r"https://[a-z.]+\.example\.org", server.url, block.text)
            if 'use = "files"' not in text:
                text = text.replace("\nuse =", f"\nallow_private = {json.dumps(ALLOWED)}\nuse =")
            (folder / "live.toml").write_text(text, "utf-8")
            async with ContextRouter.from_toml(folder / "live.toml") as router:
                context = await router.route("zebra reading group")
            assert {report.status for report in context.coverage} == {"ok"}, (block.text, context.coverage)
            assert context.envelopes, block.text
            used |= set(re.findall(r'use = "(\w+)"', text))
    assert used == set(Registry().names("connector"))


def lines(text: str) -> list[str]:
    """Lines without what differs from run to run: durations, lengths, and the width of columns."""
    plain = (re.sub(r"─+", "─", MEASURED.sub("N", line)) for line in text.splitlines())
    return [" ".join(line.split()) for line in plain if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_console_blocks_show_what_the_commands_print(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """`$ contextrouter …` is run; a line of `…` stands for lines left out."""
    cli = CommandLine(monkeypatch, capsys)
    for block in blocks(page):
        if block.language != "console":
            continue
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, _, expected = part.partition("\n")
            name, *arguments = shlex.split(command)
            if name == "cd":
                monkeypatch.chdir(arguments[0])
                continue
            assert name == "contextrouter", f"{page.name}:{block.line}"
            ran = cli(*arguments)
            shown = lines(ran.out + ran.err)
            for passage in re.split(r"^…$", expected, flags=re.M):
                shown = behind(lines(passage), shown, f"{page.name}:{block.line}: {command}")


def behind(passage: list[str], shown: list[str], where: str) -> list[str]:
    """What follows `passage` in `shown`."""
    for start in range(len(shown) - len(passage) + 1):
        if shown[start : start + len(passage)] == passage:
            return shown[start + len(passage) :]
    raise AssertionError(
        f"{where}: not in the output:\n" + "\n".join(passage) + "\n--- output:\n" + "\n".join(shown)
    )


def shown(value: object) -> str:
    return msgspec.json.encode(value).decode()


def subcommands(text: str) -> list[str]:
    """The commands that a help text lists."""
    return re.findall(r"^│ (\w+)  ", text.partition("─ Commands")[2], re.M)


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_setting_is_documented_with_its_default(struct: type):
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, field in schema.struct_fields(struct).items():
        default = (
            "required"
            if field.default is schema.REQUIRED
            else "–"
            if field.default is None
            else f"`{shown(field.default)}`"
        )
        assert any(row.startswith(f"| `{name}` |") and f"| {default} |" in row for row in rows), (
            f"{name} = {default}"
        )


def test_every_key_of_every_plugin_is_documented():
    registry = Registry([ROOT / "plugins"])
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    missing = []
    for kind in KINDS:
        for name in registry.names(kind):
            if f"`{name}`" not in page:
                missing.append(f"{kind} {name}")
            missing += [
                f"{kind} {name}.{key}" for key in registry.schema(kind, name) or {} if f"`{key}`" not in page
            ]
    assert missing == []


def test_every_key_stands_in_the_complete_example():
    """Set, or behind a #."""
    text = (ROOT / "settings.toml").read_text("utf-8")
    keys = {name for struct in STRUCTS for name in schema.struct_fields(struct)}
    assert [key for key in sorted(keys) if not re.search(rf"^(# )?{key} = ", text, re.M)] == []
    tomli.loads(text)


def test_every_error_is_documented():
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    names = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_command_and_flag_is_documented(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    cli = CommandLine(monkeypatch, capsys)
    commands = []
    for command in subcommands(cli("--help").out):
        commands += [f"{command} {sub}" for sub in subcommands(cli(command, "--help").out)] or [command]
    assert {"route", "plugins show"} <= set(commands)
    for command in commands:
        assert f"`contextrouter {command}" in page
        flags = set(re.findall(r"--[a-z][a-z-]*", cli(*command.split(), "--help").out))
        assert [flag for flag in flags if f"`{flag}" not in page] == [], command


def test_every_exit_code_is_documented():
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert [code for code, meaning in EXIT_CODES.items() if f"| {code} | {meaning} |" not in page] == []


def test_every_module_has_a_heading_in_the_architecture():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    package = ROOT / "contextrouter"
    modules = [path.stem for path in package.glob("*.py") if not path.name.startswith("__")]
    folders = [path.name for path in package.iterdir() if (path / "__init__.py").exists()]
    assert [
        name for name in (*modules, *folders) if not re.search(rf"^### `{name}(\.py|/)` — .+\?$", page, re.M)
    ] == []


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
