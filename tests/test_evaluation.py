"""Evaluation: figures worked out by hand, files as somebody writes them, and choices that promise no more
than they keep.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.example import CommandLine, ingest_example

from contextrouter import ContextRouter, Document, Hit, Rag, Scope, SettingsError
from contextrouter.evaluation import (
    Asked,
    Judged,
    abstention,
    ask,
    compare,
    measure,
    picture,
    read,
    save,
    tune,
)
from contextrouter.evaluation.retrieval import OVERRIDES, name_of
from contextrouter.evaluation.tuning import Trial, collect
from contextrouter.pipeline import explanation
from contextrouter.testing import Fixed, Legs, Ones, doc, envelope, hits


def asked(ranked: str, relevant: dict[str, int], id: str = "q", **fields: Any) -> Asked:
    names = tuple(ranked.split())
    return Asked(
        question=Judged(id=id, question=id, relevant=relevant),
        ranked=names,
        sources=("s",) * len(names),
        **fields,
    )


# Figures.


@pytest.mark.case("B12")
def test_metrics_are_those_of_the_field():
    """a at rank 2 with grade 1, b at rank 3 with grade 2: DCG 1/log2(3) + 2/log2(4), ideal 2/log2(2) +
    1/log2(3).
    """
    values = measure([asked("x a b", {"a": 1, "b": 2, "c": 0}), asked("", {"a": 1}, "none")])
    gained, ideal = 1 / math.log2(3) + 2 / 2, 2 + 1 / math.log2(3)
    assert values["nDCG@10"] == {"q": pytest.approx(gained / ideal), "none": 0.0}
    assert values["RR"] == {"q": 0.5, "none": 0.0}
    assert values["AP"]["q"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert values["R@100"]["q"] == 1.0


def test_questions_that_rank_nothing_are_left_out_and_a_metric_must_be_one():
    without = Asked(question=Judged(id="n", question="n", answerable=False), ranked=("x",))
    assert measure([without, asked("a", {"a": 0})], ["RR"]) == {"RR": {}}
    with pytest.raises(SettingsError, match="'nDGC@10' is none that ir-measures knows"):
        measure([], ["nDGC@10"])


def test_a_difference_has_an_interval_and_a_chance():
    same = {str(n): 0.5 for n in range(40)}
    better = {id: 0.6 for id in same}
    found = compare(better, same)
    assert (found.mean, found.low, found.high) == tuple(pytest.approx(0.1) for _ in range(3))
    assert found.p < 0.01
    mixed = {id: 0.5 + (0.1 if int(id) % 2 else -0.1) for id in same}
    found = compare(mixed, same)
    assert found.low < 0 < found.high
    assert found.p > 0.5
    assert compare(same, same).p == 1.0
    assert compare({}, same).mean == 0.0


def test_abstention_is_right_without_an_answer_and_wrong_with_one():
    none = Judged(id="n", question="n", answerable=False)
    answers = [
        Asked(question=none, level="weak"),
        Asked(question=none, level="strong"),
        asked("a", {"a": 1}, level="none"),
        asked("a", {"a": 1}, level="strong"),
        asked("a", {"a": 1}, level="strong"),
    ]
    assert abstention(answers, "weak", "none") == (0.5, pytest.approx(1 / 3))
    assert abstention(answers[2:], "none") == (None, pytest.approx(1 / 3))


# Files.


def test_json_lines_and_trec_files_are_read(tmp_path: Path):
    lines = [
        {"question": "One?", "relevant": ["a", "b"], "kind": "k"},
        {
            "id": "two",
            "text": "Two?",
            "relevant": {"c": 2},
            "tenant": "t",
            "compartments": ["hr"],
            "ceiling": "internal",
        },
        {"question": "Three?", "answerable": False},
    ]
    (tmp_path / "j.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    one, two, three = read(str(tmp_path / "j.jsonl"))
    assert (one.id, one.relevant, one.kind, one.counts) == ("1", {"a": 1, "b": 1}, "k", True)
    assert two.scope == Scope(tenant="t", compartments=frozenset({"hr"}), ceiling="internal")
    assert (three.id, three.counts, three.answerable) == ("3", False, False)
    (tmp_path / "qrels").write_text("q1 0 a 1\nq1 0 b 0\n")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\n")
    (tmp_path / "queries.tsv").write_text("q1\tWhich one?\nq2\tAnother?\n")
    (tmp_path / "queries.jsonl").write_text('{"id": "q1", "text": "Which one?"}\n')
    for qrels, queries in (("qrels", "queries.tsv"), ("qrels.tsv", "queries.jsonl")):
        assert read(str(tmp_path / qrels), str(tmp_path / queries)) == [
            Judged(id="q1", question="Which one?", relevant={"a": 1, "b": 0})
        ]


@pytest.mark.parametrize(
    ("name", "text", "why_not"),
    [
        (
            "j.jsonl",
            '{"question": "q", "relevnt": []}\n[]\n',
            r"j\.jsonl:1: unknown keys \['relevnt'\](.|\n)*j\.jsonl:2: a line is an object",
        ),
        ("j.jsonl", '{"relevant": ["a"]}', "j.jsonl:1: `question` is missing"),
        ("j.jsonl", '{"id": "a", "question": "q"}\n{"id": "a", "question": "r"}', "has the id 'a' twice"),
        ("j.jsonl", "", "judges no question"),
        ("j.jsonl", '{"question": "q", "ceiling": "top"}', "j.jsonl:1: Scope.ceiling 'top'"),
        ("qrels", "q1 0 a 1", "name the file of queries"),
        ("none.jsonl", None, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, name: str, text: str | None, why_not: str
):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SettingsError, match=why_not):
        read(str(tmp_path / name))


def test_trec_judgements_without_their_question_are_refused(tmp_path: Path):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0\n")
    (tmp_path / "queries").write_text("q9\tx\n")
    with pytest.raises(SettingsError, match="qrels:2: a line is question, 0, document and grade"):
        read(str(tmp_path / "qrels"), str(tmp_path / "queries"))
    (tmp_path / "qrels").write_text("q1 0 a 1\n")
    with pytest.raises(SettingsError, match="has no question 'q1'"):
        read(str(tmp_path / "qrels"), str(tmp_path / "queries"))


def test_a_run_is_kept_in_trec_format_and_drawn(tmp_path: Path):
    save(tmp_path / "runs" / "a.run", [asked("a b", {"a": 1}, "my q")], "my tag")
    assert (
        tmp_path / "runs" / "a.run"
    ).read_text() == "my_q Q0 a 1 1.000000 my_tag\nmy_q Q0 b 2 0.500000 my_tag\n"
    picture(tmp_path / "p.png", {"one": {"RR": 0.5, "AP": 0.25}, "two": {"RR": 0.75, "AP": 0.5}})
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG\r\n")


# Asking.


def test_documents_are_named_as_the_judgements_name_them():
    chunk = Document(
        id="x#1", content="c", parent="job:guide.md", url="https://a.example/guide", title="Guide"
    )
    for name in ("x#1", "job:guide.md", "guide.md", "https://a.example/guide", "Guide"):
        assert name_of(chunk, {name}) == name
    assert name_of(chunk, {"other"}) == "x#1"


async def test_every_document_counts_once_and_a_failing_source_finds_nothing():
    chunks = [Hit(document=Document(id=f"d#{n}", content=str(n), parent="d")) for n in range(2)]
    judged = [Judged(id="q", question="q", relevant={"d": 1, "e": 1})]
    async with ContextRouter({"rag": OVERRIDES}, connectors={"docs": Fixed([*chunks, *hits("e")])}) as router:
        (answer,) = await ask(router, judged)
    assert (answer.ranked, answer.sources, answer.statuses) == (
        ("d", "e"),
        ("docs", "docs"),
        {"docs": {"ok": 1}},
    )
    broken = Fixed([])
    broken.search = lambda query: asyncio.sleep(0, 1 / 0)  # type: ignore[method-assign]  # this one fails
    async with ContextRouter({"rag": OVERRIDES}, connectors={"docs": broken}) as router:
        (answer,) = await ask(router, judged)
    assert (answer.ranked, answer.level, answer.statuses) == ((), "none", {"docs": {"error": 1}})


# Tuning.


async def tuned_of(legs: dict[str, list[Hit]], count: int, **rag: Any) -> Any:
    settings = {"rag": {**OVERRIDES, "interpreters": [], "general_retrieval_final_count": 1000, **rag}}
    judged = [Judged(id=str(n), question=f"q{n}", relevant={"good": 1}) for n in range(count)]
    made = ContextRouter(settings, providers={"docs": Legs(legs, embedder="e")}, embedders={"e": Ones()})
    async with made as router:
        return tune(router.settings.rag, await collect(router, judged), "RR")


def scored(names: str) -> list[Hit]:
    """Hits with the scores 1, 1/2, 1/3, …"""
    return hits(names, [1 / rank for rank in range(1, len(names.split()) + 1)])


async def test_tuning_finds_that_a_leg_misleads_and_checks_it_on_other_questions():
    """Text: good 1, x .5, y .33. Vector, weight .7: x 1, y .5. So good has 1 + .7 × .45, x 1.2 and y less:
    x + .7 leads with a weight of 1.
    """
    legs = {"text": scored("good x y"), "vector": scored("x y")}
    result = await tuned_of(legs, 12, leg_weights={"vector": 1.0})
    assert result.before == 0.5
    changed = {key: after for key, _, after in result.changes}
    assert changed["leg_weights"]["vector"] < 1.0
    assert result.gain.mean == pytest.approx(0.5)
    assert result.gain.low > 0


async def test_tuning_finds_a_mode():
    """By ranks good has 1/62 + 1/62, x 1/61. By scores x has 1, good .02: the text leg tells how far behind it is."""
    legs = {"text": hits("x good", [9.0, 0.2]), "vector": hits("y good", [0.9, 0.01])}
    result = await tuned_of(legs, 12)
    assert {key: after for key, _, after in result.changes} == {"hybrid_fusion": "rrf"}
    assert (result.before, result.gain.mean) == (1 / 3, pytest.approx(2 / 3))


async def test_tuning_keeps_what_is_as_good_and_promises_nothing_on_few_questions():
    result = await tuned_of({"text": scored("good x"), "vector": scored("good y")}, 12)
    assert (result.before, result.changes, result.gain.mean) == (1.0, (), 0.0)
    legs = {"text": scored("good x y"), "vector": scored("x y")}
    few = await tuned_of(legs, 9, leg_weights={"vector": 1.0})
    assert few.gain.mean == 0.0


async def test_the_cut_off_keeps_the_relevant_documents():
    """good: text .5, vector .33; (.5 + .7 × .33) ÷ 1.7 = .43."""
    result = await tuned_of({"text": scored("x good"), "vector": scored("x z good")}, 3)
    assert result.minimum == 0.43


# Commands.


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(ingest_example(tmp_path_factory.mktemp("example")))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.mark.case("B12")
def test_eval_measures_compares_keeps_and_draws(cli: CommandLine, example: Path):
    other = (example / "settings.toml").read_text().replace('legs = ["vector", "text", "keywords"]', "")
    (example / "text.toml").write_text(other.replace("enable_fts = true", "enable_fts = false"))
    ran = cli(
        "eval",
        "examples/questions.jsonl",
        "--settings",
        "settings.toml",
        "--settings",
        "text.toml",
        "--save",
        "runs",
        "--picture",
        "p.png",
        "--metric",
        "RR",
        "--depth",
        "5",
        cwd=example,
    )
    assert ran.code == 0, ran.err
    counted = "14 questions, 12 with relevant documents, 2 without an answer."
    for word in (counted, "text.toml against the first", "advice", "library", "below strong", "p99"):
        assert word in ran.out
    lines = (example / "runs" / "settings.run").read_text().splitlines()
    assert {len(line.split(" ")) for line in lines} == {6}
    assert (example / "p.png").stat().st_size > 1000
    told = json.loads(cli("eval", "examples/questions.jsonl", "--metric", "RR", "--json", cwd=example).out)[
        "settings.toml"
    ]
    assert 0.5 < told["means"]["RR"] <= 1.0
    assert told["kinds"]["book"]["questions"] == 6
    assert told["against_first"] is None


@pytest.mark.parametrize("depth", ["0", "-1"])
def test_eval_judges_at_least_one_document(cli: CommandLine, example: Path, depth: str):
    ran = cli("eval", "examples/questions.jsonl", "--depth", depth, cwd=example)
    assert ran.code == 2
    assert "--depth" in ran.err


@pytest.mark.case("B12")
def test_tune_prints_a_difference_of_settings_and_changes_nothing(cli: CommandLine, example: Path):
    before = (example / "settings.toml").read_text()
    ran = cli("tune", "examples/questions.jsonl", cwd=example)
    assert ran.code == 0, ran.err
    assert "over 12 questions as it is set" in ran.out
    assert ("Expected gain" in ran.out) or ("keep what is set" in ran.out)
    assert (example / "settings.toml").read_text() == before
    assert json.loads(cli("tune", "examples/questions.jsonl", "--json", cwd=example).out)["questions"] == 12


def test_eval_that_finds_nothing_relevant_exits_1(cli: CommandLine, example: Path):
    (example / "wrong.jsonl").write_text('{"question": "machine learning", "relevant": ["no such document"]}')
    assert cli("eval", "wrong.jsonl", cwd=example).code == 1
    assert cli("eval", "missing.jsonl", cwd=example).code == 2


# Why.


def test_why_above_names_scores_ranks_and_signals_for_and_against():
    one = envelope(doc("a"), 1, source="library").scored(0.0325, freshness=0.2)
    other = envelope(doc("b"), 4, source="library").scored(0.0161, freshness=0.9)
    said = "score 0.0325 against 0.0161; library default 1 against 4; in spite of freshness 0.2 against 0.9"
    assert explanation.explain_order(one, other) == said
    alone = envelope(doc("c"), 2, source="notes")
    assert explanation.explain_order(alone.scored(0.5), other.scored(0.5, rerank=1.0)) == (
        "score 0.5 against 0.5, a tie; notes default 2 against –; in spite of library default – against 4, "
        "freshness – against 0.9, rerank – against 1"
    )
    assert (
        explanation.explain_order(one.scored(0.1), one.scored(0.2)) == "in spite of its score 0.1 against 0.2"
    )


async def test_fusing_again_gives_the_order_of_the_router():
    """Another weight gives another order."""
    stores = {
        name: {
            "use": "memory",
            "documents": [{"id": f"{name}{n}", "content": text} for n, text in enumerate(texts)],
        }
        for name, texts in {
            "one": ["moon rock of the moon", "the tides of the sea", "rock"],
            "two": ["tides and the moon", "moon", "sea and sand"],
        }.items()
    }
    settings = {"rag": {**OVERRIDES, "general_retrieval_final_count": 1000}, "providers": stores}
    judged = [
        Judged(id=q, question=q, relevant={"one1": 1})
        for q in ("What are the tides of the moon?", "rock and sea", "moon")
    ]
    async with ContextRouter(settings) as router:
        answers = await ask(router, judged)
        cases = await collect(router, judged)
        rag = router.settings.rag

    def orders(rag: Rag) -> list[tuple[str, ...]]:
        return [tuple(e.document.id for e in case.fuse(rag).live) for case in cases]

    assert orders(rag) == [answer.ranked for answer in answers]
    assert orders(Rag(calibrate=False)) != orders(rag)
    assert Trial(rag, cases, "RR").several_sources
