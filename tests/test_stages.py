"""The built-in ranking stages; values are worked out by hand or taken from the systems they follow."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from contextrouter import ContextRouter, Document, Envelope, Hit, Provenance, Request, Scope, Stage
from contextrouter.builtin.stages.blend import Blend
from contextrouter.builtin.stages.centrality import Centrality
from contextrouter.builtin.stages.collapse import Collapse
from contextrouter.builtin.stages.diversity import Diversity
from contextrouter.builtin.stages.floor import Floor
from contextrouter.builtin.stages.gate import Gate
from contextrouter.builtin.stages.hydrate import Hydrate
from contextrouter.builtin.stages.neighbours import Neighbours
from contextrouter.builtin.stages.profile import Profile
from contextrouter.builtin.stages.quality import Quality
from contextrouter.testing import Fixed, Legs, doc, envelope, hit, hits, stage_context

ASKED = "What is entanglement?"


def apply(stage: Stage, envelopes: Sequence[Envelope], question: str = ASKED) -> Sequence[Envelope]:
    return asyncio.run(stage.apply(envelopes, stage_context(question)))


def live(envelopes: Sequence[Envelope]) -> list[str]:
    return [e.document.id for e in envelopes if e.dropped is None]


@pytest.mark.parametrize(
    ("words", "whole", "quality"),
    [
        (2, False, 0.0),
        (19, True, 0.0),
        (20, False, 0.26),
        (33, False, 0.299),
        (34, False, 0.302),
        (50, False, 0.35),
        (50, True, 0.55),
        (200, False, 0.80),
        (200, True, 1.0),
        (900, True, 1.0),
    ],
)
@pytest.mark.case("K28", "K29", "K30", "K31", "K32")
def test_quality_by_length_and_overlap(words: int, whole: bool, quality: float):
    text = ["ENTANGLEMENT,", "is", "what"] if whole else []
    assert Quality().quality(" ".join(text + ["x"] * (words - len(text))), ASKED) == pytest.approx(quality)


@pytest.mark.case("K31")
def test_part_of_the_question_gives_part_of_the_fifth():
    text = " ".join(["entanglement?", "is", *["x"] * 48])
    assert Quality().quality(text, ASKED) == pytest.approx(0.35 + 0.2 * 2 / 3)


@pytest.mark.case("C15")
def test_below_the_threshold_goes_and_says_so():
    short, good = envelope(doc("nav", "Home About Contact")), envelope(doc("good", "word " * 34))
    result = apply(Quality(), [short, good])
    assert live(result) == ["good"]
    assert result[0].dropped == "quality below 0.3: 0.00"


@pytest.mark.case("K33")
def test_where_nothing_would_be_left_all_stays():
    assert live(apply(Quality(), [envelope(doc("a", "x")), envelope(doc("b", "y"))])) == ["a", "b"]


def test_scripts_without_spaces_are_counted_by_pairs_of_characters():
    assert Quality().quality("量" * 100, "光") == pytest.approx(0.2 + 50 / 200 * 0.6)


@pytest.mark.case("C15")
def test_a_disclaimer_that_documents_share_is_no_content():
    disclaimer = "This is no advice " + "at all " * 20 + "."
    shared = [envelope(doc(name, f"{disclaimer} Short.")) for name in "ab"]
    good = envelope(doc("good", "word " * 40))
    assert live(apply(Quality(repeated=2), [*shared, good])) == ["good"]
    assert live(apply(Quality(), [*shared, good])) == ["a", "b", "good"]


def found(
    name: str, *, leg: str = "vector", score: float | None = None, normalized: float = 0.5, **fields: object
) -> Envelope:
    seal = Provenance(source="docs", leg=leg, query="q", rank=1, score=score, normalized=normalized)
    own = {key: fields.pop(key) for key in ("signals", "vector") if key in fields}
    made = Envelope(document=doc(name, **fields), provenance=(seal,), normalized=normalized, **own)  # type: ignore[arg-type]  # fields of many types
    return made.scored(0.5 if score is None else score)


@pytest.mark.parametrize(("best", "passes"), [(0.5, True), (0.4999, False)])
@pytest.mark.case("K11")
def test_exactly_the_threshold_passes(best: float, passes: bool):
    result = apply(Gate(), [found("a", score=0.1), found("b", score=best)])
    assert live(result) == (["a", "b"] if passes else [])


@pytest.mark.case("K12")
def test_the_gate_reads_raw_similarity_and_never_a_fused_score():
    result = apply(Gate(), [found("a", leg="text", score=12.0, normalized=1.0)])
    assert result[0].dropped == "gate: best similarity 0 is below 0.5"


@pytest.mark.case("T15")
def test_the_gate_reads_a_named_score():
    assert live(apply(Gate(threshold=0.35, reads="rerank"), [found("a", signals={"rerank": 0.35})])) == ["a"]
    assert live(apply(Gate(threshold=0.35, reads="rerank"), [found("a")])) == []


@pytest.mark.case("C41")
def test_the_floor_is_on_the_normalised_score_and_0_is_off():
    both = [found("a", normalized=0.3), found("b", normalized=0.299)]
    result = apply(Floor(), both)
    assert live(result) == ["a"]
    assert result[1].dropped == "floor: below 0.3 with 0.299"
    assert live(apply(Floor(minimum=0), both)) == ["a", "b"]


@pytest.mark.case("C19")
def test_blend_is_the_weighted_mean_and_what_is_missing_is_0():
    """0.6 × 0.9 ÷ 0.9 + 0.1 × 1 = 0.7; 0.3 × 7 ÷ 7 + 0.1 × 0.5 = 0.35."""
    one = found("one", score=0.9, signals={"freshness": 1.0})
    two = found("two", leg="text", score=7.0, signals={"freshness": 0.5})
    result = apply(Blend(), [two, one])
    assert [(e.document.id, round(e.score, 9)) for e in result] == [("one", 0.7), ("two", 0.35)]
    assert result[1].signals == {"freshness": 0.5, "vector": 0.0, "text": 1.0, "blend": pytest.approx(0.35)}


@pytest.mark.parametrize(
    ("scores", "values"),
    [
        ([0.8, 0.4, 0.2], [1.0, 0.5, 0.25]),
        ([0.5, 0.0, -0.5], [1.0, 0.5, 0.0]),
        ([-0.1, -0.2], [1.0, 0.0]),
        ([0.4, 0.4], [1.0, 1.0]),
        ([0.0, 0.0], [1.0, 1.0]),
        ([4.0, None, 1.0], [1.0, 6 / 7, 0.25]),
        ([None, None, None], [1.0, 6 / 7, 6 / 8]),
        ([math.nan, 4.0, math.inf], [1.0, 1.0, 6 / 8]),
        ([10**400, 4.0], [1.0, 1.0]),
        ([1.7e308, -1.7e308, 0.0], [1.0, 0.0, 0.5]),
    ],
)
@pytest.mark.case("C19")
def test_a_leg_s_scores_are_divided_by_the_highest_or_go_by_rank(
    scores: list[float | None], values: list[float]
):
    """The zero point is 0, or the lowest score where one is negative."""
    seals = [
        Provenance(source="docs", leg="vector", query="q", rank=rank, score=score, normalized=0.3)
        for rank, score in enumerate(scores, 1)
    ]
    given = [Envelope(document=doc(str(n)), provenance=(seal,)) for n, seal in enumerate(seals)]
    result = apply(Blend(weights={"vector": 1.0}), given)
    assert [e.signals["vector"] for e in sorted(result, key=lambda e: e.document.id)] == pytest.approx(values)


@pytest.mark.case("C19")
async def test_blend_normalises_over_all_sources_together():
    """Vector ÷ 0.9, text ÷ 12. a1: 0.6 + 0.3 × 3 ÷ 12; a2: 0.6 × 6 ÷ 9 + 0.3; b1: 0.6 × 3 ÷ 9;
    b2: 0.6 ÷ 2 + 0.3 × 4 ÷ 12. In its own lists b2 is the best of both legs.
    """
    a = Legs({"vector": hits("a1 a2", [0.9, 0.6]), "text": hits("a2 a1", [12.0, 3.0])})
    b = Legs({"vector": hits("b2 b1", [0.45, 0.3]), "text": hits("b2", [4.0])})
    rag = {"stages": ["blend"], "interpreters": []}
    async with ContextRouter({"rag": rag}, providers={"a": a, "b": b}) as router:
        context = await router.route("q")
    scores = {e.document.id: e.score for e in context.envelopes}
    assert list(scores) == ["a2", "a1", "b2", "b1"]
    assert list(scores.values()) == pytest.approx([0.7, 0.675, 0.4, 0.2])


@pytest.mark.case("C20")
def test_equal_within_a_hundredth_goes_by_trust_and_groups_begin_at_their_best():
    """0.500, 0.492, 0.484: the second ties with the first, the third with the second alone, which is not its
    group's best.
    """
    given = [
        found("a", normalized=0.5, trust="volatile"),
        found("b", normalized=0.492, trust="reference"),
        found("c", normalized=0.484, trust="authoritative"),
    ]
    assert live(apply(Blend(weights={"normalized": 1}), given)) == ["b", "a", "c"]
    assert live(apply(Blend(weights={"normalized": 1}, tie=0), given)) == ["a", "b", "c"]
    edge = [found("a", normalized=0.50, trust="volatile"), found("b", normalized=0.49, trust="authoritative")]
    assert live(apply(Blend(weights={"normalized": 1}), edge)) == ["b", "a"]


@pytest.mark.case("B11")
def test_diversity_puts_what_says_the_same_further_down():
    """Relevance 1, 0.9, 0: with one half, the twin has 0.45 − 0.5 = −0.05, the other 0 − 0 = 0."""
    given = [
        found("a", score=1.0, vector=[1.0, 0.0]),
        found("twin", score=0.9, vector=[1.0, 0.0]),
        found("other", score=0.0, vector=[0.0, 1.0]),
    ]
    result = apply(Diversity(relevance=0.5), given)
    assert live(result) == ["a", "other", "twin"]
    assert [e.signals["similar"] for e in result] == [0.0, 0.0, 1.0]
    assert live(apply(Diversity(relevance=1.0), given)) == ["a", "twin", "other"]


@pytest.mark.parametrize(
    "texts", [("the moon and the sea", "stars far away"), ("潮汐は月の引力による", "彗星は氷と塵")]
)
@pytest.mark.case("B11")
def test_without_vectors_texts_of_any_script_are_compared(texts: tuple[str, str]):
    given = [
        found(str(n), content=text, score=score)
        for n, (text, score) in enumerate(
            [(texts[0], 1.0), (texts[0], 0.9), (texts[1], 0.5), (texts[1], 0.0)]
        )
    ]
    assert live(apply(Diversity(relevance=0.5), given))[:2] == ["0", "2"]


@pytest.mark.parametrize(
    ("stage", "keys"),
    [
        (Quality, {"threshold": 1.1}),
        (Quality, {"minimum_words": -1}),
        (Quality, {"repeated": 1}),
        (Gate, {"reads": ""}),
        (Gate, {"threshold": float("nan")}),
        (Floor, {"minimum": -0.1}),
        (Blend, {"weights": {"text": 0.0}}),
        (Blend, {"weights": {}}),
        (Blend, {"weights": {"text": 1.0, "vector": -0.1}}),
        (Blend, {"tie": 2.0}),
        (Diversity, {"relevance": 1.5}),
        (Diversity, {"shingle": 0}),
        (Diversity, {"among": 0}),
        (Centrality, {"weight": -1.0}),
        (Centrality, {"k": -1.0}),
        (Centrality, {"mode": "sum"}),
        (Centrality, {"least_links": -1.0}),
        (Neighbours, {"of": 0}),
        (Neighbours, {"add": 7}),
        (Neighbours, {"most": 0}),
        (Hydrate, {"by": "url"}),
        (Profile, {"boosts": {"grade": -1.0}}),
        (Profile, {"tiers": {"a": float("inf")}}),
        (Profile, {"limits": {"a": -1}}),
        (Profile, {"asker_limits": {"a": -1}}),
        (Profile, {"asker_boosts": {"a": float("nan")}}),
        (Collapse, {"by": ""}),
        (Collapse, {"least": 1}),
    ],
)
def test_values_out_of_range_are_refused_by_name(stage: type[Stage], keys: dict[str, object]):
    with pytest.raises(ValueError, match=str(next(iter(keys)))):
        stage(**keys)


async def test_stages_run_from_settings_and_the_trace_names_what_they_dropped():
    documents = [
        {"id": "nav", "content": "Tides. Home."},
        {"id": "good", "content": "Tides " + "and more " * 20},
    ]
    settings = {
        "rag": {"stages": ["quality", "floor"]},
        "providers": {"docs": {"use": "memory", "documents": documents}},
        "stages": {"floor": {"minimum": 0.0}},
    }
    async with ContextRouter(settings) as router:
        context = await router.route("tides")
    assert live(context.envelopes) == ["good"]
    assert [e.dropped for e in context.trace.dropped] == ["quality below 0.3: 0.00"]


def linked(name: str, normalized: float, links: Sequence[str]) -> Envelope:
    return found(name, normalized=normalized, links=tuple(links))


def physics() -> list[Envelope]:
    """Nine links and one to it, against one link: degrees 10 and 1."""
    return [linked("Bohr", 0.9, ["Quantum"]), linked("Quantum", 0.8, [f"page {n}" for n in range(9)])]


@pytest.mark.case("K20")
def test_linear_centrality_promotes_the_hub():
    """0.6 × 0.8 + 0.4 × 1 = 0.88; 0.6 × 0.9 + 0.4 × 0.1 = 0.58."""
    result = apply(Centrality(mode="linear", weight=0.4), physics())
    assert [(e.document.id, round(e.score, 9)) for e in result] == [("Quantum", 0.88), ("Bohr", 0.58)]
    assert [e.signals["centrality"] for e in result] == [1.0, 0.1]


@pytest.mark.case("K19")
def test_rrf_of_similarity_and_centrality_does_not():
    """1/61 + 0.5/62 = 0.024458; 1/62 + 0.5/61 = 0.024326."""
    result = apply(Centrality(), physics())
    assert [(e.document.id, round(e.score, 6)) for e in result] == [("Bohr", 0.024458), ("Quantum", 0.024326)]


@pytest.mark.parametrize(("links", "on"), [(["x"], False), (["x", "y"], True)])
@pytest.mark.case("K21")
def test_fewer_than_two_links_a_document_switch_it_off(links: list[str], on: bool):
    result = apply(Centrality(), [linked("a", 0.5, links), linked("b", 0.4, links)])
    assert ["centrality" in e.signals for e in result] == [on, on]


def pupil(name: str, score: float, **metadata: object) -> Envelope:
    return found(name, score=score, metadata=metadata)


def profiled(stage: Profile, envelopes: Sequence[Envelope], **profile: object) -> Sequence[Envelope]:
    return asyncio.run(stage.apply(envelopes, stage_context("q", profile=profile)))


@pytest.mark.case("T07")
def test_metadata_that_agrees_with_the_profile_boosts_and_tiers_multiply():
    """Relevance 1 and 0.8: 1 × 1 = 1; 0.8 × (1 + 0.2 + 0.2) × 1.5 = 1.68."""
    stage = Profile(tiers={"gold": 1.5})
    given = [pupil("plain", 0.5, grade=8), pupil("fits", 0.4, grade=[8, 9], subject="Physics", tier="gold")]
    result = profiled(stage, given, grade="9", subject="physics")
    assert [(e.document.id, round(e.score, 9)) for e in result] == [("fits", 1.68), ("plain", 1.0)]
    assert [round(e.signals["profile"], 9) for e in result] == [2.1, 1.0]
    assert live(profiled(stage, given)) == ["fits", "plain"]  # 0.8 × 1.5 = 1.2, by the tier alone


@pytest.mark.case("T08")
def test_limits_per_tier_keep_the_best():
    given = [
        pupil("a", 0.9, tier="web"),
        pupil("b", 0.8),
        pupil("c", 0.7, tier="web"),
        pupil("d", 0.6, tier="web"),
    ]
    result = profiled(Profile(limits={"web": 1}), given)
    assert live(result) == ["a", "b"]
    assert result[2].dropped == "profile: limit of 1 for tier 'web'"


ASKERS = {"free": 0.5, "pro": 2.0}


@pytest.mark.parametrize(
    ("tier", "factor"), [("free", 1.2), ("PRO", 1.8), (["free", "pro"], 1.8), ("gold", 1.4), (None, 1.4)]
)
@pytest.mark.case("T07", "T08")
def test_boosts_are_weighed_by_the_tier_of_the_asker(tier: object, factor: float):
    """1 + 0.4 × 0.5, 1 + 0.4 × 2, and 1 + 0.4 for a tier that is not listed."""
    stage = Profile(asker_boosts=ASKERS)
    (result,) = profiled(stage, [pupil("a", 0.5, grade=8, subject="art")], grade=8, subject="Art", tier=tier)
    assert result.signals["profile"] == pytest.approx(factor)
    assert result.normalized == pytest.approx(factor / 2.0)  # the most: 1 + 2 × 0.5


@pytest.mark.parametrize(
    ("tier", "ids"),
    [
        ("free", ["a", "b"]),
        ("pro", ["a", "b", "d"]),
        (["free", "pro"], ["a", "b", "d"]),
        ("gold", ["a"]),
        (None, ["a"]),
    ],
)
@pytest.mark.case("T08")
async def test_the_tier_of_the_asker_limits_the_documents_of_the_answer(tier: object, ids: list[str]):
    """Behind the limit of one document of the tier `forum`, which c is over."""
    documents = [
        {"id": "a", "content": "tides tides tides", "metadata": {"tier": "forum"}},
        {"id": "b", "content": "tides tides moon"},
        {"id": "c", "content": "tides moon moon sand", "metadata": {"tier": "forum"}},
        {"id": "d", "content": "tides and a lot of other things such as sand and moon"},
    ]
    settings = {
        "rag": {"stages": ["profile"], "interpreters": []},
        "providers": {"docs": {"use": "memory", "documents": documents}},
        "stages": {"profile": {"limits": {"forum": 1}, "asker_limits": {"free": 2, "pro": 3, "other": 1}}},
    }
    async with ContextRouter(settings) as router:
        context = await router.route(Request(question="tides", profile={"tier": tier} if tier else {}))
    assert live(context.envelopes) == ids
    reasons = {e.document.id: e.dropped for e in context.trace.dropped}
    assert reasons["c"] == "profile: limit of 1 for tier 'forum'"
    if tier == "free":
        assert reasons["d"] == "profile: limit of 2 for this asker's tier"


def test_an_asker_without_a_limit_gets_all_and_a_limit_of_0_leaves_none():
    given = [pupil("a", 0.9), pupil("b", 0.8)]
    assert live(profiled(Profile(asker_limits={"free": 1}), given, tier="pro")) == ["a", "b"]
    assert live(profiled(Profile(asker_limits={"free": 0}), given, tier="free")) == []
    assert live(profiled(Profile(asker_limits={"free": 1}, asker_key="plan"), given, plan="Free ")) == ["a"]


class Web(Fixed):
    """A source whose documents link, and can be fetched by id."""

    def __init__(self, links: Sequence[Hit] = (), documents: Sequence[Document] = ()) -> None:
        super().__init__([])
        self.links, self.documents = links, {document.id: document for document in documents}
        self.asked: list[Sequence[str]] = []

    async def neighbours(self, ids: Sequence[str], limit: int, scope: Scope | None = None) -> Sequence[Hit]:
        self.asked.append(tuple(ids))
        return self.links[:limit]

    async def fetch(self, ids: Sequence[str], scope: Scope | None = None) -> Sequence[Document]:
        self.asked.append(tuple(ids))
        return [self.documents[each] for each in ids if each in self.documents]


@pytest.mark.case("K23", "K24", "K25", "K26")
async def test_neighbours_of_the_best_come_in_at_most_two_within_the_first_seven():
    given = [envelope(f"d{n}", n) for n in range(1, 9)]
    source = Web([hit("d3"), hit("n1"), hit("n2"), hit("n3")])
    result = await Neighbours().apply(given, stage_context(sources={"docs": source}))
    assert live(result) == ["d1", "d2", "d3", "d4", "d5", "n1", "n2", "d6", "d7", "d8"]
    assert source.asked == [("d1",)]
    assert result[5].signals == {"neighbour": 1.0}
    assert result[5].score == given[4].score


async def test_a_neighbour_outside_the_scope_stays_out_and_a_source_without_links_adds_nothing():
    given = [envelope("d1"), envelope("d2", 2)]
    source = Web([Hit(document=doc("secret", sensitivity="restricted")), hit("open")])
    result = await Neighbours().apply(given, stage_context(sources={"docs": source}, scope=Scope()))
    assert live(result) == ["d1", "d2", "open"]
    assert await Neighbours().apply(given, stage_context(sources={"docs": Fixed([])})) == given


async def test_neighbours_reach_the_assembled_context_of_a_router():
    class Linked(Web):
        async def search(self, query: object) -> Sequence[Hit]:
            return [hit("found")]

    settings = {"rag": {"stages": ["neighbours"]}}
    async with ContextRouter(
        settings, connectors={"docs": Linked([hit("linked", content="what it links to")])}
    ) as router:
        context = await router.route("q")
    assert "what it links to" in context.text


@pytest.mark.case("T10")
async def test_the_whole_text_is_fetched_last_from_another_store():
    given = [envelope(doc("a", "short", sensitivity="internal")), envelope(doc("b", "stays"), 2)]
    store = Web(documents=[doc("a", "the whole text", title="ignored", sensitivity="internal")])
    context = stage_context(sources={"docs": Fixed([]), "texts": store})
    result = await Hydrate(source="texts").apply(given, context)
    assert [e.document.content for e in result] == ["the whole text", "stays"]
    assert [e.document.title for e in result] == ["A", "B"]
    assert store.asked == [("a", "b")]
    with pytest.raises(ValueError, match="'docs' is no source that fetches"):
        await Hydrate(source="docs").apply(given, context)


async def test_a_whole_text_with_stricter_labels_or_out_of_scope_stays_out():
    given = [envelope(doc("a", "short", parent="p"))]
    for scope in (None, Scope()):
        store = Web(documents=[doc("p", "secret", sensitivity="restricted")])
        result = await Hydrate(by="parent").apply(given, stage_context(sources={"docs": store}, scope=scope))
        assert result[0].document.content == "short"
        assert store.asked == [("p",)]


def session(name: str, rank: int, of: str = "talk") -> Envelope:
    return envelope(doc(name, metadata={"session": of}), rank)


@pytest.mark.case("M26")
async def test_several_pieces_of_a_session_make_place_for_its_summary():
    given = [
        envelope("first"),
        session("a", 2),
        session("b", 3),
        session("other", 4, "else"),
        session("c", 5),
    ]
    source = Web(documents=[doc("sum-talk", "what was said")])
    stage = Collapse(by="session", prefix="sum-")
    result = await stage.apply(given, stage_context(sources={"docs": source}))
    assert live(result) == ["first", "sum-talk", "other"]
    assert (result[1].score, result[1].normalized, result[1].signals) == (
        given[1].score,
        given[1].normalized,
        {"collapsed": 3.0},
    )
    assert [(e.document.id, e.dropped) for e in result[3:]] == [
        (n, "collapse: 'sum-talk' stands for it") for n in "abc"
    ]
    assert source.asked == [("sum-talk",)]


@pytest.mark.case("M26")
async def test_a_summary_that_was_found_takes_the_best_place_of_its_pieces():
    given = [envelope(doc(n, parent="whole"), r) for r, n in enumerate("abc", 1)] + [
        envelope("x", 4),
        envelope("whole", 5),
    ]
    result = await Collapse().apply(given, stage_context(sources={"docs": Web()}))
    assert live(result) == ["whole", "x"]
    assert result[0].provenance is given[4].provenance
    assert result[0].score == given[0].score
    early = [given[4], *given[:4]]
    assert live(await Collapse().apply(early, stage_context(sources={"docs": Web()}))) == ["whole", "x"]


async def test_pieces_stay_where_they_are_few_or_there_is_no_summary_they_may_see():
    pieces = [session(n, r) for r, n in enumerate("abc", 1)]
    secret = Web(documents=[doc("talk", "secret", sensitivity="restricted")])
    context = stage_context(sources={"docs": secret}, scope=Scope())
    assert live(await Collapse(by="session").apply(pieces, context)) == ["a", "b", "c"]
    assert live(await Collapse(by="session", least=4).apply(pieces, stage_context())) == ["a", "b", "c"]
    assert live(await Collapse(by="session").apply(pieces, stage_context(sources={"docs": Fixed([])}))) == [
        "a",
        "b",
        "c",
    ]
    with pytest.raises(ValueError, match="'docs' is no source that fetches"):
        await Collapse(by="session", source="docs").apply(pieces, stage_context(sources={"docs": Fixed([])}))
