"""The shape of the code: small files, functions and folders, layers without circles, one name for one
thing.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("contextrouter", "plugins", "tests", "scripts", "bench")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHIPPED = [path for path in FILES if path.relative_to(ROOT).parts[0] in ("contextrouter", "plugins")]
MOST_LINES, MOST_IN_FUNCTION, MEDIAN_FUNCTION = 400, 50, 11
MOST_IN_ROOT, MOST_IN_FOLDER = (
    10,
    24,
)  # about twenty: cli has a module for each command, pipeline for each step
MOST_PARAMETERS = 6
# Functions of the pipeline that take more. Take a name out when its function takes fewer; add none.
# Names that several modules or packages have, and what each of them means wherever it stands.
HOMONYMS = {
    "abilities": "what plugins may be able to do beside their one method: the protocols, and their laws",
    "kinds": "the kinds of plugins: the contracts, and of which kind a class is",
    "app": "the whole of a program, of its parts: of the command line, of the server",
    "cache": "results that are kept: the package, and its command",
    "connector": "the class of a connector of several modules",
    "embedders": "a kind of plugin: the built-in ones, and the laws of the kind",
    "facts": "a kind of plugin: the built-in ones, and the laws of the kind",
    "entity_vectors": "vectors of entities: made by ingestion, kept and searched by stores",
    "fetch": "safe HTTP: the package, and its command",
    "filter": "the filters of a query in a store's SQL",
    "generators": "a kind of plugin: the built-in ones, and the laws of the kind",
    "ingest": "filling stores: the package, and its command",
    "ingest_lock": "one ingestion at a time in a store",
    "interpreters": "a kind of plugin: the built-in ones, and the laws of the kind",
    "keys": "of the cache: what equal questions have in common; of the command line: `keys new`, API keys",
    "language": "the plugin of that name, of several kinds",
    "lookup": "documents of a store by id",
    "memory": "the plugin or cache tier of that name: all is in this process",
    "mentions_leg": "the leg `mentions` of a store",
    "openai": "the plugin of that name, of several kinds",
    "options": "what a caller may set: of a fetch, of a generator, of a command",
    "page": "of the server: the explorer; of the files: text of an HTML page",
    "periods": "the time that a question names: how it is read, and the interpreter",
    "postgres": "the plugin of that name, of several kinds",
    "provider": "the class of a provider of several modules",
    "quality": "the plugin of that name, of several kinds",
    "schema": "what may stand where: in the tables of a database, in the tables of settings",
    "settings": "settings: the package, and its command",
    "sources": "what is asked: their settings, and their laws",
    "sqlite": "the plugin of that name, of several kinds",
    "stages": "a kind of plugin: the built-in ones, and the laws of the kind",
    "taxonomy": "the plugin of that name, of several kinds",
    "text": "text: how it is analysed, and the parser of files of it",
    "text_leg": "the leg `text` of a store",
    "transforms": "a kind of plugin: the built-in ones, and the laws of the kind",
    "vector_leg": "the leg `vector` of a store",
    "vector_models": "the models whose vectors a store has: the contract, and each store's",
    "vertex": "the plugin of that name, of several kinds",
    "write": "how a store takes documents in",
}
# Functions of modules that three or more modules have, and their one meaning. Methods are not counted: those of one
# name keep the same contract, such as `search`, `open` and `aclose`.
SHARED_FUNCTIONS = {
    "ask": "asks a question or a model, and returns the answer",
    "_chunk": "a chunk of a document, as the store keeps it",
    "main": "what a program runs",
    "visible": "whether a scope allows a document: in Python, and as SQL",
}
SUPPRESSION = re.compile(r"#\s*(type:\s*ignore|(ruff:\s*|flake8:\s*)?noqa)\b", re.I)
WITH_REASON = re.compile(
    r"# type: ignore\[[a-z-]+(, [a-z-]+)*\]  # (?!noqa|type:)\w.{2}|# (ruff: )?noqa: [A-Z]+\d+(, [A-Z]+\d+)* - \w.{2}"
)
VAGUE = re.compile(r"(?i)(manager|handler|helper|utils?)(?![a-z])")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, Function):
            yield node


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_long_and_no_function_is(path: Path):
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES or path.parent.name == "tests"
    assert [
        f"{node.name}: {length(node)}" for node in functions(path) if length(node) > MOST_IN_FUNCTION
    ] == []


def test_half_of_the_functions_are_short():
    assert statistics.median(length(node) for path in SHIPPED for node in functions(path)) <= MEDIAN_FUNCTION


def test_everything_public_in_the_package_says_what_it_is():
    silent = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in SHIPPED
        for node in [
            *functions(path),
            *(n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ClassDef)),
        ]
        if path.parts[-2] not in ("settings",)
        and isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        if ast.get_docstring(node) is None
    ]
    assert silent == []


def test_names_are_the_fields_words():
    """A name that fits anything says nothing."""
    vague = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in SHIPPED
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, Function | ast.ClassDef) and VAGUE.search(node.name)
    ]
    assert vague == []
    assert [path.name for path in SHIPPED if VAGUE.search(path.stem)] == []


def test_nothing_is_pickled_and_nothing_starts_a_task_outside_the_router_s_own_files():
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in SHIPPED}
    assert [
        name
        for name, text in texts.items()
        if re.search(r"^\s*(import|from) (pickle|marshal|shelve)\b", text, re.M)
    ] == []
    assert [name for name, text in texts.items() if re.search(r"\basyncio\.gather\(", text)] == []


def test_layers_hold():
    """errors < model < contracts < settings, plugins < the steps < router < ingest < cli; built-ins know the
    contracts alone.
    """
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_only_the_command_line_imports_typer_and_rich():
    found = [
        path.relative_to(ROOT).as_posix()
        for path in SHIPPED
        if re.search(r"^\s*(import|from) (typer|rich)\b", path.read_text("utf-8"), re.M)
    ]
    assert found
    assert all(name.startswith("contextrouter/cli/") for name in found)


def package_modules(root: Path) -> dict[str, Path]:
    """Return the modules of a package by their dotted names; a package itself is its `__init__.py`."""
    return {
        ".".join((root.name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in root.rglob("*.py")
    }


def imported(module: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """Return what a module imports of its own package, wherever in it the import stands: at the top, in a
    function, or for the type checker only.
    """
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: None if path.name == "__init__.py" else -1]
            parents = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            whole = {f"{base}.{alias.name}" for alias in node.names}
            names |= whole & modules.keys()
            if not whole <= modules.keys():
                names.add(base)
    return names & modules.keys()


def circle(root: Path) -> list[str]:
    """Return modules of a package that import each other in a circle; empty: there is none."""
    modules = package_modules(root)
    try:
        TopologicalSorter({name: imported(name, path, modules) for name, path in modules.items()}).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_no_modules_import_each_other_in_a_circle():
    assert circle(ROOT / "contextrouter") == []


@pytest.mark.parametrize(
    "back",
    [
        "import tree.inner.first",
        "from tree.inner import first",
        "from . import first",
        "from .first import value",
        "from ..inner.first import value",
        "def later():\n    from tree.inner.first import value",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tree.inner.first import value",
    ],
)
def test_a_circle_is_seen_wherever_the_import_stands(tmp_path: Path, back: str):
    inner = tmp_path / "tree" / "inner"
    inner.mkdir(parents=True)
    for path in (tmp_path / "tree" / "__init__.py", inner / "__init__.py", inner / "third.py"):
        path.write_text("")
    (inner / "first.py").write_text("import json\nfrom tree.inner.second import other\nvalue = 1\n")
    (inner / "second.py").write_text("from tree.inner import third\nother = 2\n")
    assert circle(tmp_path / "tree") == []
    (inner / "third.py").write_text(back)
    assert {name.rpartition(".")[2] for name in circle(tmp_path / "tree")} == {"first", "second", "third"}


def test_folders_are_small():
    """A folder that can be read at a glance."""
    sizes = defaultdict[Path, int](int)
    for path in (ROOT / "contextrouter").rglob("*.py"):
        sizes[path.parent.relative_to(ROOT)] += path.name != "__init__.py"
    assert sizes[Path("contextrouter")] <= MOST_IN_ROOT
    assert {str(folder): size for folder, size in sizes.items() if size > MOST_IN_FOLDER} == {}


def test_no_two_modules_have_one_name_for_two_things():
    names = defaultdict[str, list[str]](list)
    for module in package_modules(ROOT / "contextrouter"):
        names[module.rpartition(".")[2]].append(module)
    shared = {name: modules for name, modules in names.items() if len(modules) > 1}
    assert {name: modules for name, modules in shared.items() if name not in HOMONYMS} == {}
    assert HOMONYMS.keys() - shared.keys() == set(), "no longer shared: take them out of the list"


def test_no_three_modules_have_one_function_name_for_different_things():
    modules = defaultdict[str, set[Path]](set)
    for path in (ROOT / "contextrouter").rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, Function):
                modules[node.name].add(path)
    shared = {name for name, paths in modules.items() if len(paths) > 2}
    assert shared - SHARED_FUNCTIONS.keys() == set(), "rename them, or list the one meaning"
    assert SHARED_FUNCTIONS.keys() - shared == set(), "no longer shared: take them out of the list"


def methods(path: Path) -> Iterator[tuple[str, Function]]:
    """Yield the functions of a file with their names behind the class's, and nested ones behind the
    outer's.
    """

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield prefix + child.name, child
            own = isinstance(child, Function | ast.ClassDef)
            yield from inside(child, f"{prefix}{child.name}." if own else prefix)

    return inside(ast.parse(path.read_text("utf-8")), f"{path.stem}.")


def parameters(node: Function) -> list[str]:
    """Return the names of what a caller may hand over: `self` and `cls` are not among them."""
    every = node.args
    named = [*every.posonlyargs, *every.args, *every.kwonlyargs, *filter(None, [every.vararg, every.kwarg])]
    return [argument.arg for argument in named if argument.arg not in ("self", "cls")]


def test_functions_of_the_pipeline_take_few_parameters():
    """What belongs to one request travels in one object."""
    many = {
        name
        for path in (ROOT / "contextrouter" / "pipeline").rglob("*.py")
        for name, node in methods(path)
        if len(parameters(node)) > MOST_PARAMETERS
    }
    assert many == set()


def suppressions(text: str) -> Iterator[str]:
    """Yield what stands behind `#` from each sign that switches a rule off."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            for match in SUPPRESSION.finditer(token.string):
                yield token.string[match.start() :]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("f(1)  # type: ignore[arg-type]  # a number on purpose", True),
        ("f(1)  # type: ignore[arg-type, call-arg]  # a number on purpose", True),
        ("f(1)  # noqa: S101, B009 - mypy refuses the plain access", True),
        ("# ruff: noqa: S608 - the statements are fragments written here", True),
        ("f('# noqa')", True),
        ("f(1)  # type: ignore[arg-type]", False),
        ("f(1)  # type: ignore  # all of it", False),
        ("f(1)  # type: ignore[arg-type]  # noqa: S101 - why", False),
        ("f(1)  # noqa: S101", False),
        ("f(1)  # noqa - all of it", False),
        ("f(1)  # why  # noqa: S101", False),
    ],
)
def test_a_reason_is_seen(line: str, reason: bool):
    assert all(WITH_REASON.match(comment) for comment in suppressions(line)) == reason


def test_whatever_switches_a_rule_off_says_why():
    assert [
        f"{path.relative_to(ROOT)}: {comment}"
        for path in FILES
        for comment in suppressions(path.read_text("utf-8"))
        if not WITH_REASON.match(comment)
    ] == []


# The words a newcomer searches for, and the module that each of them leads to.
FIELD_WORDS = {
    "access rule": "scope.py",
    "admission": "pipeline/admission.py",
    "answerability": "pipeline/answerability.py",
    "API key": "server/auth.py",
    "BM25": "text/bm25.py",
    "boilerplate": "builtin/transforms/quality.py",
    "cache invalidation": "cache/source_versions.py",
    "cache key": "cache/keys.py",
    "calibration": "pipeline/calibration/calibrated_values.py",
    "chunk boundaries": "builtin/transforms/chunking/boundaries.py",
    "chunk overlap": "builtin/transforms/chunking/boundaries.py",
    "chunking transforms": "builtin/transforms/chunking/strategies.py",
    "circuit breaker": "pipeline/call_limits/circuit_breaker.py",
    "citation markers": "answering/citation_markers.py",
    "citation numbering": "pipeline/assembly.py",
    "concurrency limit": "pipeline/call_limits/slots.py",
    "conditional GET": "fetch/http_cache.py",
    "connection pool": "builtin/providers/postgres/connection_pool.py",
    "cosine similarity": "vectors.py",
    "cross-encoder": "builtin/stages/cross_encoder.py",
    "data model": "model/noun.py",
    "date phrases": "text/time_expressions.py",
    "deadline": "pipeline/deadline.py",
    "decompression bomb": "fetch/body.py",
    "deduplication": "pipeline/deduplication.py",
    "did you mean": "settings/suggestions.py",
    "embedding cache": "cache/embeddings.py",
    "entry points": "runtime/registry.py",
    "ETag": "fetch/http_cache.py",
    "explanation": "pipeline/explanation.py",
    "fact extraction": "builtin/transforms/triples/from_text.py",
    "fan-out": "pipeline/fan_out/source_calls.py",
    "field mapping": "builtin/connectors/http_api/field_mapping.py",
    "full-text search": "builtin/providers/sqlite/text_leg.py",
    "graceful shutdown": "runtime/shutdown.py",
    "hidden text": "builtin/connectors/pages/hidden_text.py",
    "hit validation": "pipeline/admission.py",
    "HTTP cache": "fetch/http_cache.py",
    "incremental ingestion": "ingest/document_versions.py",
    "key phrase": "builtin/transforms/keywords.py",
    "language detection": "builtin/shared/language_detector.py",
    "language of a question": "builtin/interpreters/language.py",
    "lifecycle": "runtime/lifecycle.py",
    "line number": "settings/toml_locations.py",
    "link extraction": "builtin/transforms/links.py",
    "listwise": "builtin/stages/llm.py",
    "LRU cache": "runtime/lru.py",
    "media type": "builtin/connectors/files/parsing/media.py",
    "migrations": "builtin/providers/postgres/schema.py",
    "MMR": "builtin/stages/diversity.py",
    "named entity recognition": "builtin/transforms/entities.py",
    "nDCG": "evaluation/measures.py",
    "near-duplicate": "builtin/stages/diversity.py",
    "OpenAPI": "server/openapi.py",
    "overload limit": "pipeline/call_limits/slots.py",
    "overload": "pipeline/call_limits/slots.py",
    "personalization": "builtin/stages/profile.py",
    "Prometheus": "server/metrics.py",
    "prompt injection": "text/prompt_injection.py",
    "query expansion": "builtin/interpreters/normalize.py",
    "query interpretation": "pipeline/interpretation.py",
    "query rewriting": "builtin/interpreters/normalize.py",
    "query syntax": "text/query_syntax.py",
    "rate limit": "fetch/host_queue.py",
    "recency": "builtin/stages/freshness.py",
    "reciprocal rank fusion": "pipeline/fusion/source_order.py",
    "relevance gate": "builtin/stages/gate.py",
    "request coalescing": "cache/single_flight.py",
    "request validation": "pipeline/request_validation.py",
    "reranker": "builtin/stages/cross_encoder.py",
    "retries": "fetch/client.py",
    "robots.txt": "fetch/robots.py",
    "row-level security": "builtin/providers/postgres/schema.py",
    "RRF": "pipeline/fusion/source_order.py",
    "score floor": "builtin/stages/floor.py",
    "secret masking": "runtime/masking.py",
    "serialization": "serialization.py",
    "settings validation": "settings/sections.py",
    "single flight": "cache/single_flight.py",
    "source selection": "pipeline/source_selection.py",
    "SSRF": "fetch/ssrf.py",
    "stemming": "text/stemming.py",
    "stop words": "text/stop_words.py",
    "tenant": "scope.py",
    "term statistics": "pipeline/term_statistics.py",
    "thread pool": "runtime/threads.py",
    "token budget": "pipeline/assembly.py",
    "TOML table": "settings/sections.py",
    "vector search": "builtin/providers/sqlite/vector_leg.py",
    "web crawler": "builtin/connectors/web/site_crawler.py",
}


def docstring_start(path: Path) -> str:
    """Return the opening paragraph of a module's docstring, as one line."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


@pytest.mark.parametrize(("word", "module"), FIELD_WORDS.items())
def test_a_field_word_leads_to_its_module(word: str, module: str):
    """By a search in the code, and by the module's line in the tour of the architecture."""
    assert word.casefold() in docstring_start(ROOT / "contextrouter" / module).casefold()
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    tour = [line for line in page.splitlines() if line.startswith(f"- `{module}`: ")]
    assert [word.casefold() in line.casefold() for line in tour] == [True]


FILLER = frozenset(
    "found made told asked said known own most least left place again also held usual way ways given kept missing seen"
    " written shown wanted begun each one other here where why what mine ours theirs all both first last rest whole".split()
)
MOST_FILLER, MOST_PARTICIPLES = 0.01, 0.024  # shares of today; they only go down
IRREGULAR = frozenset(
    "said told shown known made found kept held given written sent begun left lost seen taken gone".split()
)


def names_of_variables(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg


def is_participle(name: str) -> bool:
    word = name.strip("_").split("_")[0]
    return word in IRREGULAR or (word.endswith("ed") and word not in ("feed", "need", "seed", "embed"))


def test_few_names_are_filler_words_or_participles():
    """A variable is named by what it holds, a function by what it does."""
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "contextrouter").rglob("*.py")]
    variables = [name for tree in trees for name in names_of_variables(tree)]
    assert sum(name in FILLER for name in variables) / len(variables) <= MOST_FILLER
    named = [
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, Function)
        and not any("property" in ast.dump(each) for each in node.decorator_list)
    ]
    assert sum(map(is_participle, named)) / len(named) <= MOST_PARTICIPLES
