"""Calibration: documents of several sources on one scale. The scores are BM25 with k1 = 0.9, b = 0.4, worked
out by hand.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engines import engine_of

from contextrouter import ContextRouter, Document, Hit, Rag, RankedList, Scope, Source
from contextrouter.contracts import Embedder, TermStatistics
from contextrouter.pipeline.calibration import pooled_bm25
from contextrouter.pipeline.calibration.calibrated_values import Calibration, calibrate, several_sources
from contextrouter.pipeline.deadline import Deadline
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.pipeline.fusion.leg_weights import Profiles
from contextrouter.pipeline.fusion.source_order import Queries
from contextrouter.pipeline.term_statistics import StatisticsCache
from contextrouter.runtime.abandoned_calls import AllAbandonedCalls
from contextrouter.testing import Fixed, Legs
from contextrouter.text import analysis, query_syntax
from contextrouter.text.stemming import begins, stem
from contextrouter.text.term_counter import TermCounter
from contextrouter.vectors import Near

SAID = {
    "a": TermStatistics(documents=90, average_length=2.0, frequencies={"moon": 80, "tides": 1}),
    "b": TermStatistics(documents=10, average_length=2.0, frequencies={"moon": 1, "tides": 1}),
}


def text(*contents: str, start: int = 0) -> list[Hit]:
    return [Hit(document=Document(id=f"{content}{start}", content=content)) for content in contents]


def listed(
    source: str, hits: Sequence[Hit], leg: str = "text", query: str = "moon tides", **fields: object
) -> RankedList:
    return RankedList(source=source, leg=leg, query=query, hits=hits, **fields)  # type: ignore[arg-type]  # fields of many types


def calibrated(
    lists: Sequence[RankedList],
    said: Mapping[str, TermStatistics] = SAID,
    sources: Mapping[str, Source] | None = None,
    vectors: Mapping[str, Sequence[float]] = {},
    **rag: object,
) -> tuple[str, dict[str, float]]:
    """Return the note, and the values by content, highest first. `vectors` are the question's by embedder."""
    candidates = dedupe(lists)
    profiles = Profiles(sources or {ranked.source: Fixed([]) for ranked in lists})
    queries = Queries(
        "moon tides", vectors={(name, "moon tides"): vector for name, vector in vectors.items()}
    )
    calibration = Calibration(candidates, Rag(**rag), profiles, said, queries=queries)  # type: ignore[arg-type]  # settings of many types
    values, note = calibration.values()
    ordered = sorted(values, key=lambda number: -values[number])
    return note, {candidates.documents[number].content: values[number] for number in ordered}


def test_terms_weigh_what_they_weigh_over_all_sources_together():
    """100 documents; moon is in 81 of them, tides in 2: ln(1 + 19.5 / 81.5) = 0.2145, ln(1 + 98.5 / 2.5) =
    3.6988.

    Every document has the average length, so that a term that occurs once saturates at 1.9 / 1.9 = 1. The
    evidence of a source is the root of its best five scores, together, over five.
    """
    note, values = calibrated([listed("a", text("moon rock")), listed("b", text("tide rise"))])
    moon, tides = math.log(1 + 19.5 / 81.5), math.log(1 + 98.5 / 2.5)
    assert (round(moon, 4), round(tides, 4)) == (0.2145, 3.6988)
    assert values == {
        "tide rise": pytest.approx(tides * math.sqrt(tides / 5)),
        "moon rock": pytest.approx(moon * math.sqrt(moon / 5)),
    }
    assert note == "by text"


async def test_rank_fusion_cannot_tell_the_better_number_one_and_calibration_can():
    """Each source has one first document; that of b has both words, that of a one."""
    sources = {"a": Told(text("moon rock", "moon dust")), "b": Told(text("moon tides", "a tale"))}
    orders = []
    for switch in (False, True):
        rag = {"interpreters": [], "calibrate": switch, "cache_enabled": False}
        async with ContextRouter({"rag": rag}, connectors=sources) as router:
            context = await router.route("moon tides")
        orders.append([envelope.document.content for envelope in context.envelopes])
    assert orders[0][:2] == ["moon rock", "moon tides"]
    assert orders[1][0] == "moon tides"


def test_a_source_without_statistics_is_taken_to_hold_what_it_returned():
    """Of a's two documents both have moon; tides is in one of b's 10: ln(1 + 0.5 / 2.5) and ln(1 + 10.5 /
    1.5), of 2 + 10.
    """
    said = {"b": SAID["b"].__class__(documents=10, average_length=2.0, frequencies={"moon": 0, "tides": 1})}
    note, values = calibrated(
        [listed("a", text("moon rock", "moon dust")), listed("b", text("tide rise"))], said
    )
    moon, tides = math.log(1 + 10.5 / 2.5), math.log(1 + 11.5 / 1.5)
    assert values["moon rock"] == pytest.approx(moon * math.sqrt(2 * moon / 5))
    assert values["tide rise"] == pytest.approx(tides * math.sqrt(tides / 5))
    assert note == "by text; statistics of what was returned for a"


def test_the_weight_of_a_source_multiplies_and_weight_0_takes_no_part():
    lists = [listed("a", text("moon rock"), weight=2.0), listed("b", text("moon dust"))]
    _, values = calibrated(lists)
    assert values["moon rock"] == pytest.approx(2 * values["moon dust"])
    note, values = calibrated([lists[0], listed("b", text("moon dust"), weight=0.0)])
    assert values == {}
    assert note.startswith("ranks alone")


def test_words_that_are_excluded_count_for_nothing_and_the_best_query_counts():
    lists = [
        listed("a", text("moon rock"), query="moon -tides"),
        listed("b", text("tide rise"), query="moon -tides"),
    ]
    _, values = calibrated(lists)
    assert {name for name, value in values.items() if value} == {"moon rock"}
    both = [
        listed("a", text("moon tides"), query="moon tides"),
        listed("b", text("moon"), query="moon"),
        lists[0],
    ]
    _, values = calibrated(both)
    assert set(values) == {"moon tides", "moon", "moon rock"}


def test_nothing_to_go_by_degrades_to_ranks_and_says_so():
    lists = [listed("a", text("x")), listed("b", text("y"))]
    note, values = calibrated(lists)
    assert (values, note) == (
        {},
        "ranks alone: no candidate has a word of the question, and no vectors can be compared",
    )


def test_words_and_vectors_make_one_score_where_candidates_bring_their_vectors():
    """Words: 0.2145 and 3.6988 ÷ 3.6988, as above. Vectors: [1, 0] and [0.6, 0.8] have the cosines 1 and 0.6
    with [1, 0].

    Both are among the best five, so they are compared with [1, 0] + their mean [0.8, 0.4] = [1.8, 0.4], of
    length l: 1.8 ÷ l and 1.4 ÷ l, of the highest 1 and 1.4 ÷ 1.8. A document without a vector counts as the
    farthest of its source.
    """
    moon = math.log(1 + 19.5 / 81.5) / math.log(1 + 98.5 / 2.5)
    rock, rise, fall = (Document(id=name, content=name) for name in ("moon rock", "tide rise", "tide fall"))
    lists = [
        listed("a", [Hit(document=rock, score=1.0, vector=[2.0, 0.0])]),
        listed("b", [Hit(document=rise, score=0.2, vector=[0.6, 0.8])], "vector"),
        listed("b", [Hit(document=rise, score=9.0), Hit(document=fall, score=8.0)]),
        listed("b", [Hit(document=fall, score=0.9, vector=[1.0, 0.0])], "keywords"),
    ]
    stores = {name: Legs({"vector": [], "text": [], "keywords": []}, embedder="e") for name in "ab"}
    for store in stores.values():
        store.vector_legs = ("vector", "keywords")
    note, values = calibrated(
        lists, sources=stores, vectors={"e": [1.0, 0.0]}, leg_weights={"text": 1.0, "vector": 1.0}
    )
    first, second = moon + 1, 1 + 1.4 / 1.8
    evidence = math.sqrt(2 * second / 5)
    assert note == "by text+vector"
    assert values == {
        "tide rise": pytest.approx(second * evidence),
        "tide fall": pytest.approx(second * evidence),
        "moon rock": pytest.approx(first * math.sqrt(first / 5)),
    }
    _, weighed = calibrated(lists, sources=stores, vectors={"e": [1.0, 0.0]})
    assert weighed["moon rock"] == pytest.approx((moon + 0.7) * math.sqrt((moon + 0.7) / 5))
    lists.append(lists[0].replace(leg="vector"))
    without_words = {"text": 0.0, "vector": 1.0}
    note, values = calibrated(lists, sources=stores, vectors={"e": [1.0, 0.0]}, leg_weights=without_words)
    assert (note, next(iter(values))) == ("by vector", "moon rock")


def test_sources_of_different_embedders_or_of_none_are_compared_by_words():
    rock, rise = (Document(id=name, content=name) for name in ("moon rock", "tide rise"))
    lists = [
        listed("a", [Hit(document=rock, score=1.0, vector=[2.0, 0.0])]),
        listed("b", [Hit(document=rise, score=0.2, vector=[0.6, 0.8])], "vector"),
        listed("b", [Hit(document=rise, score=9.0)]),
    ]
    both = {name: Legs({"vector": [], "text": []}, embedder="e") for name in "ab"}
    vectors = {"e": [1.0, 0.0], "f": [1.0, 0.0]}
    assert calibrated(lists, sources=both, vectors=vectors)[0] == "by text+vector"
    for other in (Legs({"vector": [], "text": []}, embedder="f"), Legs({"text": []})):
        assert calibrated(lists, sources={"a": both["a"], "b": other}, vectors=vectors)[0] == "by text"
    assert calibrated(lists, sources=both)[0] == "by text"
    assert calibrated(lists, sources=both, vectors={"e": [1.0, 0.0, 0.0]})[0] == "by text"


class Counting(Embedder):
    """Embeds every text as [0, 1], counting them, or fails."""

    dimensions, model = 2, "counting"

    def __init__(self, *, broken: bool = False) -> None:
        self.broken, self.texts = broken, []  # type: ignore[var-annotated]  # texts, as they come

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]]:
        if self.broken:
            raise OSError("gone")
        self.texts += texts
        return [[0.0, 1.0] for _ in texts]


@pytest.mark.parametrize(("most", "broken"), [(0, False), (1, False), (40, False), (40, True)])
async def test_the_best_candidates_without_a_vector_are_embedded_on_request(most: int, broken: bool):
    contents = ("tides rise", "moon rock", "moon moon")
    pages = [
        Hit(document=Document(id=content, title="Page", path=("Part",), content=content))
        for content in contents
    ]
    known = Hit(document=Document(id="t", content="tides"), score=1.0, vector=[1.0, 0.0])
    pool = dedupe([listed("a", [known]), listed("feed", pages)])
    sources = {"a": Legs({"text": [], "vector": []}, embedder="e"), "feed": Fixed([])}
    embedder, rag = Counting(broken=broken), Rag(calibrate_embed=most)
    engine = engine_of(sources, embedders={"e": embedder})
    queries = Queries("moon tides", vectors={("e", "moon tides"): [1.0, 0.0]})
    note, _ = await calibrate(pool, rag, engine, queries=queries)
    assert embedder.texts[:1] == ([] if broken else ["Page\nPart\nmoon moon"][:most])
    assert len(embedder.texts) == (0 if broken else min(most, 3))
    assert note.startswith("by text+vector" if most == 40 and not broken else "by text;")
    assert ("3 candidates were not embedded (OSError)" in note) == broken


@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=3), max_size=6),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_cosines_are_cosines_whatever_the_vectors(vectors: list[list[float]], x: float, y: float):
    near = Near([x, y], dict(enumerate(vectors)))
    assert near.numbers == [number for number, vector in enumerate(vectors) if len(vector) == 2]
    for examples in ([], near.numbers[:2]):
        assert all(-1.0001 <= cosine <= 1.0001 for cosine in near.cosines(examples).values())


def test_vector_legs_of_one_embedder_are_compared_by_what_the_sources_scored():
    near = [Hit(document=Document(id=str(s), content=str(s)), score=s) for s in (0.9, 0.2)]
    far = [Hit(document=Document(id=str(s), content=str(s)), score=s) for s in (0.5, -0.1)]
    lists = [
        listed("a", near, "vector", score_range=(-1.0, 1.0)),
        listed("b", far, "vector", score_range=(-1.0, 1.0)),
    ]
    one = {name: Legs({"vector": []}, embedder="e") for name in "ab"}
    note, values = calibrated(lists, {}, one)
    # evidence: √((1.9 + 1.2) ÷ 5) and √((1.5 + 0.9) ÷ 5)
    assert values == {
        "0.9": pytest.approx(1.9 * math.sqrt(3.1 / 5)),
        "0.5": pytest.approx(1.5 * math.sqrt(2.4 / 5)),
        "0.2": pytest.approx(1.2 * math.sqrt(3.1 / 5)),
        "-0.1": pytest.approx(0.9 * math.sqrt(2.4 / 5)),
    }
    assert note == "by vector"
    _, values = calibrated(lists, {}, {"a": one["a"], "b": Legs({"vector": []}, embedder="other")})
    assert values == {}
    _, values = calibrated([lists[0], lists[1].replace(score_range=(0.0, 2.0))], {}, one)
    assert values == {}


_SUFFIXES = [
    "",
    "s",
    "ies",
    "ied",
    "ly",
    "ing",
    "ational",
    "ization",
    "biliti",
    "iveness",
    "ement",
    "ed",
    "y",
    "e",
    "ability",
]
_ENGLISH = st.sampled_from(["l", "d", "sk", "fl", "hop", "relat", "usab", "organ", "oper", "gener", "happ"])
_WRITTEN = st.builds("{}{}".format, _ENGLISH, st.sampled_from(_SUFFIXES)) | st.sampled_from(
    [
        "lying",
        "dying",
        "Caf\u00e9s",
        "\u4eac\u90fd\u5e02",
        "\u0433\u043e\u0440\u043e\u0434",
        "x-ray",
        "B12s",
        "don't",
        "I\u2019m",
    ]
)


@given(word=_WRITTEN | st.text("aeioulnstyz", max_size=9))
def test_a_word_begins_as_its_stem_says(word: str):
    assert word.startswith(begins(stem(word))) or not (word.isascii() and word.islower() and word.isalpha())


@given(
    words=st.lists(_WRITTEN, max_size=9),
    asked=st.lists(_WRITTEN, max_size=4),
    joint=st.sampled_from([" ", "\n", ". "]),
)
def test_terms_are_counted_as_analysis_finds_them(words: list[str], asked: list[str], joint: str):
    terms = list(dict.fromkeys(analysis.analyse(" ".join(asked))))
    document = Document(content=joint.join(words), title=joint.join(words[:2]), path=tuple(words[:1]))
    fields = ((document.title, 3), (" ".join(document.path), 2), (document.content, 1))
    found = [(analysis.analyse(text), times) for text, times in fields]
    right = {at: sum(each.count(term) * times for each, times in found) for at, term in enumerate(terms)}
    counts, letters = TermCounter(terms).count(document)
    assert counts == {at: times for at, times in right.items() if times}
    assert letters == sum(len("".join(analysis.words(text))) for text, _ in fields)


def test_one_source_is_not_calibrated():
    assert not several_sources(
        dedupe([listed("a", text("x")), listed("a", text("y"), "vector"), listed("b", [])])
    )
    assert several_sources(dedupe([listed("a", text("x")), listed("b", text("y"))]))
    assert query_syntax.scored_words(['The Moons and -tides, "high water"']) == ["moons", "high", "water"]


class Told(Fixed):
    """A source that reports statistics, and counts how often it is asked."""

    def __init__(self, hits: Sequence[Hit] | str, frequency: int = 1, wait: float = 0.0) -> None:
        super().__init__(hits)
        self.asked: list[Sequence[str]] = []
        self.frequency, self.wait = frequency, wait

    async def statistics(self, terms: Sequence[str], scope: Scope | None = None) -> TermStatistics:
        self.asked.append(tuple(terms))
        await asyncio.sleep(self.wait)
        if self.frequency < 0:
            raise RuntimeError("no statistics today")
        return TermStatistics(
            documents=10, average_length=2.0, frequencies=dict.fromkeys(terms, self.frequency)
        )


async def test_what_was_reported_is_not_asked_for_again():
    source = Told("x")
    kept = StatisticsCache({"a": source, "b": Fixed("y")}, AllAbandonedCalls())
    found = await kept.statistics(["a", "b"], ["moon", "tides"], None, Deadline())
    assert {name: dict(told.frequencies) for name, told in found.items()} == {"a": {"moon": 1, "tides": 1}}
    again = await kept.statistics(["a"], ["tides", "sun"], None, Deadline())
    assert again["a"].frequencies == {"tides": 1, "sun": 1}
    assert source.asked == [("moon", "tides"), ("sun",)]


async def test_a_source_that_is_late_or_fails_costs_its_own_statistics_only():
    slow, broken, fine = Told("x", wait=30), Told("y", frequency=-1), Told("z")
    kept = StatisticsCache({"slow": slow, "broken": broken, "fine": fine}, AllAbandonedCalls())
    found = await kept.statistics(["slow", "broken", "fine"], ["moon"], None, Deadline())
    assert set(found) == {"fine"}


@pytest.mark.parametrize(("keep_order", "first"), [(1.0, "moon rock"), (0.0, "tides of the moon")])
async def test_the_router_calibrates_and_says_how(keep_order: float, first: str):
    sources = {"a": Told(text("moon rock", "tides of the moon")), "b": Told(text("y"))}
    rag = {"interpreters": [], "keep_order": keep_order, "timeout_seconds": 30.0}
    async with ContextRouter({"rag": rag}, connectors=sources) as router:
        context = await router.route("tides of the moon")
    assert context.envelopes[0].document.content == first
    assert {step.name: step.note for step in context.trace.steps}["calibrate"] == "by text"
    assert context.citations[0].source == "a"


@pytest.mark.case("ASY-06")
async def test_calibration_of_much_text_leaves_the_event_loop_and_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
):
    """Seconds of work: 200 documents of 20,000 characters, and a question of 676 words."""
    threads = set()

    class Counter(TermCounter):
        def count(self, document: Document) -> tuple[dict[int, float], int]:
            threads.add(threading.current_thread())
            return super().count(document)

    monkeypatch.setattr(pooled_bm25, "TermCounter", Counter)
    letters = "abcdefghijklmnopqrstuvwxyz"
    question = " ".join(a + b for a in letters for b in letters)
    contents = [f"{number} {question} " * 10 for number in range(100)]
    sources = {
        name: Told([Hit(document=Document(id=f"{name}{n}", content=c)) for n, c in enumerate(contents)])
        for name in "ab"
    }
    rag = {"interpreters": [], "candidates": 100, "token_budget": 0}
    async with ContextRouter({"rag": rag}, connectors=sources) as router:
        context = await router.route(question, deadline=1.0)
    note = {step.name: step.note for step in context.trace.steps}["calibrate"]
    assert note == "ranks alone: the time was too short to compare the candidates"
    assert len(context.envelopes) == 10
    assert threads
    assert threading.main_thread() not in threads
