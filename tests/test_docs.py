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
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import tomli
from markdown_it import MarkdownIt
from support.example import ROOT, CommandLine, copy_example, ingest_example
from support.hostile import ALLOWED, FEED, PAGE, Hostile, send

from contextrouter import ContextRouter, errors
from contextrouter.cli.exit_codes import EXIT_CODES
from contextrouter.contracts import KINDS
from contextrouter.runtime.registry import Registry
from contextrouter.server.metrics import Metrics
from contextrouter.server.worker_share import Worker
from contextrouter.settings import FactKeys, InterpreterKeys, Route, SourceKeys, StageKeys, schema
from contextrouter.settings.loading import load
from contextrouter.settings.router_keys import GeneratorKeys, OtherKeys
from contextrouter.settings.sections import NAMED, OF_ALL, SECTIONS, route_fields

README = ROOT / "README.md"
OTHERS = [ROOT / "plugins" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TUTORIALS = [
    ROOT / "docs" / f"{name}.md" for name in ("plugin-tutorial", "tutorial")
]  # typed along elsewhere
RUN_HERE = [page for page in OTHERS if page not in TUTORIALS]
PAGES = [README, *OTHERS]
PLAIN = [
    README,
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "index",
            "quickstart",
            "architecture",
            "data-model",
            "pipeline",
            "glossary",
            "how-to-extend",
            "contributing",
        )
    ),
]
MOST_WHAT = 3  # times in 1,000 words: a sentence that says "what" often is a riddle
STRUCTS = [
    *SECTIONS.values(),
    *NAMED.values(),
    *OF_ALL.values(),
    SourceKeys,
    StageKeys,
    InterpreterKeys,
    GeneratorKeys,
    OtherKeys,
    FactKeys,
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
CELLS = re.compile(r"(?<!\\)\|")
MARK = re.compile(r"<<<(untrusted|end) [0-9a-f]{16}>>>")
MEASURED = re.compile(r"\b\d+(\.\d+)? (ms|s|tokens)\b")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line it begins at."""

    language: str
    text: str
    line: int


def keys_of(struct: type) -> dict[str, schema.Field]:
    """The keys of a table: a route has those of `[rag]` too."""
    return route_fields() if struct is Route else schema.struct_fields(struct)


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [Block(m.group(1), m.group(2), text.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(text)]


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(ingest_example(tmp_path_factory.mktemp("example")))


@pytest.fixture
def folder(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ingested example in a folder of the test's own, which is the current one."""
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run_python(page: Path, names: dict[str, object], block: Block, output: Block | None) -> None:
    """Run a Python block with the names of the blocks before it; compare with the text block behind it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
        exec(code, names)
    if output is not None and output.language == "text":
        assert lines(printed.getvalue()) == lines(output.text), f"{page.name}:{output.line}"


def fresh_names() -> dict[str, object]:
    """Return the names that a page's blocks begin with; forget plugins of the page before."""
    for module in [name for name in sys.modules if name == "plugins" or name.startswith("plugins.")]:
        del sys.modules[module]
    return {"__name__": "__main__"}


@pytest.mark.parametrize("page", RUN_HERE, ids=ids)
def test_python_blocks_run_and_print_what_the_page_says(page: Path, folder: Path):
    """A ```text block behind a Python block is its output. A page's blocks share their names."""
    names = fresh_names()
    for block, following in pairwise([*blocks(page), None]):
        if block is not None and block.language == "python":
            run_python(page, names, block, following)


@pytest.mark.parametrize("page", [README, *RUN_HERE], ids=ids)
def test_toml_blocks_are_valid_settings(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "SEARCH_KEY", "TICKETS_TOKEN", "COHERE_API_KEY", "VOYAGE_API_KEY"):
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
    """Lines without what differs from run to run: durations, lengths, marks of fences, the width of
    columns.
    """
    plain = (
        re.sub(r"─+", "─", MEASURED.sub("N", MARK.sub(r"<<<\1 mark>>>", line))) for line in text.splitlines()
    )
    return [" ".join(line.split()) for line in plain if line.strip()]


def run_console(page: Path, block: Block, cli: CommandLine) -> None:
    """Run each `$ contextrouter …` of a block; a line of `…` stands for lines that are left out."""
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        name, *arguments = shlex.split(command)
        if name == "cd":
            cli.monkeypatch.chdir(arguments[0])
            continue
        assert name == "contextrouter", f"{page.name}:{block.line}"
        ran = cli(*arguments)
        output = lines(ran.out + ran.err)
        for passage in re.split(r"^…$", expected, flags=re.M):
            output = behind(lines(passage), output, f"{page.name}:{block.line}: {command}")


@pytest.mark.parametrize("page", RUN_HERE, ids=ids)
def test_console_blocks_show_what_the_commands_print(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cli = CommandLine(monkeypatch, capsys)
    for block in blocks(page):
        if block.language == "console":
            run_console(page, block, cli)


def shell_commands(block: Block) -> list[list[str]]:
    """Return the words of each command of a shell block, without comments."""
    return [words for line in block.text.splitlines() if (words := shlex.split(line, comments=True))]


def check_setup(words: list[str]) -> None:
    """Check a command that sets up the environment, without running it: its target or extra exists."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    extras = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    match words:
        case ["make", target]:
            assert re.search(rf"^{re.escape(target)}:", makefile, re.M), target
        case ["pip", "install", package]:
            assert package[:2] + package[-1] == ".[]", package
            assert set(package[2:-1].split(",")) <= set(extras), package
        case [".", activate]:
            assert activate == f"{re.search('^VENV := (.+)$', makefile, re.M)[1]}/bin/activate"
        case _:
            raise AssertionError(f"{shlex.join(words)}: neither run nor checked")


@pytest.mark.case("USE-08")
def test_the_readme_can_be_typed_along_in_a_fresh_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """From top to bottom, in the files of a clone, with a store that is empty at the start."""
    cli, names = CommandLine(monkeypatch, capsys), fresh_names()
    monkeypatch.chdir(copy_example(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    for block, following in pairwise([*blocks(README), None]):
        assert block is not None
        if block.language == "python":
            run_python(README, names, block, following)
        elif block.language == "console":
            run_console(README, block, cli)
        elif block.language == "sh":
            for words in shell_commands(block):
                if words[0] == "contextrouter":
                    assert cli(*words[1:]).code == 0, shlex.join(words)
                else:
                    check_setup(words)
        else:
            assert block.language in ("toml", "text")  # checked by the tests of TOML blocks, and as output
    assert re.findall(r"^(?: {4}|\t)\S.*", FENCE.sub("", README.read_text("utf-8")), re.M) == []


def test_the_readme_says_first_what_it_is_and_how_to_start():
    screen = "\n".join(README.read_text("utf-8").splitlines()[:30])
    words = ("RAG", "hybrid search", "reranking", "make demo", "make test", "contextrouter-rag")
    assert [word for word in words if word not in screen] == []


def test_the_commands_of_the_quickstart_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    listed = subcommands(CommandLine(monkeypatch, capsys)("--help").out)
    for block in blocks(ROOT / "docs" / "quickstart.md"):
        for words in shell_commands(block) if block.language == "sh" else ():
            if words[0] == "contextrouter":
                assert words[1] in listed
            elif words[0] != "cd":
                check_setup(words)


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
    return re.findall(r"^  (\w+)  ", text.partition("\nCommands:\n")[2].partition("\n\n")[0], re.M)


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_setting_is_documented_with_its_default(struct: type):
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, field in keys_of(struct).items():
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
    keys = {name for struct in STRUCTS for name in keys_of(struct)}
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


def test_every_metric_of_the_server_is_documented_and_no_other():
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    shown = set(re.findall(r"^# TYPE (\w+) \w+$", Metrics(Worker(number=1)).text().decode(), re.M))
    created = {name for name in shown if name.endswith("_created")}  # when each counter began
    assert set(re.findall(r"^\| `(contextrouter_\w+)` \|", page, re.M)) == shown - created


def test_every_module_has_one_line_in_the_tour_of_the_architecture():
    """Packages that only hold modules have a heading, or none."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    package = ROOT / "contextrouter"
    modules = [path.relative_to(package).as_posix() for path in package.rglob("*.py")]
    named = re.findall(r"^- `([\w/]+\.py)`: \S.*\.$", page, re.M)
    assert sorted(named) == sorted(name for name in modules if not name.endswith("__init__.py"))
    folders = [path.name for path in package.iterdir() if (path / "__init__.py").exists()]
    assert [name for name in folders if not re.search(rf"^### .*`{name}/", page, re.M)] == []


@pytest.mark.case("USE-19")
@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_table_of_a_page_renders(page: Path):
    """A table has a blank line above it, a header with a name, and as many cells in each row as in the
    header.

    Renderers differ in the rest: some join a table to the paragraph above, some drop a cell too many.
    """
    source = page.read_text("utf-8").splitlines()
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(source))
    tables = [token.map for token in tokens if token.type == "table_open" and token.map is not None]
    fences = [
        token.map for token in tokens if token.type in ("fence", "code_block") and token.map is not None
    ]
    rendered = {number for start, end in (*tables, *fences) for number in range(start, end)}
    stray = [n + 1 for n, line in enumerate(source) if line.lstrip().startswith("|") and n not in rendered]
    assert stray == [], f"{page.name}: rows without a header"
    for start, end in tables:
        label = f"{page.name}:{start + 1}"
        width = len(CELLS.findall(source[start]))
        assert start == 0 or not source[start - 1].strip(), f"{label}: no blank line above"
        assert re.search(r"\w", source[start]), f"{label}: a header without a name"
        uneven = [n + 1 for n in range(start, end) if len(CELLS.findall(source[n])) != width]
        assert uneven == [], f"{label}: rows of another width than the header"


def test_every_settings_table_names_its_columns():
    """Each plugin of the settings page has a table of its own, or shares one, and every column has a name."""
    tokens = (
        MarkdownIt("commonmark").enable("table").parse((ROOT / "docs" / "settings.md").read_text("utf-8"))
    )
    headers: dict[str, list[str]] = {}
    heading, cells = "", []
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[number + 1].content
        elif token.type == "thead_open":
            cells = headers[heading] = []
        elif token.type == "th_open":
            cells.append(tokens[number + 1].content)
    assert {name: row for name, row in headers.items() if row != ["key", "type", "default", "meaning"]} == {}
    titles = " ".join(headers)
    registry = Registry([ROOT / "plugins"])
    plugins = [(kind, name) for kind in KINDS for name in registry.names(kind) if registry.schema(kind, name)]
    assert [(kind, name) for kind, name in plugins if f"`{name}`" not in titles] == []


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_stands_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [name for name in sorted(names) if f"]({name})" not in index] == []


def test_modules_that_the_glossary_names_exist():
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    named = re.findall(r"`((?:\w+/)*\w+(?:\.py|/))`", page)
    assert "fetch/ssrf.py" in named
    assert [name for name in named if not (ROOT / "contextrouter" / name).exists()] == []
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row.count("|") != 4] == []


@pytest.mark.parametrize("page", PLAIN, ids=ids)
def test_pages_are_plain(page: Path):
    """Few sentences hang on the word "what", and every line of text fits on a screen."""
    prose = FENCE.sub("", page.read_text("utf-8"))
    words = re.findall(r"[\w'-]+", prose.casefold())
    asks = [word for word in words if word in ("what", "whatever")]
    assert len(asks) <= max(MOST_WHAT * len(words) / 1000, 1)
    assert [line for line in prose.splitlines() if len(line) > 150 and not line.startswith(("|", "!["))] == []
