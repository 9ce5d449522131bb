"""Fusion by ranks and weighted scores: hand-worked values, and a total order that nothing but evidence
decides.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engines import profiles_of

from contextrouter import Document, Hit, Rag, RankedList
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fusion import NO_WEIGHT, fuse
from contextrouter.pipeline.fusion.leg_weights import Profile
from contextrouter.pipeline.fusion.source_order import Queries
from contextrouter.testing import hits, ranked

RRF = Rag(hybrid_fusion="rrf")


def fused(lists: list[RankedList], **rag: object) -> list[tuple[str, float]]:
    settings = Rag(**{"hybrid_fusion": "rrf", **rag})  # type: ignore[arg-type]  # settings of many types
    return [(e.document.id, e.score) for e in fuse(dedupe(lists), settings) if e.dropped is None]


def order(lists: list[RankedList], **rag: object) -> str:
    return "".join(name for name, _ in fused(lists, **rag))


@pytest.mark.case("R08")
def test_rrf_is_the_sum_of_weight_over_k_plus_rank():
    lists = [ranked("s", "a b c", leg="vector"), ranked("s", "c a", leg="text")]
    assert fused(lists) == [
        ("a", pytest.approx(1 / 61 + 1 / 62)),
        ("c", pytest.approx(1 / 63 + 1 / 61)),
        ("b", pytest.approx(1 / 62)),
    ]
    assert fused(lists, rrf_k=1)[0] == ("a", pytest.approx(1 / 2 + 1 / 3))


@pytest.mark.case("R09")
def test_weighted_is_the_sum_of_weight_times_scaled_score():
    lists = [ranked("s", "a b c", [10.0, 6.0, 2.0], leg="vector"), ranked("s", "c b", [0.9, 0.1], leg="text")]
    # vector: a 1, b .5, c 0; text: c 1, b 0
    assert fused(lists, hybrid_fusion="weighted") == [
        ("a", pytest.approx(0.7)),
        ("b", pytest.approx(0.35)),
        ("c", pytest.approx(0.3)),
    ]
    assert order(lists, hybrid_fusion="weighted", hybrid_vector_weight=0.2, hybrid_text_weight=0.8) == "cab"


@pytest.mark.case("R11")
def test_two_levels_rank_each_source_first_and_then_the_sources():
    lists = [ranked("s", "a b", leg="vector"), ranked("s", "b", leg="text"), ranked("t", "c b")]
    # in s: b = 1/62 + 1/61 leads, a = 1/61 follows; across: b 1/61 + 1/62, c 1/61, a 1/62
    assert fused(lists) == [
        ("b", pytest.approx(1 / 61 + 1 / 62)),
        ("c", pytest.approx(1 / 61)),
        ("a", pytest.approx(1 / 62)),
    ]


def test_levels_1_fuses_all_lists_flat():
    lists = [ranked("s", "a b", leg="vector"), ranked("s", "b", leg="text"), ranked("t", "c b")]
    assert fused(lists, levels=1)[0] == ("b", pytest.approx(1 / 62 + 1 / 61 + 1 / 62))


def test_two_levels_weigh_a_source_once_however_many_lists_it_has():
    many = [ranked("s", "a", leg=f"leg{i}") for i in range(5)]
    one = [ranked("t", "b")]
    scores = dict(fused([*many, *one]))
    assert scores["a"] == scores["b"] == pytest.approx(1 / 61)
    flat = dict(fused([*many, *one], levels=1))
    assert flat["a"] == pytest.approx(5 / 61)


def test_a_leg_shares_its_weight_among_its_queries():
    lists = [ranked("s", "a", leg="vector", query=q) for q in ("q1", "q2")] + [ranked("s", "b", leg="text")]
    scores = dict(fused(lists))
    assert scores["a"] == pytest.approx(0.5 / 61 + 0.5 / 61)
    assert scores["b"] == pytest.approx(1 / 61)


def test_a_query_that_finds_nothing_has_its_share_of_the_leg_s_weight():
    lists = [
        ranked("s", "a", leg="text", query="q1"),
        *(ranked("s", "", leg="text", query=q) for q in ("q2", "q3")),
    ]
    lists += [ranked("s", name, leg="vector", query=q) for name, q in (("b", "q1"), ("c", "q2"), ("d", "q3"))]
    assert dict(fused(lists)) == dict.fromkeys("abcd", pytest.approx(1 / 3 / 61))
    empty = ranked("t", "", leg="text")
    assert fused([*lists, empty]) == fused(lists)  # a source that found nothing has no part


@pytest.mark.parametrize(("length", "both_win"), [(61, True), (62, False), (63, False)])
@pytest.mark.case("C13")
def test_in_both_lists_outranks_first_in_one_only_up_to_61_deep(length: int, both_win: bool):
    """Last in two lists gives 2/(60+n); first in one gives 1/61. Equal at n = 62, where the better rank
    leads.
    """
    one = [f"x{i}" for i in range(length - 1)] + ["both"]
    other = [f"y{i}" for i in range(length - 1)] + ["both"]
    ranking = [name for name, _ in fused([ranked("s", one, leg="vector"), ranked("s", other, leg="text")])]
    scores = dict(fused([ranked("s", one, leg="vector"), ranked("s", other, leg="text")]))
    assert scores["both"] == pytest.approx(2 / (60 + length))
    assert (ranking[0] == "both") is both_win


@pytest.mark.case("K19")
def test_both_numbers_of_the_worked_example():
    """1/(k+v) + 0.5/(k+c): the example's two documents give 0.024458 and 0.024326, and keep their order."""
    vector = ["first", "second"]
    centrality = ["second", "first"]
    scores = dict(
        fused(
            [ranked("s", vector, leg="vector"), ranked("s", centrality, leg="centrality")],
            leg_weights={"centrality": 0.5},
        )
    )
    assert scores["first"] == pytest.approx(1 / 61 + 0.5 / 62)
    assert round(scores["first"], 6) == 0.024458
    assert scores["second"] == pytest.approx(1 / 62 + 0.5 / 61)
    assert round(scores["second"], 6) == 0.024326


@pytest.mark.case("T06")
def test_weighted_rrf_puts_a_lexical_top_hit_below_semantic_ones():
    """With weights 0.75 and 0.25 this holds down to rank 122."""
    semantic = [f"v{i}" for i in range(1, 124)]
    lists = [ranked("s", semantic, leg="vector"), ranked("s", ["only"], leg="text")]
    ranking = [name for name, _ in fused(lists, leg_weights={"vector": 0.75, "text": 0.25})]
    # .25/61 = .75/183 = .75/(60+123): equal to rank 123, where the better rank leads
    assert ranking.index("only") == 122


def test_source_weights_act_at_level_2():
    lists = [ranked("s", "a", weight=1.0), ranked("t", "b", weight=3.0)]
    assert fused(lists) == [("b", pytest.approx(3 / 61)), ("a", pytest.approx(1 / 61))]


def test_leg_weights_by_source_and_leg_beat_those_by_leg():
    """Both beat the weights of the profile."""
    lists = [ranked("s", "a", leg="vector"), ranked("s", "b", leg="text")]
    profiles = profiles_of(s=Profile(rank_weights={"vector": 0.4}))
    for weights, weight in (({}, 0.4), ({"vector": 2.0}, 2.0), ({"vector": 2.0, "s.vector": 3.0}, 3.0)):
        rag = Rag(hybrid_fusion="rrf", leg_weights=weights)
        scores = {e.document.id: e.score for e in fuse(dedupe(lists), rag, profiles=profiles)}
        assert scores["a"] == pytest.approx(weight / 61)


@pytest.mark.case("B02")
def test_a_list_of_weight_0_has_no_influence():
    lists = [ranked("s", "a b", leg="text"), ranked("s", "b c", leg="vector")]
    result = fuse(dedupe(lists), Rag(hybrid_fusion="rrf", leg_weights={"vector": 0.0}))
    assert [(e.document.id, e.score) for e in result if e.dropped is None] == fused(lists[:1])
    assert [(e.document.id, e.dropped) for e in result if e.dropped] == [("c", NO_WEIGHT)]


@pytest.mark.case("FUS-18")
def test_hits_without_a_score_take_part_in_weighted_fusion_by_rank():
    lists = [ranked("s", "a b", [0.9, 0.1], leg="vector"), ranked("s", "c d", leg="text")]
    assert dict(fused(lists, hybrid_fusion="weighted"))["c"] == pytest.approx(0.3)
    assert dict(fused(lists, hybrid_fusion="weighted"))["d"] == pytest.approx(0.15)


@pytest.mark.case("FUS-21")
def test_a_score_of_0_is_not_absence():
    """b is measured 0.0 and its list counts in what it could have reached; c is absent from that list, which
    does not.
    """
    lists = [ranked("s", "a b", [1.0, 0.0]), ranked("t", "c", [1.0])]
    result = {e.document.id: e for e in fuse(dedupe(lists), Rag(hybrid_fusion="weighted"))}
    assert result["b"].normalized == 0.0
    assert result["b"].dropped is None
    assert [p.score for p in result["b"].provenance] == [0.0]
    assert [p.source for p in result["c"].provenance] == ["t"]


@pytest.mark.case("FUS-23")
def test_raw_scores_and_ranks_stand_beside_the_fused_score():
    (envelope,) = fuse(dedupe([ranked("s", "a", [0.0164])]), RRF)
    assert (envelope.provenance[0].score, envelope.provenance[0].rank, envelope.score) == (
        0.0164,
        1,
        pytest.approx(1 / 61),
    )


@pytest.mark.case("FUS-12")
def test_equal_scores_keep_the_source_s_order():
    """Ruled by design: the order of hits is their rank. What ties after level 1 shares a rank at level 2."""
    lists = [ranked("s", "a b", leg="vector"), ranked("s", "b a", leg="text"), ranked("t", "z")]
    scores = dict(fused(lists))
    assert scores["a"] == scores["b"] == pytest.approx(1 / 61)


@pytest.mark.case("B03")
def test_normalized_is_the_score_over_the_most_the_returning_sources_could_give():
    lists = [ranked("s", "a b", leg="vector"), ranked("s", "a", leg="text"), ranked("t", "b c")]
    result = {e.document.id: e for e in fuse(dedupe(lists), RRF)}
    assert result["a"].normalized == pytest.approx(1.0)  # first in s, and t did not return it
    assert result["b"].normalized == pytest.approx((1 / 62 + 1 / 61) / (2 / 61))
    assert result["c"].normalized == pytest.approx(61 / 62)


def test_ties_are_broken_by_best_rank_then_source_order_then_name_of_the_list():
    lists = [ranked("t", "a"), ranked("s", "b")]
    t_first = profiles_of(t=Profile(0), s=Profile(1))
    s_first = profiles_of(s=Profile(0), t=Profile(1))
    assert [e.document.id for e in fuse(dedupe(lists), RRF, profiles=t_first)] == ["a", "b"]
    assert [e.document.id for e in fuse(dedupe(lists), RRF, profiles=s_first)] == ["b", "a"]
    same = [
        RankedList(source="s", leg=leg, query="q", hits=hits(name))
        for leg, name in (("l2", "b"), ("l1", "a"))
    ]
    assert [e.document.id for e in fuse(dedupe(same), RRF)] == ["a", "b"]
    deep = [
        ranked("s", "a b c"),
        ranked("t", "d c e"),
    ]  # c is third and second; the rank of the worse copy does not count
    assert [e.document.id for e in fuse(dedupe(deep), RRF, profiles=t_first)] == ["c", "d", "a", "b", "e"]


@pytest.mark.parametrize(
    "again", [Document(id="a", content="a"), Document(id="a", content="other"), Document(content="a")]
)
@pytest.mark.case("FUS-04")
def test_a_document_that_stands_twice_in_a_list_is_given_its_best_rank_once(again: Document):
    x = Document(id="x", content="x")
    twice = RankedList(
        source="s",
        leg="l",
        query="q",
        hits=[Hit(document=d) for d in (Document(id="a", content="a"), x, again)],
    )
    lists = [
        twice,
        RankedList(
            source="t", leg="l", query="q", hits=[Hit(document=d) for d in (Document(content="y"), x)]
        ),
    ]
    scores = [(e.document.id, e.score) for e in fuse(dedupe(lists), RRF)]
    assert scores == [("x", pytest.approx(2 / 62)), ("a", pytest.approx(1 / 61)), ("", pytest.approx(1 / 61))]


_lists = st.lists(
    st.tuples(
        st.sampled_from(["s1", "s2", "s3"]),
        st.sampled_from(["vector", "text"]),
        st.sampled_from(["q1", "q2"]),
        st.lists(
            st.tuples(st.sampled_from("abcdefghij"), st.floats(-5, 5)), unique_by=lambda x: x[0], max_size=8
        ),
    ),
    max_size=8,
)


def _made(raw: list[tuple[str, str, str, list[tuple[str, float]]]]) -> list[RankedList]:
    return list(
        {
            (s, leg, q): RankedList(
                source=s, leg=leg, query=q, hits=hits([n for n, _ in found], [v for _, v in found])
            )
            for s, leg, q, found in raw
        }.values()
    )


@pytest.mark.parametrize(
    ("mode", "levels"), [("rrf", 1), ("rrf", 2), ("weighted", 1), ("weighted", 2), ("scores", 2)]
)
@given(raw=_lists, rng=st.randoms())
@pytest.mark.case("FUS-14")
def test_order_and_scores_are_identical_under_shuffled_arrival(
    mode: str, levels: int, raw: list, rng: random.Random
):
    lists = _made(raw)
    shuffled = lists[:]
    rng.shuffle(shuffled)
    rag = Rag(hybrid_fusion=mode, levels=levels)
    one, other = fuse(dedupe(lists), rag), fuse(dedupe(shuffled), rag)
    assert [(e.id, e.score, e.normalized) for e in one] == [(e.id, e.score, e.normalized) for e in other]


@given(raw=_lists)
def test_every_envelope_comes_out_once_scored_in_0_1_and_in_order(raw: list):
    pool = dedupe(_made(raw))
    result = fuse(pool, RRF)
    assert sorted(e.id for e in result) == sorted(e.id for e in pool)
    assert all(0 <= e.normalized <= 1 for e in result)
    assert [e.score for e in result] == sorted((e.score for e in result), reverse=True)


@given(raw=_lists)
def test_a_better_rank_never_hurts(raw: list):
    lists = _made(raw)
    target = next((r for r in lists if len(r.hits) > 1), None)
    if target is None:
        return
    name = target.hits[1].document.id
    raised = target.replace(hits=[target.hits[1], target.hits[0], *target.hits[2:]])
    before = dict(fused(lists, levels=1))[name]
    after = dict(fused([raised if r is target else r for r in lists], levels=1))[name]
    assert after >= before


_SCRIPT = """
from contextrouter import Document, Hit, Rag, RankedList
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fusion import fuse
lists = [RankedList(source=s, leg=g, query=q, hits=[Hit(document=Document(content=f"{s}{g}{i % 3}"), score=1.0) for i in range(6)])
         for s in ("x", "y", "z") for g in ("vector", "text") for q in ("1", "2")]
print([(e.id[:12], e.score) for mode in ("scores", "rrf", "weighted")
       for e in fuse(dedupe(lists), Rag(hybrid_fusion=mode))])
"""


def test_order_does_not_depend_on_the_hash_seed():
    outputs = set()
    for seed in ("0", "1", "42"):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_thirty_sources_of_a_thousand_hits_and_three_queries_are_still_right():
    lists = [
        RankedList(
            source=f"s{s:02}",
            leg="default",
            query=q,
            hits=[Hit(document=Document(id=f"{s}-{i}", content=f"{s}-{i}")) for i in range(1000)],
        )
        for s in range(30)
        for q in ("q1", "q2", "q3")
    ]
    shared = Hit(document=Document(id="everywhere", content="everywhere"))
    lists = [r.replace(hits=[*r.hits[:499], shared, *r.hits[499:999]]) for r in lists]
    result = fuse(dedupe(lists), RRF)
    assert result[0].document.id == "everywhere"
    assert result[0].score == pytest.approx(30 / 560)  # rank 500 in each source
    assert len(result) == 30 * 999 + 1


@pytest.mark.case("FUS-19")
def test_a_cut_off_on_one_leg_takes_nothing_from_another():
    """Cut-offs belong to a source and act before fusion: a vector leg that let nothing through leaves the
    exact words' hits.
    """
    lists = [ranked("s", "", leg="vector"), ranked("s", "exact", [12.0], leg="text")]
    assert fused(lists) == [("exact", pytest.approx(1 / 61))]
    assert fused(lists, hybrid_fusion="weighted") == [("exact", pytest.approx(0.3))]


def test_queries_of_rules_weigh_little_and_those_of_a_model_in_full():
    lists = [ranked("s", "a b", query="q"), ranked("s", "c a", query="part")]
    by_rules = Queries("q", frozenset({"part"}))
    results = {e.document.id: e for e in fuse(dedupe(lists), RRF, queries=by_rules)}
    whole = 1.01  # the leg's weight of 1 is parted in 1 and 0.01
    assert list(results) == ["a", "b", "c"]
    assert results["a"].score == pytest.approx((1 / 61 + 0.01 / 62) / whole)
    assert results["b"].score == pytest.approx(1 / 62 / whole)
    assert results["c"].score == pytest.approx(0.01 / 61 / whole)
    assert results["c"].normalized == pytest.approx(0.01 / whole)
    for weight, order in ((1.0, "acb"), (0.5, "abc")):
        rag = Rag(hybrid_fusion="rrf", derived_query_weight=weight)
        assert "".join(e.document.id for e in fuse(dedupe(lists), rag, queries=Queries("q"))) == order


def test_generated_queries_alone_have_the_whole_weight_of_the_leg():
    """They do so where the question itself got no answer."""
    lists = [ranked("s", "a", query="part"), ranked("s", "b", query="other")]
    assert [e.score for e in fuse(dedupe(lists), RRF, queries=Queries("q"))] == [pytest.approx(0.5 / 61)] * 2
    nothing = Rag(hybrid_fusion="rrf", derived_query_weight=0.0)
    assert [e.dropped for e in fuse(dedupe(lists), nothing, queries=Queries("q"))] == [NO_WEIGHT] * 2


@pytest.mark.case("FUS-22")
def test_provenance_has_the_weight_that_acted():
    """Source 2 × leg 0.2 × query: 0.4 for the question, 0.004 for one of rules, 0.2 for a caller's of 0.5."""
    lists = [ranked("s", "a", leg="vector", query=query, weight=2.0) for query in ("q", "rule", "caller")]
    rag = Rag(hybrid_fusion="rrf", leg_weights={"vector": 0.2}, derived_query_weight=0.5)
    (envelope,) = fuse(dedupe(lists), rag, queries=Queries("q", frozenset({"rule"})))
    weights = {p.query: p.weight for p in envelope.provenance}
    assert weights == {"q": pytest.approx(0.4), "rule": pytest.approx(0.004), "caller": pytest.approx(0.2)}
    (envelope,) = fuse(dedupe(lists), Rag(hybrid_fusion="rrf", leg_weights={"vector": 0.0}))
    assert {p.weight for p in envelope.provenance} == {0.0}
