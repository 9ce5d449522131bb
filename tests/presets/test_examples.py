"""What `contextrouter init --preset` writes works at once, offline, and knows what it does not cover."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from support.example import CommandLine
from support.presets import PRESETS, ingest, system

from contextrouter import ContextRouter
from contextrouter.settings.presets import preset_names

ASKED = tomllib.loads((Path(__file__).parent / "questions.toml").read_text("utf-8"))


def questions(preset: str) -> list[str]:
    return re.findall(r"^- (.+)$", (PRESETS / preset / "README.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("preset", preset_names())
def test_init_ingest_check_and_a_question_of_the_readme_work_in_a_row(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cli = CommandLine(monkeypatch, capsys)
    written = cli("init", "--preset", preset, ".", cwd=tmp_path)
    assert (written.code, f'contextrouter ask "{questions(preset)[0]}"' in written.out) == (0, True)
    assert (tmp_path / "settings.toml").read_text("utf-8").startswith(f"# contextrouter, preset `{preset}`")
    assert cli("ingest").code == 0
    checked = cli("check", "--json")
    assert (checked.code, {each["status"] for each in json.loads(checked.out)}) == (0, {"ok"})
    asked = cli("ask", questions(preset)[0], "--json")
    answer = json.loads(asked.out)
    assert (asked.code, len(answer["citations"]) > 0) == (0, True)
    again = cli("init", "--preset", preset, ".")
    assert (again.code, "exists and is not overwritten" in again.err) == (2, True)


def test_the_examples_of_good_answers_are_judged_questions_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cli = CommandLine(monkeypatch, capsys)
    assert [cli(*command.split(), cwd=tmp_path).code for command in ("init --preset packs .", "ingest")] == [
        0,
        0,
    ]
    measured = cli("eval", "eval/questions.jsonl", "--json")
    assert (measured.code, measured.err) == (0, "")
    assert "5 questions, 5 with relevant documents" in cli("eval", "eval/questions.jsonl").out


def test_a_preset_that_does_not_exist_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    refused = CommandLine(monkeypatch, capsys)("init", "--preset", "evidnce", str(tmp_path / "new"))
    assert refused.code == 2
    assert "preset 'evidnce' does not exist" in refused.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("preset", preset_names())
async def test_ten_questions_are_answered_and_ten_are_not_all_but_three(preset: str, tmp_path: Path):
    """The gate, or a writer that finds no passage, tells the ten questions of the README that its documents
    answer from the ten that they do not.
    """
    await ingest(tmp_path, preset)
    asked = questions(preset)
    async with system(tmp_path, preset, embedders={}) as router:
        wrong = await wrongly_told(router, asked[:10], asked[10:])
    assert (len(asked), len(wrong) <= 3) == (20, True), wrong
    assert not set(wrong) & set(asked[:10])  # the README says that these are answered


@pytest.mark.parametrize("preset", preset_names())
async def test_of_twenty_other_questions_of_people_three_at_most_are_taken_wrongly(
    preset: str, tmp_path: Path
):
    """`questions.toml` has words that the documents do not have, and subjects near theirs."""
    await ingest(tmp_path, preset)
    answered, outside = ASKED[preset]["answered"], ASKED[preset]["outside"]
    async with system(tmp_path, preset, embedders={}) as router:
        wrong = await wrongly_told(router, answered, outside)
    assert (len(answered), len(outside), len(wrong) <= 3) == (10, 10, True), wrong


async def wrongly_told(router: ContextRouter, answered: list[str], outside: list[str]) -> list[str]:
    """The questions that are not answered though they could be, or answered though they could not."""
    outcomes = {question: (await router.answer(question)).outcome for question in (*answered, *outside)}
    return [q for q, outcome in outcomes.items() if (outcome == "answered") != (q in answered)]


@pytest.mark.parametrize("question", ["What is photosynthesis?", "fractions", "Explain the discriminant"])
async def test_a_single_word_that_names_a_lesson_is_no_vague_question(question: str, tmp_path: Path):
    await ingest(tmp_path, "tutor")
    async with system(tmp_path, "tutor", embedders={}) as router:
        context = await router.route(question)
        assert context.clarification is None or context.clarification.reason != "vague"
        vague = await router.route("Can you help me? I want to learn something.")
    assert vague.clarification is not None
    assert vague.clarification.reason == "vague"
