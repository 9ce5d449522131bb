"""The preset `packs`: the gate, links, linked articles and the quality of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.presets import fill, ids, ingest, note, piece, system

from contextrouter import Context
from contextrouter.builtin.stages import reranking_example
from contextrouter.contracts import Entry
from contextrouter.model import Fact

BARE = '[rag]\nstages = ["{}"]\n'
"""One stage alone, so that its scores can be worked out by hand."""


async def answer(
    folder: Path, entries: list[Entry], toml: str = "", question: str = "quantum entanglement", **request: Any
) -> Context:
    router = system(folder, "packs", toml)
    await fill(router, "pack", *entries)
    async with router:
        return await router.route(question, **request)


def scores(context: Context) -> dict[str, float]:
    return {e.document.id: round(e.score, 6) for e in context.envelopes}


def physics(*, dense: bool = True) -> list[Entry]:
    """Bohr and nine pages link to Quantum_mechanics: degrees 1 and 10. Dense: each page also links to the next
    two, 28 links of 11 articles; otherwise 10 of 11.
    """
    hub, pages = "Quantum_mechanics", [f"page{n}" for n in range(9)]
    return [
        piece("Bohr", cosine=0.9, links=(hub,)),
        piece(hub, cosine=0.8),
        *(
            piece(page, cosine=0.0, links=(hub, pages[(n + 1) % 9], pages[(n + 2) % 9]) if dense else (hub,))
            for n, page in enumerate(pages)
        ),
    ]


@pytest.mark.case("K04")
@pytest.mark.without(rag__identity="exact")
async def test_an_article_of_two_stores_is_one_by_its_title_with_the_best_similarity(tmp_path: Path):
    other = '[providers.other]\nuse = "sqlite"\npath = "data/other.db"\nlegs = ["vector"]\n'
    router = system(tmp_path, "packs", other)
    await fill(router, "pack", piece("a", "one text " * 40, cosine=0.7, title="Bohr"))
    await fill(router, "other", piece("b", "other text " * 40, cosine=0.9, title="Bohr"))
    async with router:
        (envelope,) = (await router.route("quantum")).envelopes
    assert sorted(round(seal.score or 0, 3) for seal in envelope.provenance) == [0.7, 0.9]


@pytest.mark.case("K09")
@pytest.mark.without(rag__general_retrieval_final_count=3)
async def test_ten_articles_come_back_and_a_limit_is_set_to_1_to_1000(tmp_path: Path):
    many = [piece(f"d{n:02}", cosine=0.9 - n / 100) for n in range(14)]
    toml = "[rag]\nenable_multidoc = false\n"
    assert len(ids(await answer(tmp_path, many, toml))) == 10
    assert len(ids(await answer(tmp_path, many, toml, limit=0))) == 1
    most = await answer(tmp_path, many, toml, limit=5000)
    assert len(ids(most)) == 14
    assert "1000" in " ".join(step.note for step in most.trace.steps)


@pytest.mark.case("K11")
@pytest.mark.without(stages__gate__threshold=0.51)
async def test_a_best_similarity_of_exactly_the_threshold_passes_and_less_does_not(tmp_path: Path):
    passes = await answer(tmp_path / "a", [piece("half", cosine=0.5)])
    assert (passes.outcome, ids(passes)) == ("answered", ["half"])
    below = await answer(tmp_path / "b", [piece("less", cosine=0.49)])
    assert (below.outcome, ids(below)) == ("confidence_gated_fallback", [])


@pytest.mark.case("K12")
@pytest.mark.without(rag__stages=["centrality", "neighbours", "quality"])
async def test_behind_the_gate_sources_entities_and_facts_are_empty(tmp_path: Path):
    fact = Fact(subject="Bohr", predicate="born in", object="Copenhagen")
    entries = [piece("Bohr", cosine=0.4, facts=[fact])]
    context = await answer(tmp_path, entries, question="Who is Bohr?")
    assert context.outcome == "confidence_gated_fallback"
    assert (context.envelopes, context.entities, context.facts) == ((), (), ())
    assert note(context, "gate") or context.trace.dropped[0].dropped == (
        "gate: best similarity 0.4 is below 0.5"
    )


@pytest.mark.case("K18")
@pytest.mark.without(stages__centrality__over="candidates")
async def test_centrality_counts_links_to_and_from_an_article_over_the_whole_pack(tmp_path: Path):
    toml = BARE.format("centrality") + "candidates = 2\n"
    context = await answer(tmp_path, physics(), toml)
    assert {e.document.id: e.signals.get("centrality") for e in context.envelopes} == {
        "Bohr": 0.1,
        "Quantum_mechanics": 1.0,
    }


@pytest.mark.case("K19")
@pytest.mark.without(stages__centrality__weight=0.0)
async def test_ranks_of_similarity_and_half_of_centrality_leave_the_order(tmp_path: Path):
    """1/61 + 0.5/62 = 0.024458 and 1/62 + 0.5/61 = 0.024326."""
    context = await answer(tmp_path, physics(), BARE.format("centrality") + "candidates = 2\n")
    assert list(scores(context).items()) == [("Bohr", 0.024458), ("Quantum_mechanics", 0.024326)]


LINEAR = '[stages.centrality]\nmode = "linear"\nreads = "similarity"\nweight = 0.4\n'


@pytest.mark.case("K20")
@pytest.mark.without(stages__centrality__weight=0.0)
async def test_the_linear_mode_promotes_the_hub(tmp_path: Path):
    """0.6 × 0.8 + 0.4 × 10/10 = 0.88 and 0.6 × 0.9 + 0.4 × 1/10 = 0.58."""
    context = await answer(tmp_path, physics(), BARE.format("centrality") + LINEAR)
    assert list(scores(context).items())[:2] == [("Quantum_mechanics", 0.88), ("Bohr", 0.58)]


@pytest.mark.case("K21")
@pytest.mark.without(stages__centrality__least_links=0.0)
async def test_with_fewer_than_two_links_an_article_centrality_is_off(tmp_path: Path):
    context = await answer(tmp_path, physics(dense=False), BARE.format("centrality") + LINEAR)
    assert ids(context)[:2] == ["Bohr", "Quantum_mechanics"]
    assert note(context, "centrality") == "off: 0.9 links per document in 'pack', fewer than 2"


def linked() -> list[Entry]:
    """The best article links to three others that no search finds; nine more are found."""
    return [
        piece("top", cosine=0.95, links=("n0", "n1", "n2")),
        *(piece(f"d{n}", cosine=0.9 - n / 100) for n in range(9)),
        *(piece(f"n{n}", cosine=-0.5) for n in range(3)),
    ]


@pytest.mark.case("K23")
@pytest.mark.without(rag__enable_multidoc=False)
async def test_neighbours_of_the_best_article_come_in_by_links_either_way(tmp_path: Path):
    back = [piece("top", cosine=0.9), piece("d0", cosine=0.8), piece("n0", cosine=-0.5, links=("top",))]
    toml = BARE.format("neighbours") + "candidates = 2\n"
    assert ids(await answer(tmp_path, back, toml)) == ["top", "d0", "n0"]


@pytest.mark.case("K24")
@pytest.mark.without(stages__neighbours__add=3)
async def test_at_most_two_neighbours_are_added(tmp_path: Path):
    context = await answer(tmp_path, linked())
    assert [id for id in ids(context) if id.startswith("n")] == ["n0", "n1"]


@pytest.mark.case("K25")
@pytest.mark.without(stages__neighbours__keep=10)
async def test_behind_the_expansion_there_are_seven_articles(tmp_path: Path):
    assert len(ids(await answer(tmp_path, linked()))) == 7


@pytest.mark.case("K26")
@pytest.mark.without(stages__neighbours__most=50)
async def test_the_neighbours_reach_the_assembled_text(tmp_path: Path):
    context = await answer(tmp_path, linked())
    assert "] n0 — pack" in context.text
    assert "] n1 — pack" in context.text


def text(words: int, question: str = "") -> str:
    return " ".join([*question.split(), *["word"] * words][:words])


async def quality(folder: Path, words: int, overlap: str = "") -> float:
    toml = BARE.format("quality") + "[stages.quality]\nthreshold = 0.0\n"
    context = await answer(folder, [piece("a", text(words, overlap), title="t")], toml)
    return round(context.envelopes[0].signals["quality"], 4)


@pytest.mark.case("K28")
@pytest.mark.without(stages__quality__minimum_words=0)
async def test_fewer_than_twenty_words_are_worth_nothing(tmp_path: Path):
    assert await quality(tmp_path, 2, "quantum entanglement") == 0.0
    assert await quality(tmp_path, 19) == 0.0


@pytest.mark.case("K29")
@pytest.mark.without("contextrouter/builtin/stages/quality.py", "min(0.8, 0.2 + ", "min(0.8, 0.3 + ")
@pytest.mark.parametrize(("words", "expected"), [(20, 0.26), (50, 0.35), (200, 0.8), (400, 0.8)])
async def test_length_alone_gives_at_most_four_fifths(tmp_path: Path, words: int, expected: float):
    assert await quality(tmp_path, words) == expected


@pytest.mark.case("K30")
@pytest.mark.without("contextrouter/builtin/stages/quality.py", "min(0.2, overlap * 0.2)", "0.0")
@pytest.mark.parametrize(("words", "expected"), [(50, 0.55), (200, 1.0)])
async def test_all_words_of_the_question_give_a_fifth(tmp_path: Path, words: int, expected: float):
    assert await quality(tmp_path, words, "quantum entanglement") == expected


@pytest.mark.case("K31")
@pytest.mark.without("contextrouter/builtin/stages/quality.py", "min(0.2, overlap * 0.2)", "0.2")
async def test_half_of_the_words_whatever_stands_behind_them_gives_a_tenth(tmp_path: Path):
    """Fifty words, of them one of two of the question: 0.35 + 0.2 / 2."""
    assert await quality(tmp_path, 50, "Entanglement?") == 0.45


@pytest.mark.case("K32")
@pytest.mark.without(stages__quality__threshold=0.25)
async def test_the_shortest_text_without_a_word_of_the_question_has_34_words(tmp_path: Path):
    """0.2 + 33/200 × 0.6 = 0.299, 0.2 + 34/200 × 0.6 = 0.302."""
    entries = [piece("short", text(33)), piece("long", text(34))]
    assert ids(await answer(tmp_path, entries)) == ["long"]


@pytest.mark.case("K33")
@pytest.mark.without(
    "contextrouter/builtin/stages/quality.py",
    'if not any(envelope.signals["quality"] >= self._threshold for envelope in rated):',
    "if False:",
)
async def test_where_every_text_is_thin_all_stay(tmp_path: Path):
    entries = [piece("a", "three short words"), piece("b", "three other words")]
    assert ids(await answer(tmp_path, entries)) == ["a", "b"]


def model(folder: Path) -> str:
    """Settings with a cross-encoder on this machine, which scores the share of the question's words."""
    (folder / "model").mkdir(exist_ok=True)
    reranking_example.write_model(folder / "model")
    return (
        "[rag]\nenable_cross_encoder = true\nenable_multidoc = false\n"
        '[stages.cross_encoder]\nhub = ""\nfile = "model.onnx"\npath = "model"\n'
    )


@pytest.mark.case("K10")
@pytest.mark.without(stages__cross_encoder__pool=1.0)
async def test_a_cross_encoder_chooses_ten_among_twenty(tmp_path: Path):
    many = [piece(f"d{n:02}", cosine=0.9 - n / 100) for n in range(30)]
    many[19] = piece("d19", "quantum entanglement " * 20, cosine=0.71)
    context = await answer(tmp_path, many, model(tmp_path))
    assert [report.count for report in context.coverage if report.leg == "vector"] == [20]
    assert (len(ids(context)), ids(context)[0]) == (10, "d19")


@pytest.mark.case("K15")
@pytest.mark.without(stages__cross_encoder__hub="some/other-model")
def test_the_cross_encoder_is_the_one_of_twelve_layers_and_is_off(tmp_path: Path):
    settings = system(tmp_path, "packs").settings
    assert settings.stages["cross_encoder"].options["hub"] == "Xenova/ms-marco-MiniLM-L-12-v2"
    assert settings.rag.enable_cross_encoder is False


@pytest.mark.case("K16")
@pytest.mark.without(stages__cross_encoder__on_error="raise")
async def test_a_cross_encoder_that_cannot_be_loaded_leaves_the_order(tmp_path: Path):
    toml = model(tmp_path)
    (tmp_path / "model" / "model.onnx").write_bytes(b"no model")
    many = [piece(f"d{n}", cosine=0.9 - n / 10) for n in range(3)]
    context = await answer(tmp_path, many, toml)
    assert ids(context) == ["d0", "d1", "d2"]
    assert "cannot load" in note(context, "cross_encoder")
    assert context.degraded


@pytest.mark.case("K17")
@pytest.mark.without(
    "contextrouter/builtin/stages/cross_encoder.py",
    "pool, (session, tokenizer) = self._get_model()",
    "self._loaded = self.load(); pool, (session, tokenizer) = self._get_model()",
)
async def test_the_cross_encoder_is_loaded_once_for_all_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from contextrouter.builtin.stages.cross_encoder import CrossEncoder

    loads, load = [], CrossEncoder.load
    monkeypatch.setattr(CrossEncoder, "load", lambda self: (loads.append(1), load(self))[1])
    router = system(tmp_path, "packs", model(tmp_path) + "[cache]\nembeddings = false\n")
    await fill(router, "pack", piece("a"))
    loads.clear()
    async with router:
        for question in ("one question", "another question"):
            assert (await router.route(question)).envelopes[0].signals
    assert len(loads) == 1


@pytest.mark.case("K39")
@pytest.mark.without(rag__use_enhancements=True)
async def test_without_enhancements_the_gate_and_the_quality_filter_stay(tmp_path: Path):
    toml = (
        model(tmp_path)
        .replace("[rag]\n", "[rag]\nuse_enhancements = false\n")
        .replace("multidoc = false", "multidoc = true")
    )
    thin = piece("thin", "three short words", cosine=0.99)
    context = await answer(tmp_path, [thin, *linked()], toml)
    assert [
        step.name
        for step in context.trace.steps
        if step.name in system(tmp_path, "packs").settings.rag.stages
    ] == ["gate", "quality"]
    assert context.trace.dropped[0].document.id == "thin"
    low = await answer(
        tmp_path / "low", [piece("less", cosine=0.4)], toml.replace('path = "model"', 'path = "../model"')
    )
    assert low.outcome == "confidence_gated_fallback"


@pytest.mark.case("K53")
@pytest.mark.without(facts__graph__hops=1)
async def test_facts_are_followed_over_two_hops_within_a_limit(tmp_path: Path):
    await ingest(tmp_path, "packs")
    async with system(tmp_path, "packs", embedders={}) as router:
        context = await router.route('Where was the "Fresnel lens" first used?')
    triples = [(fact.subject, fact.predicate, fact.object) for fact in context.facts]
    assert triples[0] == ("Fresnel lens", "first used in", "Cordouan lighthouse")
    assert ("Cordouan lighthouse", "stands in", "France") in triples  # Fresnel lens → Cordouan → France


@pytest.mark.case("K54")
@pytest.mark.without(ingest__facts__transforms=["chunk"])
async def test_an_entity_its_facts_and_the_path_between_two_are_found(tmp_path: Path):
    await ingest(tmp_path, "packs")
    async with system(tmp_path, "packs", embedders={}) as router:
        question = "How are Henry Winstanley and Hydraulic lime connected?"
        path = await router.route(question, legs=["path"])
        about = await router.route("What did John Smeaton build?", legs=["entities", "facts"])
    assert [(fact.subject, fact.object) for fact in path.facts][:3] == [
        ("Henry Winstanley", "Eddystone Lighthouse"),
        ("John Smeaton", "Eddystone Lighthouse"),
        ("John Smeaton", "hydraulic lime"),
    ]
    assert about.facts[0].object == "Eddystone Lighthouse"
    assert [entity.name for entity in about.entities] == ["John Smeaton"]
