"""Settings that would hang the program, exhaust its memory or flood the terminal: one short error each."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from support.example import CommandLine

from contextrouter import ContextRouter
from contextrouter.errors import SettingsError
from contextrouter.runtime import limited_file


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


GENERATOR = '[generators.g]\nuse = "openai"\nmodel = "m"\napi_key = "{}"\n'
HOSTILE = {
    "brackets": ("x = " + "[" * 100_000, "nested more than"),
    "closed_brackets": ("x = " + "[" * 300 + "]" * 300, "nest deeper than 64"),
    "tables_in_tables": ("[" + ".".join("a" * 500) + "]\n", "nest deeper than 64"),
    "a_key_of_many_parts": (".".join("a" * 100_000) + " = 1", "parts"),
    "a_long_number": ("[rag]\nrrf_k = " + "9" * 5_000, "digits"),
    "an_endless_secret": (GENERATOR.format("file:/dev/zero"), "longer than 65,536 bytes"),
    "a_secret_from_a_silent_pipe": (GENERATOR.format("file:pipe"), "nothing more came from it"),
    "unknown_keys": (
        "[rag]\n" + "".join(f"wrong_{n} = 1\n" for n in range(100_000)),
        "more than 99 problems; what follows was not read",
    ),
    "unknown_plugins": (
        "".join(f'[providers.p{n}]\nuse = "nothing"\n' for n in range(2_000)),
        "more than 99 problems; what follows was not read",
    ),
    "a_long_value": ('[rag]\ntimezone = "' + "x" * 1_000_000 + '"\n', "xxx …"),
    "a_long_key": ("[rag]\n" + "x" * 1_000_000 + " = 1\n", "rag.xxx"),
    "a_long_file": ("#" * 5_000_000, "longer than 4,000,000 bytes"),
}


@pytest.mark.case("OPS-07")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_settings_are_one_short_error(
    name: str, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limited_file, "SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    text, reason = HOSTILE[name]
    (tmp_path / "settings.toml").write_text(text)
    result = cli("settings", cwd=tmp_path)
    assert result.code == 2
    assert reason in " ".join(result.err.split())
    assert len(result.err) < 250_000
    assert "Traceback" not in result.err


@pytest.mark.case("OPS-07")
@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000, '{"a": ' * 5_000])
def test_a_hostile_environment_variable_is_text(value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CONTEXTROUTER_RAG__RRF_K", value)
    with pytest.raises(SettingsError, match=r"rag\.rrf_k") as caught:
        ContextRouter({"providers": {"memory": {}}})
    assert len(str(caught.value)) < 3_000


@pytest.mark.case("OPS-07")
def test_an_environment_variable_of_many_parts_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CONTEXTROUTER_RAG" + "__A" * 5_000, "1")
    with pytest.raises(SettingsError, match="nest deeper than 64"):
        ContextRouter({"providers": {"memory": {}}})


def test_settings_may_come_through_a_pipe(tmp_path: Path):
    read, write = os.pipe()
    os.write(write, b"[providers.memory]\n")
    os.close(write)
    try:
        assert list(ContextRouter.from_toml(f"/dev/fd/{read}").settings.providers) == ["memory"]
    finally:
        os.close(read)


def test_an_object_among_the_tables_of_a_program_is_an_unknown_key():
    with pytest.raises(SettingsError, match=r"providers\.memory\.x: unknown key"):
        ContextRouter({"providers": {"memory": {"documents": [], "x": threading.Lock()}}})
