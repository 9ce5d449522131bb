"""Fusion by scores: what each leg gives, what a missing document counts, and how sources are merged. All values
are worked out by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engines import profiles_of

from contextrouter import Document, Envelope, Hit, Rag, RankedList
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fusion import NO_WEIGHT, fuse
from contextrouter.pipeline.fusion.leg_weights import Profile
from contextrouter.pipeline.fusion.source_order import Queries

STORE = Profile(embedder="e", vector_legs=frozenset({"vector", "keywords"}))
"""An embedder that names no weights: vector 0.7, keywords 0.1."""


def listed(
    source: str,
    leg: str,
    scores: dict[str, float | None],
    *,
    query: str = "q",
    vectors: dict[str, Sequence[float]] | None = None,
    **fields: object,
) -> RankedList:
    hits = [
        Hit(document=Document(id=name, content=name), score=score, vector=(vectors or {}).get(name))
        for name, score in scores.items()
    ]
    return RankedList(source=source, leg=leg, query=query, hits=hits, **fields)  # type: ignore[arg-type]  # fields of many types


def by_scores(
    lists: Sequence[RankedList], queries: Queries | None = None, profile: Profile = STORE, **rag: object
) -> dict[str, Envelope]:
    """Return the live documents of sources with this profile, best first."""
    profiles = profiles_of(
        **{ranked.source: profile._replace(position=n) for n, ranked in reversed([*enumerate(lists)])}
    )
    ranking = fuse(dedupe(lists), Rag(**rag), queries=queries or Queries("q"), profiles=profiles)  # type: ignore[arg-type]  # settings of many types
    return {e.document.id: e for e in ranking.live}


def scores_of(envelopes: dict[str, Envelope]) -> dict[str, object]:
    return {name: pytest.approx(envelope.score) for name, envelope in envelopes.items()}


TEXT = listed("s", "text", {"a": 8.0, "b": 4.0, "c": 2.0})
VECTOR = listed("s", "vector", {"c": 0.6, "d": 0.3})


def test_each_leg_is_divided_by_its_highest_score_and_weighed():
    """Text: a 1, b .5, c .25, and d 0, which has no word of the question. Vector: c 1, d .5, and what is not in
    the list at most 0.9 of its lowest, .45. So a = 1 + .7 × .45, b = .5 + .7 × .45, c = .25 + .7, d = .7 × .5.
    """
    result = by_scores([TEXT, VECTOR])
    assert scores_of(result) == {"a": 1.315, "c": 0.95, "b": 0.815, "d": 0.35}
    assert list(result) == ["a", "c", "b", "d"]
    assert result["a"].normalized == pytest.approx(1.315 / 1.7)
    (stamp,) = result["a"].provenance
    assert (stamp.rank, stamp.score, stamp.normalized, stamp.weight, stamp.place) == (1, 8.0, 1.0, 1.0, 1)
    assert stamp.calibrated is None
    assert {p.leg: (p.normalized, p.weight, p.place) for p in result["c"].provenance} == {
        "text": (0.25, 1.0, 2),
        "vector": (1.0, 0.7, 2),
    }


def test_a_full_list_may_hide_documents_that_have_a_word():
    """The text leg returned as many as it was asked for: d may stand just behind, 0.9 × .25."""
    result = by_scores([TEXT.replace(full=True), VECTOR])
    assert result["d"].score == pytest.approx(0.9 * 0.25 + 0.35)


def test_vectors_that_text_hits_bring_along_are_compared_exactly():
    """b's vector has the cosine .45 with the question: .45 ÷ .6 = .75 instead of 0.9 of the lowest."""
    text = listed("s", "text", {"a": 8.0, "b": 4.0, "c": 2.0}, vectors={"b": [0.45, math.sqrt(1 - 0.45**2)]})
    queries = Queries("q", vectors={("e", "q"): [1.0, 0.0]})
    result = by_scores([text, VECTOR], queries)
    assert scores_of(result) == {"a": 1.315, "b": 0.5 + 0.7 * 0.75, "c": 0.95, "d": 0.35}
    unrelated = by_scores([text, VECTOR], queries, STORE._replace(unrelated=0.2))  # (.45 − .2) ÷ (.6 − .2)
    assert unrelated["b"].score == pytest.approx(0.5 + 0.7 * 0.625)
    assert unrelated["d"].score == pytest.approx(0.7 * 0.25)


def test_an_embedder_s_score_weights_are_those_of_its_legs_and_settings_beat_them():
    lists = [TEXT, VECTOR, listed("s", "keywords", {"e": 0.5})]
    profile = STORE._replace(score_weights={"vector": 0.3}, rank_weights={"vector": 9.0})
    result = by_scores(lists, profile=profile)
    assert result["c"].score == pytest.approx(0.25 + 0.3 + 0.1 * 0.9)  # keywords: the default of an embedder
    by_settings = by_scores(lists, profile=profile, leg_weights={"vector": 2.0, "s.text": 0.0})
    assert by_settings["c"].score == pytest.approx(2.0 + 0.1 * 0.9)
    assert set(by_settings) == {"c", "d", "e"}


def test_what_rules_made_of_the_question_stands_behind_what_the_question_found():
    """The question's lowest is .5, so c has 0.9 × .5 and d 0.9 × .5 × .5. Where the question found nothing, the
    others stand in for it.
    """
    derived = listed("s", "text", {"c": 3.0, "b": 2.0, "d": 1.5}, query="part")
    queries = Queries("q", frozenset({"part"}))
    result = by_scores([listed("s", "text", {"a": 8.0, "b": 4.0}), derived], queries)
    assert scores_of(result) == {"a": 1.0, "b": 0.5, "c": 0.45, "d": 0.225}
    assert [p.weight for p in result["c"].provenance] == [pytest.approx(0.45)]
    alone = by_scores([listed("s", "text", {}), derived], queries)
    assert scores_of(alone) == {"c": 1.0, "b": 2 / 3, "d": 0.5}
    parts = Queries("q", frozenset({"part", "other"}))
    beside_nothing = by_scores(
        [listed("s", "text", {}), derived, listed("s", "text", {}, query="other")], parts
    )
    assert scores_of(beside_nothing) == {"c": 1.0, "b": 2 / 3, "d": 0.5}


def test_several_parts_that_stand_in_are_added_up_by_rank():
    """c: 6/6 + 6/8, b: 6/7 + 6/6, d: 6/7; the highest is b with 13/7."""
    lists = [
        listed("s", "text", {}),
        listed("s", "text", {"c": 3.0, "b": 2.0}, query="part"),
        listed("s", "text", {"b": 90.0, "d": 80.0, "c": 70.0}, query="other"),
    ]
    result = by_scores(lists, Queries("q", frozenset({"part", "other"})))
    assert scores_of(result) == {"b": 1.0, "c": 1.75 * 7 / 13, "d": 6 / 13}


def test_queries_of_a_model_or_a_caller_count_in_full():
    """On a text leg each list has its own highest score; on a vector leg all are one scale."""
    text = [
        listed("s", "text", {"a": 8.0, "b": 4.0}),
        listed("s", "text", {"c": 100.0, "b": 70.0}, query="other"),
    ]
    assert scores_of(by_scores(text)) == {"c": 1.0, "a": 1.0, "b": 0.7}
    assert scores_of(by_scores(text, derived_query_weight=0.5)) == {"a": 1.0, "c": 0.5, "b": 0.5}
    assert list(by_scores(text, derived_query_weight=0.0)) == ["a", "b"]
    vector = [
        listed("s", "vector", {"a": 0.8, "b": 0.4}),
        listed("s", "vector", {"c": 0.9, "b": 0.6}, query="other"),
    ]
    ones = by_scores(vector, leg_weights={"vector": 1.0})
    assert scores_of(ones) == {"c": 1.0, "a": 8 / 9, "b": 6 / 9}


@pytest.mark.parametrize(
    ("scores", "fields", "n"),
    [
        ({"a": None, "b": None}, {}, [1.0, 6 / 7]),  # no scores: 6 ÷ (5 + rank)
        ({"a": 0.8, "b": None}, {}, [1.0, 6 / 7]),
        ({"a": math.inf, "b": 1.0}, {}, [1.0, 6 / 7]),
        ({"a": 2.0, "b": math.nan}, {}, [1.0, 6 / 7]),
        ({"a": 0.1, "b": 0.9}, {}, [1.0, 6 / 7]),  # not best first: the order is the source's word
        ({"a": 5.0}, {}, [1.0]),
        ({"a": 5.0, "b": 5.0}, {}, [1.0, 1.0]),
        ({"a": 3.0, "b": -1.0}, {}, [1.0, 0.0]),  # the lowest where one is negative
        ({"a": -1.0, "b": -3.0}, {}, [1.0, 0.0]),
        ({"a": 0.0, "b": 0.0}, {}, [0.0, 0.0]),
        ({"a": 4.0, "b": 3.0}, {"score_range": (2.0, 9.0)}, [1.0, 0.5]),  # the low end of a declared range
    ],
)
@pytest.mark.case("FUS-03", "FUS-07", "FUS-18")
def test_scores_that_tell_little(scores: dict[str, float | None], fields: dict[str, object], n: list[float]):
    result = by_scores([listed("s", "other", scores, **fields)])  # type: ignore[arg-type]  # fields of many types
    assert list(result) == list(scores)  # a lone leg keeps its order
    assert [envelope.score for envelope in result.values()] == [pytest.approx(value) for value in n]


def test_cosines_at_or_below_zero_count_for_nothing_and_keep_their_order():
    assert scores_of(by_scores([listed("s", "vector", {"a": 0.0, "b": -0.2})])) == {"a": 0.0, "b": 0.0}
    lists = [listed("s", "vector", {"a": 0.0, "b": -0.2}), listed("s", "text", {"b": 3.0})]
    assert scores_of(by_scores(lists)) == {"b": 1.0, "a": 0.0}


@pytest.mark.case("B02")
def test_a_leg_of_weight_0_adds_nothing_and_what_it_alone_found_goes():
    ranking = fuse(
        dedupe([TEXT, VECTOR]),
        Rag(leg_weights={"vector": 0.0}),
        queries=Queries("q"),
        profiles=profiles_of(s=STORE),
    )
    assert [(e.document.id, e.score) for e in ranking.live] == [("a", 1.0), ("b", 0.5), ("c", 0.25)]
    assert [(e.document.id, e.dropped) for e in ranking.dropped] == [("d", NO_WEIGHT)]


# Between sources.


A = listed("one", "text", {"a1": 9.0, "a2": 8.0, "a3": 1.0})
B = listed("two", "text", {"b1": 2.0, "b2": 1.9})
OWN = {"a1": 0.2, "a2": 0.9, "a3": 0.5, "b1": 0.6, "b2": 0.3}
"""What calibration says of each document. Within `one` it would turn the order."""


def merged(lists: Sequence[RankedList], own: dict[str, float], **rag: object) -> dict[str, Envelope]:
    candidates = dedupe(lists)
    values = {n: own[document.id] for n, document in enumerate(candidates.documents) if document.id in own}
    profiles = profiles_of(**{ranked.source: Profile(n) for n, ranked in enumerate(lists)})
    ranking = fuse(candidates, Rag(**rag), queries=Queries("q"), profiles=profiles, calibrated=values)  # type: ignore[arg-type]  # settings of many types
    return {e.document.id: e for e in ranking.live}


def test_calibrated_values_are_handed_out_in_each_source_s_own_order():
    """one's values are .9, .5, .2: a1 gets .9, a2 .5, a3 .2; two's .6 and .3 stay where they are."""
    result = merged([A, B], OWN)
    assert scores_of(result) == {"a1": 0.9, "b1": 0.6, "a2": 0.5, "b2": 0.3, "a3": 0.2}
    assert result["a2"].normalized == pytest.approx(0.5 / 0.9)
    assert result["a2"].signals == {"fused": 0.5, "calibrated": 0.9}
    assert [(p.place, p.calibrated) for p in result["a2"].provenance] == [(2, 0.5)]


@pytest.mark.parametrize(
    ("keep_order", "order"), [(0.0, "a2 b1 a3 b2 a1"), (0.5, "a2 b1 a1 a3 b2"), (1.0, "a1 b1 a2 b2 a3")]
)
def test_keep_order_says_how_far_a_source_keeps_its_order(keep_order: float, order: str):
    """At 0.5: a1 (.2 + .9) ÷ 2 = .55, a2 .7, a3 .35, b1 .6, b2 .3."""
    assert " ".join(merged([A, B], OWN, keep_order=keep_order)) == order


def test_of_several_sources_the_one_that_gives_most_counts():
    both = listed("two", "text", {"b1": 2.0, "a3": 1.9})
    result = merged([A, both], OWN | {"a3": 0.5})
    # one gives a3 its third value, .2; two its second, .5
    assert scores_of(result) == {"a1": 0.9, "b1": 0.6, "a2": 0.5, "a3": 0.5}
    assert [(p.source, p.place, p.calibrated) for p in result["a3"].provenance] == [
        ("two", 2, 0.5),
        ("one", 3, 0.2),
    ]


@pytest.mark.parametrize("calibrate", [True, False])
def test_without_calibrated_values_sources_are_merged_by_the_ranks_of_their_own_order(calibrate: bool):
    result = merged([A, B], {}, calibrate=calibrate)
    assert scores_of(result) == {"a1": 1 / 61, "b1": 1 / 61, "a2": 1 / 62, "b2": 1 / 62, "a3": 1 / 63}


def test_rank_modes_set_the_order_within_a_source_and_calibration_that_between_sources():
    """By ranks a2 leads `one`: 1/61 + 1/62 against 1/61 for a1, which has the higher score."""
    lists = [A, listed("one", "vector", {"a2": 0.1}), B]
    assert " ".join(merged(lists, OWN, hybrid_fusion="rrf")) == "a2 b1 a1 b2 a3"


_LISTS = st.lists(
    st.tuples(
        st.sampled_from(["text", "vector", "other"]),
        st.sampled_from(["q", "part", "model"]),
        st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-5, 5) | st.none(), max_size=8),
    ),
    max_size=6,
    unique_by=lambda entry: entry[:2],
)


@given(raw=_LISTS, values=st.dictionaries(st.integers(0, 8), st.floats(0, 9)))
def test_with_one_source_the_merge_changes_nothing(raw: list, values: dict[int, float]):
    candidates = dedupe([listed("s", leg, scores, query=query) for leg, query, scores in raw])
    queries, profiles = Queries("q", frozenset({"part"})), profiles_of(s=STORE)
    alone = fuse(candidates, Rag(), queries=queries, profiles=profiles)
    beside = fuse(candidates, Rag(), queries=queries, profiles=profiles, calibrated=values)
    assert [(e.id, e.score) for e in alone] == [(e.id, e.score) for e in beside]
    assert all(0.0 <= e.normalized <= 1.0 for e in alone)
    assert sorted(e.id for e in alone) == sorted(e.id for e in candidates)


TRANSLATION = Queries("t", original="q")


def asked_twice(words: tuple[float, float], cosines: tuple[float, float]) -> list[RankedList]:
    """Lists of a source in which the question finds `q` and its translation finds `t`, with these scores."""
    pairs = [("text", words), ("vector", cosines)]
    return [
        listed("s", leg, {query: score} if score else {}, query=query)
        for leg, scores in pairs
        for query, score in zip("qt", scores, strict=True)
    ]


@pytest.mark.parametrize(
    ("words", "cosines", "stands_behind"),
    [
        ((5.0, 9.0), (0.4, 0.6), True),
        ((9.5, 9.0), (0.4, 0.6), True),  # within a tenth: equal
        ((0.0, 9.0), (0.4, 0.6), True),  # no word of the question is in the store
        ((12.0, 9.0), (0.4, 0.6), False),  # the words speak for the question
        ((5.0, 9.0), (0.6, 0.4), False),  # the vectors do
        ((9.0, 9.0), (0.5, 0.5), False),  # as good: both count
        ((12.0, 9.0), (0.6, 0.4), False),  # stronger itself: in a store of two languages both are wanted
    ],
)
def test_a_question_stands_behind_a_translation_that_words_and_vectors_find_better(
    words: tuple[float, float], cosines: tuple[float, float], stands_behind: bool
):
    by_name = by_scores(asked_twice(words, cosines), TRANSLATION)
    in_full = by_scores(asked_twice(words, cosines), Queries("t"))
    behind = by_scores(asked_twice(words, cosines), Queries("t", frozenset({"q"})))
    assert behind["q"].score != in_full["q"].score
    wanted = behind if stands_behind else in_full
    assert scores_of(by_name) == {name: envelope.score for name, envelope in wanted.items()}


@pytest.mark.parametrize("leg", ["text", "vector"])
def test_one_kind_of_leg_alone_is_no_proof_that_a_translation_is_better(leg: str):
    lists = [ranked for ranked in asked_twice((5.0, 9.0), (0.4, 0.6)) if ranked.leg == leg]
    assert scores_of(by_scores(lists, TRANSLATION)) == {
        name: envelope.score for name, envelope in by_scores(lists, Queries("t")).items()
    }


@pytest.mark.parametrize("mode", ["rrf", "weighted"])
def test_a_question_weaker_than_its_translation_adds_only_behind_it_in_other_modes(mode: str):
    lists = asked_twice((5.0, 9.0), (0.4, 0.6))
    by_name = by_scores(lists, TRANSLATION, hybrid_fusion=mode)
    assert scores_of(by_name) == {
        name: envelope.score
        for name, envelope in by_scores(lists, Queries("t", frozenset({"q"})), hybrid_fusion=mode).items()
    }
    assert [*by_name] == ["t", "q"]
