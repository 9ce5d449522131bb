"""`extends`: a preset between the defaults and a settings file, with the origin of every value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter import ContextRouter, SettingsError
from contextrouter.runtime.registry import Registry
from contextrouter.settings import Settings
from contextrouter.settings.loading import load
from contextrouter.settings.presets import preset_names, preset_text


def read(folder: Path, text: str, **overrides: object) -> Settings:
    path = folder / "settings.toml"
    path.write_text(text, "utf-8")
    return load(path, Registry, overrides=overrides, environ={})[0]


def line_of(preset: str, start: str) -> int:
    lines = preset_text(preset).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith(start))


FILE = """extends = "packs"
[rag]
candidates = 12
[stages.gate]
threshold = 0.4
"""


def test_a_file_lies_over_its_preset_key_by_key(tmp_path: Path):
    settings = read(tmp_path, FILE)
    assert (settings.rag.candidates, settings.rag.identity) == (12, "title")
    assert settings.stages["gate"].options == {"threshold": 0.4, "reads": "similarity"}
    assert read(tmp_path, FILE, rag={"candidates": 3}).rag.candidates == 3


def test_the_origin_of_a_value_is_the_default_or_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "settings.toml").write_text(FILE, "utf-8")
    cli = CommandLine(monkeypatch, capsys)
    shown = json.loads(cli("settings", "--json", cwd=tmp_path).out)
    origins = {value["key"]: value["origin"] for value in shown}
    assert origins["rag.candidates"] == "settings.toml:3"
    assert origins["stages.gate.threshold"] == "settings.toml:5"
    assert origins["stages.gate.reads"] == f"preset packs.toml:{line_of('packs', 'reads =')}"
    assert origins["rag.identity"] == f"preset packs.toml:{line_of('packs', 'identity =')}"
    assert origins["rag.levels"] == "default"


def test_paths_of_a_preset_begin_at_the_file_that_extends_it(tmp_path: Path):
    settings = read(tmp_path, 'extends = "packs"\n')
    assert settings.providers["pack"].options["path"] == str(tmp_path / "data" / "pack.db")
    assert settings.chat.examples == str(tmp_path / "eval" / "questions.jsonl")


def test_a_plugin_of_another_kind_takes_the_whole_place_of_the_preset_s(tmp_path: Path):
    settings = read(tmp_path, 'extends = "packs"\n[generators.writer]\nuse = "openai"\nmodel = "m"\n')
    assert (settings.generators["writer"].use, settings.generators["writer"].options) == (
        "openai",
        {"model": "m"},
    )
    text = 'extends = "packs"\n[providers.pack]\nuse = "memory"\n'
    assert read(tmp_path, text.replace('"memory"', '"sqlite"')).providers["pack"].options["path"]
    assert read(tmp_path, text.replace("extends", "extends")).providers["pack"].options == {}


def test_a_value_that_is_a_table_is_replaced_and_not_mixed(tmp_path: Path):
    settings = read(tmp_path, 'extends = "packs"\n[rag]\nleg_weights = { vector = 2.0 }\n')
    assert settings.rag.leg_weights == {"vector": 2.0}
    changed = read(tmp_path, 'extends = "packs"\n[rag]\nstages = ["gate"]\n')
    assert changed.rag.stages == ("gate",)
    assert changed.warnings == ()  # the preset's other stages are no mistake of the file


def test_a_mapping_of_tables_extends_a_preset_too():
    router = ContextRouter({"extends": "packs", "rag": {"candidates": 3}})
    assert (router.settings.rag.candidates, router.settings.rag.identity) == (3, "title")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'extends = "pakcs"\n',
            "settings.toml:1: extends: preset 'pakcs' does not exist. Did you mean 'packs'?",
        ),
        ("extends = 3\n", "settings.toml:1: extends: a text is expected: the name of a preset."),
        ('[rag]\nextends = "packs"\n', "settings.toml:2: rag.extends: the key stands above all tables"),
        ('extends = "packs"\n[rag]\ncandidates = "x"\n', "settings.toml:3: rag.candidates: expected `int`"),
        ('extends = "packs"\n[stages]\ngate = 3\n', "settings.toml:3: stages.gate: a table is expected"),
        ('extends = "packs"\nrag = 3\n', "settings.toml:2: rag: a table is expected"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, text: str, message: str):
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(message)


def test_a_problem_of_preset_and_file_is_said_at_the_preset_s_line(tmp_path: Path):
    text = 'extends = "packs"\n[providers.pack]\nuse = "memory"\nlegs = ["text"]\n'
    with pytest.raises(SettingsError, match=r"leaves nothing to search, because \[rag\] enable_fts = false"):
        read(tmp_path, text)


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_is_valid_as_it_is_and_warns_of_nothing(tmp_path: Path, preset: str):
    assert read(tmp_path, f'extends = "{preset}"\n').warnings == ()
    assert read(tmp_path, preset_text(preset)).warnings == ()


def alternatives(preset: str) -> list[str]:
    """The tables that stand commented out in a preset: what could be there in their place."""
    paragraphs = [paragraph.splitlines() for paragraph in preset_text(preset).split("\n\n")]
    starts = [next((n for n, line in enumerate(each) if line.startswith("# [")), -1) for each in paragraphs]
    return [
        "\n".join(line.removeprefix("# ") for line in lines[start:] if line.startswith("# "))
        for lines, start in zip(paragraphs, starts, strict=True)
        if start >= 0 and not lines[start].startswith("# [keys")
    ]


@pytest.mark.parametrize(
    ("preset", "text"), [(preset, text) for preset in preset_names() for text in alternatives(preset)]
)
def test_what_could_stand_in_a_preset_is_valid_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str, text: str
):
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    rag = '[rag]\nprovider = "pack"\n' if "[providers.facts]" in text else ""
    (tmp_path / "settings.toml").write_text(f'extends = "{preset}"\n{rag}{text}\n', "utf-8")
    ContextRouter.from_toml(tmp_path / "settings.toml")
