"""Settings: strict, located, layered, every value with its origin."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import ContextRouter, PluginNotFound, Rag, SettingsError
from contextrouter.errors import Problem
from contextrouter.runtime.masking import mask_error
from contextrouter.runtime.registry import Registry
from contextrouter.settings import Settings
from contextrouter.settings.loading import load
from contextrouter.settings.toml_locations import locate


def write(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, "utf-8")
    return path


def read(source: object, environ: dict[str, str] | None = None, **overrides: object) -> Settings:
    return load(source, Registry, environ=environ or {}, overrides=overrides)[0]  # type: ignore[arg-type]  # sources of any type, the wrong ones too


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(write(folder, text), environ)
    return [str(problem) for problem in caught.value.problems]


REFERENCE = """
[rag]
provider = "{provider}"
general_retrieval_enabled = true
general_retrieval_final_count = 10
max_books = 5
max_videos = 3
max_qa = 5
max_web = 3
hybrid_fusion = "rrf"
rrf_k = 60
hybrid_vector_weight = 0.7
hybrid_text_weight = 0.3
enable_fts = true
graph_facts_enabled = true
max_graph_facts = 50
cache_enabled = true
cache_ttl_seconds = 3600
max_retrieval_queries = 3
"""


@pytest.mark.case("R14", "R16")
def test_the_reference_snippets_start_with_postgres_and_with_one_table_of_vertex(tmp_path: Path):
    for provider in ("postgres", "vertex"):
        settings = read(write(tmp_path, REFERENCE.format(provider=provider)))
        assert settings.rag.general_retrieval_final_count == 10
        assert list(settings.providers) == [provider]
    with pytest.raises(SettingsError, match=r"providers.vertex: collection is empty. Name one"):
        ContextRouter.from_toml(write(tmp_path, REFERENCE.format(provider="vertex")))
    table = '[providers.vertex]\nproject = "acme"\ncollection = "library"\n'
    for provider, more in (("Postgres", ""), ("Vertex", table)):
        text = REFERENCE.format(provider=provider.lower()) + '[embedders.default]\nuse = "static"\n' + more
        router = ContextRouter.from_toml(write(tmp_path, text))
        (instance,) = router.instances.plugins("provider").values()
        assert type(instance).__name__ == provider


def test_every_problem_is_reported_at_once_with_file_line_and_the_right_name(tmp_path: Path):
    text = """[rag]
rrfk = 60
hybrid_fusion = "weigthed"
max_books = "five"

[provider.docs]
path = "x"

[connectors.notes]
use = "files"
pth = "notes"
"""
    found = problems(tmp_path, text)
    assert found[0].startswith("settings.toml:2: rag.rrfk: unknown key. Did you mean `rrf_k`? Known keys: ")
    assert (
        found[1]
        == "settings.toml:3: rag.hybrid_fusion: 'weigthed' is not allowed. Did you mean 'weighted'? Allowed"
        " values: 'scores', 'rrf', 'weighted'."
    )
    assert found[2].startswith("settings.toml:4: rag.max_books: expected `int`")
    assert found[3].startswith("settings.toml:6: provider: unknown table. Did you mean `providers`?")
    assert any(line.startswith("settings.toml:9: connectors.notes: key 'path' is missing") for line in found)
    assert any(
        line.startswith("settings.toml:11: connectors.notes.pth: unknown key. Did you mean `path`?")
        for line in found
    )


@pytest.mark.case("CFG-03")
def test_unknown_keys_in_plugin_tables_are_errors(tmp_path: Path):
    (found,) = problems(tmp_path, '[stages.freshness]\nhalflife_days = 3\n[rag]\nstages = ["freshness"]\n')
    assert found.startswith(
        "settings.toml:2: stages.freshness.halflife_days: unknown key. Did you mean `half_life_days`?"
    )


def test_an_unknown_use_names_the_nearest_and_all_there_are(tmp_path: Path):
    with pytest.raises(PluginNotFound) as caught:
        read(write(tmp_path, '[connectors.news]\nuse = "rsss"\n'))
    assert (
        "settings.toml:2: connectors.news.use: connector plugin 'rsss' is not registered. Did you mean `rss`?"
        in str(caught.value)
    )
    assert "rss" in caught.value.known


def test_a_table_that_names_its_plugin_by_another_key_is_told_the_key(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[providers.docs]\nplugin = "sqlite"\npath = "docs.db"\n')
    with pytest.raises(PluginNotFound, match=r"settings\.toml:1: providers\.docs: .*add use = \"sqlite\"\.$"):
        ContextRouter.from_toml(file)


@pytest.mark.parametrize("text", ["[rag]\nrrf_k = \n", "[rag\n", 'x = "a'])
def test_what_is_not_toml_is_reported_with_its_line(tmp_path: Path, text: str):
    (found,) = problems(tmp_path, text)
    assert found.startswith("settings.toml:")
    assert "not valid TOML" in found


def test_a_missing_file_says_how_to_make_one(tmp_path: Path):
    with pytest.raises(SettingsError, match="contextrouter init"):
        read(tmp_path / "none.toml")


def test_precedence_is_defaults_then_file_then_environment_then_call_and_every_origin_is_known(
    tmp_path: Path,
):
    path = write(tmp_path, "[rag]\nrrf_k = 1\nmax_books = 1\nmax_qa = 1\n")
    environ = {"CONTEXTROUTER_RAG__MAX_BOOKS": "2", "CONTEXTROUTER_RAG__MAX_QA": "2"}
    settings = read(path, environ, rag={"max_qa": 3})
    assert (settings.rag.rrf_k, settings.rag.max_books, settings.rag.max_qa, settings.rag.max_web) == (
        1,
        2,
        3,
        3,
    )
    assert settings.origins["rag.rrf_k"] == "settings.toml:2"
    assert settings.origins["rag.max_books"] == "environment variable CONTEXTROUTER_RAG__MAX_BOOKS"
    assert settings.origins["rag.max_qa"] == "call"
    assert "rag.max_web" not in settings.origins


def test_call_arguments_may_be_dotted():
    assert read({}, None, rag__rrf_k=7).rag.rrf_k == 7
    assert read({}, None, **{"rag.rrf_k": 8}).rag.rrf_k == 8


@pytest.mark.case("CFG-04")
def test_environment_variables_that_set_nothing_are_reported():
    settings = read({}, {"CONTEXTROUTER_RAG_RRF_K": "1", "OTHER": "x"})
    (warning,) = settings.warnings
    assert "CONTEXTROUTER_RAG_RRF_K sets nothing" in warning
    assert "CONTEXTROUTER_RAG__<KEY>" in warning
    assert settings.rag.rrf_k == 60


def test_a_misspelt_key_in_the_environment_is_an_error_that_names_the_variable():
    with pytest.raises(
        SettingsError,
        match=r"environment variable CONTEXTROUTER_RAG__RRFK: rag.rrfk: unknown key. Did you mean `rrf_k`",
    ):
        read({}, {"CONTEXTROUTER_RAG__RRFK": "1"})


@pytest.mark.case("CFG-05", "CFG-07")
def test_nested_tables_and_lists_can_be_set_from_the_environment(tmp_path: Path):
    path = write(tmp_path, "[rag]\nquotas = { paper = 1, other = 2 }\n[stages.freshness]\nweight = 0.2\n")
    environ = {
        "CONTEXTROUTER_RAG__QUOTAS__PAPER": "4",
        "CONTEXTROUTER_RAG__STAGES": '["freshness"]',
        "CONTEXTROUTER_STAGES__FRESHNESS__WEIGHT": "0.5",
        "CONTEXTROUTER_RAG__LEG_WEIGHTS": '{"text": 2}',
    }
    settings = read(path, environ)
    assert settings.rag.quotas == {"paper": 4, "other": 2}
    assert settings.rag.stages == ("freshness",)
    assert settings.stages["freshness"].options == {"weight": 0.5}
    assert settings.rag.leg_weights == {"text": 2.0}


@pytest.mark.parametrize(
    ("variable", "value", "limit"),
    [("", "2", 2), ("", "{ notes = 2 }", {"notes": 2}), ("__NOTES", "2", {"news": 1, "notes": 2})],
)
@pytest.mark.case("CFG-07")
def test_a_number_or_a_table_can_be_set_from_the_environment(
    tmp_path: Path, variable: str, value: str, limit: object
):
    connectors = "".join(f'[connectors.{name}]\nuse = "files"\npath = "x"\n' for name in ("news", "notes"))
    before = "max_per_source = { news = 1 }\n" if variable else ""
    path = write(tmp_path, f"[rag]\n{before}{connectors}")
    settings = read(path, {f"CONTEXTROUTER_RAG__MAX_PER_SOURCE{variable}": value})
    assert settings.rag.max_per_source == limit


@pytest.mark.parametrize("file", ["settings.toml", "contextrouter/cli/starter/settings.toml"])
async def test_neither_the_default_nor_a_file_to_begin_with_ranks_by_age(file: str):
    router = ContextRouter.from_toml(Path(__file__).parents[1] / file)
    assert router.settings.rag.stages == Rag().stages == ()
    assert [route.stages for route in router.settings.routes.values() if route.stages] == []


def test_a_number_in_a_text_setting_stays_a_text(tmp_path: Path):
    """A value from the environment may look like a number."""
    path = write(tmp_path, '[connectors.notes]\nuse = "files"\npath = "x"\n')
    assert (
        read(path, {"CONTEXTROUTER_CONNECTORS__NOTES__TENANT": "007"}).connectors["notes"].keys.tenant
        == "007"
    )


@pytest.mark.case("CFG-09")
def test_an_error_never_shows_the_value_of_a_secret(tmp_path: Path):
    (found,) = problems(
        tmp_path, '[embedders.e]\nuse = "openai"\nmodel = "m"\ndimensions = 3\napi_key = 12345678\n'
    )
    assert "api_key" in found
    assert "12345678" not in found


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path):
    (tmp_path / "key.txt").write_text("from-file\n")
    text = '[embedders.{n}]\nuse = "openai"\nmodel = "m"\ndimensions = 3\napi_key = "{v}"\n'
    path = write(tmp_path, text.format(n="a", v="${MY_VALUE}") + text.format(n="b", v="file:key.txt"))
    settings = read(path, {"MY_VALUE": "from-environment"})
    assert settings.embedders["a"].options["api_key"] == "from-environment"
    assert settings.embedders["b"].options["api_key"] == "from-file"
    assert set(settings.secrets) == {"from-environment", "from-file"}


def test_an_unset_variable_is_an_error_with_its_place(tmp_path: Path):
    """A dollar sign can be escaped."""
    (found,) = problems(tmp_path, '[connectors.n]\nuse = "files"\npath = "${NOT_SET}"\n')
    assert found.startswith("settings.toml:3: connectors.n.path: environment variable 'NOT_SET' is not set.")
    path = write(tmp_path, '[connectors.n]\nuse = "files"\npath = "a"\ntenant = "$$x"\n')
    assert read(path).connectors["n"].keys.tenant == "$x"


@pytest.mark.case("CFG-11")
def test_settings_name_registered_plugins_only(tmp_path: Path):
    (found,) = problems(tmp_path, '[connectors.x]\nuse = "os.system"\n')
    assert "'os.system' is not registered" in found


def test_paths_are_relative_to_the_settings_file(tmp_path: Path):
    path = write(tmp_path, '[connectors.notes]\nuse = "files"\npath = "notes"\n')
    assert read(path).connectors["notes"].options["path"] == str(tmp_path / "notes")


def test_impossible_combinations_are_errors_and_doubtful_ones_warnings(tmp_path: Path):
    (found,) = problems(
        tmp_path, '[rag]\nenable_fts = false\n[connectors.n]\nuse = "files"\npath = "x"\nlegs = ["text"]\n'
    )
    assert found.startswith("settings.toml:6: connectors.n.legs: legs = ['text'] leaves nothing to search")
    settings = read(write(tmp_path, "[stages.freshness]\n"))
    assert settings.warnings == ("stage 'freshness' is defined but does not run. List it in [rag] stages.",)


def test_source_names_are_unique_over_all_kinds(tmp_path: Path):
    text = '[providers.docs]\nuse = "memory"\n[connectors.docs]\nuse = "files"\npath = "x"\n'
    (found,) = problems(tmp_path, text)
    assert found.startswith(
        "settings.toml:3: connectors.docs: source name 'docs' is also used in [providers.docs]"
    )


def test_names_that_lists_use_must_exist(tmp_path: Path):
    text = """[rag]
stages = ["freshnes"]
[routes.x]
sources = ["docz"]
fallback = "y"
[ingest.j]
from = "."
to = "nowhere"
[providers.docs]
use = "memory"
"""
    found = problems(tmp_path, text.replace('stages = ["freshnes"]\n', ""))
    assert [line.split(": ")[1] for line in found] == ["routes.x.sources", "routes.x.fallback", "ingest.j.to"]
    (found_stage,) = problems(tmp_path, '[rag]\nstages = ["freshnes"]\n')
    assert found_stage.startswith(
        "settings.toml:2: rag.stages: 'freshnes' is no known stage. Did you mean 'freshness'?"
    )


def test_the_time_zone_must_exist(tmp_path: Path):
    (found,) = problems(tmp_path, '[rag]\ntimezone = "Mars/Olympus"\n')
    assert found.startswith("settings.toml:2: rag.timezone: 'Mars/Olympus' is not a time zone")


LINES = '''# [no] = 1
title = """
[not.a.table]
x = 1
"""
[a]
"quoted key" = 'v # no comment'
dotted . "k.ey" = { x = 1, y = [ # c
  2,
  { z = 3 } ] }
when = 2026-01-01 10:00:00
[[a.items]]
n = 1
[[a.items]]
n = 2
sub.k = 3
[b."c d".e]
f = [1, [2,
3]]
'''


def test_the_key_locator_knows_every_form_of_key():
    lines = locate(LINES)
    expected = {
        ("title",): 2,
        ("a",): 6,
        ("a", "quoted key"): 7,
        ("a", "dotted"): 8,
        ("a", "dotted", "k.ey", "x"): 8,
        ("a", "dotted", "k.ey", "y", 0): 9,
        ("a", "dotted", "k.ey", "y", 1, "z"): 10,
        ("a", "when"): 11,
        ("a", "items", 0, "n"): 13,
        ("a", "items", 1, "n"): 15,
        ("a", "items", 1, "sub", "k"): 16,
        ("b", "c d", "e", "f"): 18,
        ("b", "c d", "e", "f", 1, 1): 19,
    }
    assert {key: lines[key] for key in expected} == expected
    assert ("not",) not in lines
    assert ("x",) not in lines


_key = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
_value = st.recursive(
    st.one_of(
        st.integers(-9, 9),
        st.booleans(),
        st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_key, inner, max_size=3)),
    max_leaves=8,
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return str(value)


def _paths(value: object, at: tuple = ()) -> set[tuple]:
    found = {at} if at else set()
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        found |= _paths(inner, (*at, key))
    return found


@given(st.dictionaries(_key, _value, max_size=5))
def test_the_key_locator_finds_exactly_the_keys_the_parser_finds(tree: dict):
    text = "".join(f"# c\n{_toml(k)} = {_toml(v)}\n" for k, v in tree.items())
    assert tomli.loads(text) == tree
    lines = locate(text)
    assert set(lines) == _paths(tree)
    assert [lines[(k,)] for k in tree] == [2 * i + 2 for i in range(len(tree))]


@pytest.mark.case("CFG-12")
@pytest.mark.parametrize("name", ["PLUGINS__PATHS", "PLUGINS__PATHS__0", "plugins__paths"])
def test_the_environment_names_no_folder_of_code(tmp_path: Path, name: str):
    (tmp_path / "pwn.py").write_text("raise SystemExit('this module ran')")
    environ = {f"CONTEXTROUTER_{name}": f'["{tmp_path}"]', "CONTEXTROUTER_CONNECTORS__X__USE": "pwn"}
    found = problems(tmp_path, "[providers.m]\nuse = 'memory'\n", environ)
    assert any("plugins.paths may not come from the environment" in problem for problem in found)


@pytest.mark.case("CFG-12")
def test_no_variable_stands_in_the_folders_of_plugins(tmp_path: Path):
    found = problems(tmp_path, "[plugins]\npaths = ['${EVIL}']\n", {"EVIL": str(tmp_path)})
    assert found[0].startswith("settings.toml:2: plugins.paths")
    assert "plugins.paths may not come from the environment" in found[0]
    assert str(tmp_path) not in "".join(found).replace("settings.toml", "")


@pytest.mark.case("CFG-12")
def test_only_the_values_of_secrets_are_masked_in_an_error_of_settings(tmp_path: Path):
    text = '[generators.g]\nuse = "openai"\nmodel = "m"\napi_key = "${NO_SUCH_VAR}"\n'
    with pytest.raises(SettingsError) as caught:
        read(write(tmp_path, text))
    assert mask_error(caught.value) == (
        "settings.toml:4: generators.g.api_key: environment variable 'NO_SUCH_VAR' is not set. Set it, or write"
        " $$ for a dollar sign."
    )
    leaking = SettingsError([Problem("password=hunter22 is wrong", key="a.api_key", file="s.toml", line=1)])
    assert mask_error(leaking) == "s.toml:1: a.api_key: password=*** is wrong"
    assert mask_error(ValueError("api_key: abcdef"), ["zzzz"]) == "api_key: ***"
