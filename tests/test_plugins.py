"""Plugins: found by name, imported late, checked at the door; a broken one harms nobody who does not use
it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contextrouter import ContextRouter, ContractError, PluginError, PluginNotFound, SettingsError
from contextrouter.cli.plugins.new import write_package
from contextrouter.contracts import KINDS
from contextrouter.runtime.registry import Registry
from contextrouter.testing import Reversing

GOOD = """
from contextrouter import Connector, Document, Hit
class Echo(Connector):
    "Says what it is asked."
    def __init__(self, *, prefix: str = "", times: int = 1) -> None:
        self.prefix, self.times = prefix, times
    async def search(self, query):
        return [Hit(document=Document(id=str(i), content=self.prefix + query.text)) for i in range(self.times)]
"""


def plugins(folder: Path, **files: str) -> Registry:
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text)
    return Registry([folder])


async def test_a_module_in_plugins_paths_is_a_plugin_by_its_stem(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "echo.py").write_text(GOOD)
    (tmp_path / "settings.toml").write_text(
        '[plugins]\npaths = ["mine"]\n[connectors.echo]\nprefix = "> "\nqueries = 1\n'
    )
    async with ContextRouter.from_toml(tmp_path / "settings.toml") as router:
        context = await router.route("hello there")
    assert context.envelopes[0].document.content == "> hello there"


def test_a_misspelt_key_of_a_local_plugin_is_an_error_with_its_line(tmp_path: Path):
    plugins(tmp_path, echo=GOOD)
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.echo]\nprefx = "x"\n')
    with pytest.raises(
        SettingsError, match=r"settings.toml:4: connectors.echo.prefx: unknown key. Did you mean `prefix`\?"
    ):
        ContextRouter.from_toml(tmp_path / "settings.toml")


def test_a_broken_plugin_is_reported_by_name(tmp_path: Path):
    """It harms nobody who does not use it."""
    registry = plugins(tmp_path, echo=GOOD, broken="import nothing_of_this_name\n", empty="x = 1\n")
    assert registry.load("connector", "echo").__name__ == "Echo"
    with pytest.raises(PluginError, match=r"broken.py cannot be imported.*nothing_of_this_name"):
        registry.load("connector", "broken")
    listed = {line.name: line.problem for line in registry.list_plugins()}
    assert listed["echo"] == ""
    assert "nothing_of_this_name" in listed["broken"]
    assert "no plugin class" in listed["empty"]
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.echo]\n')
    ContextRouter.from_toml(tmp_path / "settings.toml")


def test_a_local_plugin_wins_over_an_entry_point_with_a_warning(tmp_path: Path):
    registry = plugins(tmp_path, files=GOOD)
    assert registry.load("connector", "files").__name__ == "Echo"
    assert "files" in registry.warnings[0]


@pytest.mark.parametrize(
    ("signature", "law"),
    [
        ("self, *, weight: float = 1.0", "router-owned keys"),
        ("self, *, prefix = ''", "typed keywords"),
        ("self, **options: str", "named keywords"),
        ("self, *, x: 'NoSuchType' = 1", "typed keywords"),
        ("self, *, x: 'int |' = 1", "typed keywords"),
        ("self, *, x: 'int.nope' = 1", "typed keywords"),
        ("self, *, x: 'list[1/0]' = 1", "typed keywords"),
    ],
)
def test_a_constructor_that_breaks_a_law_is_refused_at_registration(tmp_path: Path, signature: str, law: str):
    text = f"from contextrouter import Connector\nclass C(Connector):\n    def __init__({signature}): pass\n"
    text += "    async def search(self, query): return []\n"
    with pytest.raises(ContractError) as caught:
        plugins(tmp_path, bad=text).load("connector", "bad")
    assert caught.value.law == law


STAGE = """
from contextrouter import Stage
class Turned(Stage):
    switch = "{switch}"
    async def apply(self, envelopes, context): return list(envelopes)
"""


@pytest.mark.parametrize("switch", ["enable_rerankr", "rrf_k", "runs"])
def test_a_stage_whose_switch_is_no_key_of_rag_is_refused_at_registration(tmp_path: Path, switch: str):
    registry = plugins(tmp_path, turned=STAGE.format(switch=switch))
    with pytest.raises(ContractError) as caught:
        registry.load("stage", "turned")
    assert caught.value.law == "switch"
    message = f"stage plugin 'turned' has the switch '{switch}', which is no true-or-false key of [rag]."
    assert str(caught.value).startswith(message)
    assert ("Did you mean 'enable_reranker'?" in str(caught.value)) is (switch == "enable_rerankr")


@pytest.mark.parametrize("switch", ["", "use_enhancements", "enable_multidoc"])
def test_a_switch_is_a_key_of_rag_or_empty(tmp_path: Path, switch: str):
    assert plugins(tmp_path, turned=STAGE.format(switch=switch)).load("stage", "turned").switch == switch


def test_a_stage_made_by_hand_needs_a_switch_of_rag_too():
    class Turned(Reversing):
        switch = "enable_rerankr"

    with pytest.raises(
        ContractError, match=r"stage 'turned' has the switch .* Did you mean 'enable_reranker'"
    ):
        ContextRouter(stages={"turned": Turned()})


def test_one_plugin_class_per_kind_and_module(tmp_path: Path):
    with pytest.raises(ContractError, match="several connectors"):
        plugins(tmp_path, two=GOOD + GOOD.replace("Echo", "Other")).load("connector", "two")


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(PluginNotFound) as caught:
        Registry().load("stage", "nothing")
    assert "freshness" in caught.value.known
    assert "freshness" in str(caught.value)


def test_a_constructor_s_value_error_names_the_table_and_the_line_of_the_key(tmp_path: Path):
    (tmp_path / "settings.toml").write_text(
        '[rag]\nstages = ["freshness"]\n[stages.freshness]\nhalf_life_days = -1.0\n'
    )
    with pytest.raises(SettingsError, match=r"settings.toml:4: stages.freshness: half_life_days -1.0 is not"):
        ContextRouter.from_toml(tmp_path / "settings.toml")


@pytest.mark.parametrize(
    "failure", ["{}['size']", "open('/nowhere/at/all')", "import_sys()", "1 / 0", "unknown"]
)
def test_a_constructor_that_fails_in_any_way_names_the_plugin_and_its_line(tmp_path: Path, failure: str):
    text = GOOD.replace("self.prefix, self.times = prefix, times", failure)
    plugins(tmp_path, echo=f"def import_sys():\n    raise SystemExit(3)\n{text}")
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[connectors.mine]\nuse = "echo"\n')
    with pytest.raises(
        SettingsError,
        match=r"settings.toml:3: connectors.mine: connector plugin 'echo' cannot be made: [A-Z]\w+: ",
    ):
        ContextRouter.from_toml(tmp_path / "settings.toml")


def test_a_module_that_ends_the_program_is_a_broken_plugin(tmp_path: Path):
    registry = plugins(tmp_path, ends="import sys\nsys.exit(3)\n", echo=GOOD)
    with pytest.raises(PluginError, match=r"ends.py cannot be imported: SystemExit\(3\)"):
        registry.load("connector", "ends")
    assert {line.name for line in registry.list_plugins() if "SystemExit" in line.problem} == {"ends"}
    assert registry.has("connector", "echo")
    assert not registry.has("stage", "echo")
    assert not registry.has("connector", "nowhere")
    (tmp_path / "settings.toml").write_text('[plugins]\npaths = ["."]\n[rag]\nstages = ["ends"]\n')
    with pytest.raises(SettingsError, match=r"stages.ends: Plugin file ends.py cannot be imported"):
        ContextRouter.from_toml(tmp_path / "settings.toml")


def test_a_module_that_no_table_names_is_not_imported(tmp_path: Path):
    plugins(
        tmp_path, echo=GOOD, other="from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
    )
    (tmp_path / "settings.toml").write_text(
        '[plugins]\npaths = ["."]\n[rag]\nstages = ["freshness"]\n[connectors.echo]\n'
    )
    ContextRouter.from_toml(tmp_path / "settings.toml")
    assert not (tmp_path / "other.ran").exists()


def test_every_registered_plugin_loads_and_has_an_example():
    registry = Registry()
    tried = 0
    for kind in KINDS:
        for name in registry.entries(kind):
            cls = registry.load(kind, name)
            assert cls.__doc__, f"{kind} {name} has no docstring"
            assert isinstance(cls.example(), KINDS[kind])
            tried += 1
    assert tried >= 12


def test_nothing_is_imported_before_a_use_names_it():
    code = (
        "import sys\nfrom contextrouter.runtime.registry import Registry\nr ="
        " Registry()\nr.names('connector')\nprint([m for m in sys.modules if"
        " m.startswith('contextrouter.builtin')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plugin_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(SettingsError, match="does not exist"):
        Registry([tmp_path / "none"])


def test_two_plugin_files_of_one_name_are_a_warning_that_names_the_second(tmp_path: Path) -> None:
    """`plugins new` calls every file plugin.py: two packages in `[plugins] paths` would hide each other."""
    for name in ("one", "two"):
        write_package("connector", name, tmp_path / name)
    folders = [tmp_path / name / f"contextrouter_{name}" for name in ("one", "two")]
    registry = Registry([*folders, folders[0]])
    assert registry.load("connector", "plugin").__name__ == "One"
    (warning,) = registry.warnings
    assert warning.startswith(f"Plugin file '{folders[1] / 'plugin.py'}' is not used, because")
