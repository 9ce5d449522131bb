"""The preset `tutor`: languages, two stores with weights, the learner's profile, whole texts, asking back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.model_server import ModelServer
from support.presets import Plane, at, fill, ids, note, piece, system
from support.serving import ScriptedGenerator, serve_router

from contextrouter import Context, Document, RequestRefused
from contextrouter.contracts import Entry
from contextrouter.ingest import run
from contextrouter.pipeline.explanation import explain_order

QUESTION = "How do plants make sugar from sunlight?"
GERMAN = "Wie machen Pflanzen aus Sonnenlicht eigentlich Zucker?"
NO_PROFILE = '[rag]\nstages = ["gate", "full"]\n'


def model(server: ModelServer, more: str = "") -> str:
    return f'{more}\n[generators.writer]\nuse = "openai"\nmodel = "m"\nbase_url = "{server.url}"\n'


TRANSLATED = "[interpreters.translate]\nenabled = true\n"
JUDGED = "[stages.judge]\nenabled = true\n"


async def answer(
    folder: Path,
    meaning: Sequence[Entry] = (),
    words: Sequence[Entry] = (),
    toml: str = "",
    *,
    texts: Sequence[Entry] = (),
    question: str = QUESTION,
    **request: Any,
) -> Context:
    router = system(folder, "tutor", toml)
    for store, entries in (("meaning", meaning), ("words", words), ("texts", texts)):
        await fill(router, store, *entries)
    async with router:
        return await router.route(question, **request)


@pytest.mark.case("T01")
@pytest.mark.without(interpreters__language__languages=["en"])
async def test_the_language_of_a_question_is_one_of_those_listed_or_none(tmp_path: Path):
    router = system(tmp_path, "tutor")
    languages = [
        (await router.plan(text)).intent.language for text in (GERMAN, QUESTION, "E1234 Photosynthesis")
    ]
    await router.aclose()
    assert languages == ["de", "en", None]


@pytest.mark.case("T02")
@pytest.mark.without(interpreters__translate__corpus_language="de")
async def test_a_question_is_translated_only_if_its_language_is_not_the_lessons(tmp_path: Path):
    async with ModelServer({"text": QUESTION, "language": "de"}) as server:
        toml = model(server, TRANSLATED)
        context = await answer(tmp_path, [piece("a")], toml=toml, question=GERMAN)
        assert (context.intent.text, context.intent.queries[0]) == (QUESTION, GERMAN)
        assert len(server.requests) == 1
        await answer(tmp_path, [piece("a")], toml=toml, question=QUESTION)
        assert len(server.requests) == 1


@pytest.mark.case("T04")
@pytest.mark.without(rag__provider="words")
async def test_candidates_by_meaning_come_from_a_store_of_their_own(tmp_path: Path):
    context = await answer(tmp_path, [piece("m")], [piece("w", "plants and sugar")])
    seals = {
        (seal.source, seal.leg) for e in context.envelopes for seal in e.provenance if e.document.id == "m"
    }
    assert seals == {("meaning", "vector")}


@pytest.mark.case("T05")
@pytest.mark.without(rag__provider="meaning")
async def test_candidates_by_words_come_from_another_store(tmp_path: Path):
    context = await answer(tmp_path, [piece("m")], [piece("w", "plants and sugar")])
    seals = {
        (seal.source, seal.leg) for e in context.envelopes for seal in e.provenance if e.document.id == "w"
    }
    assert seals == {("words", "text")}


@pytest.mark.case("T06")
@pytest.mark.without(rag__leg_weights={"vector": 0.75, "text": 0.3})
async def test_a_top_hit_by_words_alone_stands_below_122_by_meaning(tmp_path: Path):
    """0.25/61 = 0.0040984; 0.75/182 = 0.0041209 at rank 122, and 0.75/183 = 0.0040984 at rank 123."""
    meaning = [piece(f"m{n:03}", cosine=0.99 - n / 1000) for n in range(130)]
    toml = NO_PROFILE + "candidates = 200\ngeneral_retrieval_final_count = 200\ntoken_budget = 0\n"
    context = await answer(tmp_path, meaning, [piece("w", "plants and sugar")], toml)
    assert ids(context)[:122] == [f"m{n:03}" for n in range(122)]
    by_id = {e.document.id: e for e in context.envelopes}
    assert ids(context).index("w") in (122, 123)
    assert round(by_id["w"].score, 6) == round(by_id["m122"].score, 6) == 0.004098
    assert explain_order(by_id["m121"], by_id["w"]) == (
        "score 0.004121 against 0.004098; meaning vector 122 against –; in spite of words text – against 1"
    )


def lesson(id: str, cosine: float = 0.9, **metadata: str) -> Entry:
    return piece(id, cosine=cosine, metadata=metadata)


LEARNER = {"grade": "7", "subject": "Biology", "major": "science"}


@pytest.mark.case("T07")
@pytest.mark.without(stages__profile__boosts={"subject": 0.0})
async def test_what_learner_and_lesson_share_boosts_and_a_tier_multiplies(tmp_path: Path):
    """Factors 1 + 0.2 + 0.2 + 0.1, 1 + 0.2, (1 + 0.2) × 1.2 and 1."""
    lessons = [
        lesson("plain", 0.9),
        lesson("grade", 0.89, grade="7"),
        lesson("core", 0.88, subject="biology", tier="core"),
        lesson("all", 0.87, grade="7", subject="biology", major="science"),
    ]
    context = await answer(tmp_path, lessons, profile=LEARNER)
    assert {e.document.id: round(e.signals["profile"], 6) for e in context.envelopes} == {
        "all": 1.5,
        "core": 1.44,
        "grade": 1.2,
        "plain": 1.0,
    }
    assert ids(context) == ["all", "core", "grade", "plain"]


@pytest.mark.case("T08")
@pytest.mark.without(stages__profile__asker_limits={}, stages__profile__limits={})
async def test_tiers_of_lessons_and_of_learners_limit_the_documents(tmp_path: Path):
    lessons = [lesson(f"f{n}", 0.9 - n / 100, tier="forum") for n in range(4)]
    lessons += [lesson(f"x{n}", 0.8 - n / 100) for n in range(4)]
    assert ids(await answer(tmp_path, lessons)) == ["f0", "f1", "x0", "x1", "x2"]
    assert ids(await answer(tmp_path, lessons, profile={"tier": "free"})) == ["f0", "f1", "x0"]


@pytest.mark.case("T09")
@pytest.mark.without(stages__judge__enabled=False)
async def test_a_language_model_puts_the_lessons_in_order_behind_the_boosts(tmp_path: Path):
    lessons = [lesson("a", 0.9), lesson("b", 0.8), lesson("c", 0.7, grade="7", subject="biology")]
    async with ModelServer({"ranking": [3, 1, 2]}) as server:
        context = await answer(tmp_path, lessons, toml=model(server, JUDGED), profile=LEARNER)
    (request,) = server.requests
    assert "\n[1] c:" in request["messages"][1]["content"]  # the boosted one is first
    assert ids(context) == ["b", "c", "a"]


@pytest.mark.case("T10")
@pytest.mark.without(stages__full__source="meaning")
async def test_the_whole_text_comes_last_from_a_third_store(tmp_path: Path):
    short, whole = piece("a", "only the beginning"), piece("a", "the beginning and all the rest")
    context = await answer(tmp_path, [short, piece("b")], toml="", texts=[whole])
    assert context.envelopes[0].document.content == "the beginning and all the rest"
    assert "and all the rest" in context.text
    assert note(context, "full") == "1 of 2 filled"


async def chat(folder: Path, writer: ScriptedGenerator, question: str) -> Any:
    """The answer of the server, in the words of a writer."""
    toml = '[chat]\nsynthesis_model = "said"\n'
    router = system(folder, "tutor", toml, generators={"said": writer})
    await fill(router, "meaning", piece("a"))
    body = {"model": "contextrouter", "messages": [{"role": "user", "content": question}]}
    async with serve_router(router) as ask:
        return (await ask("/v1/chat/completions", body)).json


@pytest.mark.case("T11")
@pytest.mark.without(chat__citation_prompt="Cite every statement.")
async def test_the_answer_is_asked_for_in_the_language_of_the_learner(tmp_path: Path):
    writer = ScriptedGenerator("Mit Licht [1].")
    await chat(tmp_path, writer, GERMAN)
    prompt = writer.seen[0]
    assert "Answer in the language of the question" in prompt[0]["content"]
    assert prompt[-1] == {"role": "user", "content": GERMAN}


@pytest.mark.case("T14")
@pytest.mark.without(chat__guard="note")
async def test_an_answer_without_citations_or_in_another_language_is_asked_for_once_more(tmp_path: Path):
    for text, check in (
        ("They use light.", "cited"),
        ("Die Pflanzen nutzen dazu das Licht [1].", "language"),
    ):
        writer = ScriptedGenerator(text)
        told = await chat(tmp_path, writer, QUESTION)
        assert len(writer.seen) == 2
        assert told["contextrouter"]["guard"][check] is False


@pytest.mark.case("T15")
@pytest.mark.without(interpreters__clarify__enabled=False)
async def test_a_vague_question_of_a_stranger_is_asked_back_a_learner_s_is_not(tmp_path: Path):
    context = await answer(tmp_path, [piece("a")], question="What is that?")
    assert context.clarification is not None
    assert (context.outcome, context.clarification.reason) == ("clarify", "vague")
    assert context.clarification.question == "What would you like to learn about? Please name the topic."
    known = await answer(tmp_path, [piece("a")], question="What is that?", profile=LEARNER)
    assert known.outcome == "answered"


@pytest.mark.case("T16")
@pytest.mark.without(stages__gate__threshold=0.3)
async def test_no_match_and_a_best_cosine_below_35_hundredths_ask_back(tmp_path: Path):
    nothing = await answer(tmp_path / "none")
    weak = await answer(tmp_path / "weak", [piece("a", cosine=0.34)])
    enough = await answer(tmp_path / "enough", [piece("a", cosine=0.35)])
    assert [c.clarification.reason for c in (nothing, weak) if c.clarification] == ["no_match", "weak"]
    assert [c.outcome for c in (nothing, weak, enough)] == ["clarify", "clarify", "answered"]


class Down(Plane):
    """An embedder whose server is down."""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]]:
        raise ConnectionError("no route to host")


@pytest.mark.case("T17")
@pytest.mark.without(stages__gate__unscored="drop")
async def test_with_one_store_down_the_other_answers_and_the_answer_says_so(tmp_path: Path):
    router = system(tmp_path, "tutor")
    for store in ("meaning", "words", "texts"):
        await fill(router, store, piece("w", "plants and sugar"))
    async with system(tmp_path, "tutor", embedders={"default": Down()}) as router:
        context = await router.route(QUESTION)
    assert (ids(context), context.outcome, context.degraded) == (["w"], "answered", True)
    (tmp_path / "data" / "words.db").unlink()
    async with system(tmp_path, "tutor") as router:
        other = await router.route(QUESTION)
    assert (ids(other), other.outcome, other.degraded) == (["w"], "answered", True)


QUOTA = '''
from contextrouter import Interpreter, RequestRefused


class Quota(Interpreter):
    """Refuses a learner whose quota is used up."""

    async def interpret(self, intent, context):
        if context.request.profile.get("left") == 0:
            raise RequestRefused("The quota of today is used up.", retry_after=60)
        return intent
'''


@pytest.mark.case("T18")
@pytest.mark.without(rag__interpreters=["language", "clarify"])
async def test_a_check_of_ones_own_refuses_before_any_search(tmp_path: Path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "quota.py").write_text(QUOTA, "utf-8")
    toml = '[plugins]\npaths = ["plugins"]\n[rag]\ninterpreters = ["quota", "language", "clarify"]\n'
    assert ids(await answer(tmp_path, [piece("a")], toml=toml, profile={"left": 1})) == ["a"]
    with pytest.raises(RequestRefused, match="quota of today is used up"):
        await answer(tmp_path, [piece("a")], toml=toml, profile={"left": 0})


@pytest.mark.case("T19")
@pytest.mark.without(ingest__meaning__transforms=["chunk"])
async def test_a_lesson_in_another_language_is_kept_in_english_with_its_original(tmp_path: Path):
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    original = "Pflanzen machen aus Wasser und Luft mit dem Licht der Sonne ihren eigenen Zucker."
    (lessons / "zucker.md").write_text(original, "utf-8")
    english = "Plants make their own sugar from water and air with the light of the sun."
    async with ModelServer(english) as server:
        toml = model(server)
        async with system(tmp_path, "tutor", toml, embedders={}) as router:
            await run(router)
    async with system(tmp_path, "tutor", embedders={}) as router:
        document: Document = (await router.route(QUESTION)).envelopes[0].document
    assert english in document.content
    assert (document.metadata["original"], document.metadata["original_language"]) == (original, "de")


@pytest.mark.case("T20")
@pytest.mark.without(cache__tier="memory")
async def test_the_order_of_the_model_is_shared_between_processes(tmp_path: Path):
    """Two routers with a cache on the disk: the model is asked once."""
    lessons = [lesson("a", 0.9), lesson("b", 0.8)]
    async with ModelServer({"ranking": [2, 1]}) as server:
        toml = model(server, JUDGED + '[cache]\ntier = "disk"\npath = "cache"\n')
        first = await answer(tmp_path, lessons, toml=toml)
        other = toml + "[chat]\nmax_query_chars = 400\n"  # another router: its whole answers are not shared
        second = await answer(tmp_path, toml=other)
    assert ids(first) == ids(second) == ["b", "a"]
    assert not second.cached
    assert len(server.requests) == 1


def test_the_hand_made_vectors_have_their_cosine():
    assert at(0.35)[0] == 0.35
