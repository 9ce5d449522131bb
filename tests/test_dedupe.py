"""Dedupe: one envelope per distinct document, independent of arrival, with every list's word on it."""

from __future__ import annotations

import math
import random
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextrouter import ContextRouter, Document, Hit, RankedList
from contextrouter.pipeline.deduplication import dedupe
from contextrouter.testing import Fixed, doc, hits, ranked


def _list(
    source: str, *documents: Document, leg: str = "default", scores: list[float | None] | None = None
) -> RankedList:
    found = [Hit(document=d, score=scores[i] if scores else None) for i, d in enumerate(documents)]
    return RankedList(source=source, leg=leg, query="q", hits=found)


@pytest.mark.case("R05")
def test_fingerprint_is_the_sha256_of_length_prefixed_url_snippet_content():
    expected = sha256(b"1:u3:a|b1:c").hexdigest()
    assert Document(url="u", snippet="a|b", content="c").fingerprint == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("u", "a|b", "c"), ("u", "a", "b|c")),
        (("", "Jean", "Pierre"), ("", "Jean-Pierre", "")),
        (("u", "", "1:x"), ("u", "1:x", "")),
    ],
)
@pytest.mark.case("DED-03")
def test_the_encoding_is_injective(one: tuple[str, str, str], other: tuple[str, str, str]):
    first, second = (Document(url=u, snippet=s, content=c) for u, s, c in (one, other))
    assert first.fingerprint != second.fingerprint
    assert len(dedupe([_list("a", first), _list("b", second)])) == 2


@given(st.tuples(st.text(), st.text(), st.text()), st.tuples(st.text(), st.text(), st.text()))
def test_documents_merge_exactly_when_url_snippet_and_content_are_equal(
    one: tuple[str, str, str], other: tuple[str, str, str]
):
    first, second = (Document(url=u, snippet=s, content=c) for u, s, c in (one, other))
    merged = len(dedupe([_list("a", first), _list("b", second)])) == 1
    assert merged == (one == other) == (first.fingerprint == second.fingerprint)


@pytest.mark.case("FUS-15")
def test_one_chunk_with_three_ids_from_three_sources_is_one_document():
    lists = [
        _list(source, Document(id=name, content="the chunk", url="u"))
        for source, name in (("v", "v_0"), ("n", "4"), ("s", "s_4"))
    ]
    (envelope,) = dedupe(lists)
    assert [p.source for p in envelope.provenance] == ["n", "s", "v"]


def test_within_a_source_the_id_decides_though_the_text_differs():
    lists = [
        _list("a", Document(id="1", content="x"), leg="text"),
        _list("a", Document(id="1", content="y"), leg="vector"),
    ]
    assert len(dedupe(lists)) == 1
    lists = [_list("a", Document(id="1", content="x")), _list("b", Document(id="1", content="y"))]
    assert len(dedupe(lists)) == 2


def _together(lists: list[RankedList], identity: str = "exact") -> list[str]:
    """What is one document, as the source and id of each of its hits."""
    by_place = {(r.source, r.leg, n): h.document.id for r in lists for n, h in enumerate(r.hits, 1)}
    return [
        " ".join(p.source + by_place[p.source, p.leg, p.rank] for p in envelope.provenance)
        for envelope in dedupe(lists, identity)
    ]


@pytest.mark.parametrize("identity", ["exact", "content", "url", "title"])
@pytest.mark.case("DED-01")
def test_two_ids_of_one_source_are_two_documents_with_one_text(identity: str):
    def same(*ids: str) -> list[Document]:
        return [Document(id=id, url="https://u", title="T", content="x") for id in ids]

    assert _together([_list("a", *same("1", "2"))], identity) == ["a1", "a2"]
    legs = [_list("a", *same("1", "2"), leg="l"), _list("a", *same("2", "3"), leg="m")]
    assert _together(legs, identity) == ["a1", "a2 a2", "a3"]
    sources = [_list("b", *same("7", "8", "9")), _list("a", *same("1", "2"))]
    assert _together(sources, identity) == ["a1 b7", "a2 b8", "b9"]


@pytest.mark.parametrize("identity", ["content", "url", "title"])
@pytest.mark.case("DED-01")
def test_identity_by_a_field_says_nothing_of_two_documents_of_one_source(identity: str):
    """Without an id, too: those are known by their text."""
    chunks = [Document(id=id, url="https://u", title="T", snippet=id, content="x") for id in "12"]
    assert _together([_list("a", *chunks)], identity) == ["a1", "a2"]
    blank = [chunk.replace(id="") for chunk in chunks]
    assert _together([_list("a", *blank)], identity) == ["a", "a"]
    assert _together([_list("a", *blank[::-1]), _list("b", *chunks)], identity) == ["a b1", "a b2"]


@pytest.mark.case("DED-01")
def test_without_an_id_the_text_decides():
    ones = [Document(id=id, content="x") for id in ("", "1", "", "2")]
    assert _together([_list("a", *ones)]) == ["a", "a2"]  # each list counts once, at its best rank
    assert _together([_list("a", *ones, leg="l"), _list("a", ones[1], leg="m")]) == ["a a1", "a2"]
    assert _together([_list("a", *ones[1:], leg="l"), _list("a", ones[0], leg="m")]) == ["a1 a", "a2"]


@pytest.mark.case("DED-01")
async def test_a_router_hands_back_both_documents_of_one_source_with_one_text():
    """The second of source b stands for itself: a has but one of these."""
    found = {
        name: Fixed([Hit(document=Document(id=id, url="https://u", content="x")) for id in ids])
        for name, ids in {"a": ["1"], "b": ["2", "3"]}.items()
    }
    async with ContextRouter(connectors=found) as router:
        context = await router.route("q")
    assert [(e.document.id, [p.source for p in e.provenance]) for e in context.envelopes] == [
        ("1", ["a", "b"]),
        ("3", ["b"]),
    ]
    assert len(context.citations) == 2


def test_one_id_in_two_tenants_is_two_documents():
    """As stores keep them; a caller whom no scope confines sees both."""
    ours, theirs = (Document(id="1", content=f"of {tenant}", tenant=tenant) for tenant in ("ours", "theirs"))
    assert len(dedupe([_list("s", ours, theirs)])) == 2
    assert len(dedupe([_list("s", ours, leg="a"), _list("s", theirs, ours, leg="b")])) == 2
    assert len(dedupe([_list("s", ours, leg="a"), _list("s", ours.replace(content="newer"), leg="b")])) == 1
    nobody = [
        Document(id="1", content=f"of {tenant!r}", tenant=tenant) for tenant in (None, "")
    ]  # as a scope takes them for one
    assert len(dedupe([_list("s", *nobody)])) == 1


@pytest.mark.case("FUS-05", "DED-05")
def test_the_best_ranked_copy_is_kept_with_both_origins_whatever_the_order():
    stub = Document(id="d1", content="same", metadata={"from": "B"})
    full = Document(id="d1", content="same", metadata={"from": "A"})
    a = _list("a", full, scores=[0.9])
    b = _list("b", doc("other"), stub, scores=[0.5, 0.1])
    for lists in ([a, b], [b, a]):
        merged = next(e for e in dedupe(lists) if len(e.provenance) == 2)
        assert merged.document.metadata == {"from": "A"}
        assert [(p.source, p.rank, p.score) for p in merged.provenance] == [("a", 1, 0.9), ("b", 2, 0.1)]


@pytest.mark.case("FUS-02")
def test_a_worse_duplicate_does_not_overwrite_the_better_score():
    t = doc("t")
    for lists in (
        [_list("a", t, scores=[0.9]), _list("b", t, scores=[0.1])],
        [_list("b", t, scores=[0.1]), _list("a", t, scores=[0.9])],
    ):
        (envelope,) = dedupe(lists)
        assert sorted((p.source, p.score) for p in envelope.provenance) == [("a", 0.9), ("b", 0.1)]


@pytest.mark.case("FUS-04")
def test_several_copies_in_one_list_count_once_at_their_best_rank():
    copies = [Document(id=id, url="https://x", content="chunk") for id in ("1", "1", "")]
    found = dedupe([_list("a", *copies), _list("b", Document(id="9", url="https://y", content="chunk"))])
    assert [[p.rank for p in e.provenance] for e in found] == [[1], [1]]


@pytest.mark.parametrize(
    ("identity", "count"), [("exact", 4), ("content", 3), ("url", 3), ("id", 3), ("title", 2)]
)
@pytest.mark.case("R05", "K04")
def test_identity_says_when_documents_of_different_sources_are_one(identity: str, count: int):
    lists = [
        _list("a", Document(id="1", url="https://u1", title="One", content="x")),
        _list("b", Document(id="2", url="https://u2", title="ONE", content="x")),
        _list("c", Document(id="1", url="https://u3", title="Three", content="y")),
        _list("d", Document(id="4", url="https://u2", title="one", content="z")),
    ]
    assert len(dedupe(lists, identity)) == count


def test_identity_by_a_field_that_is_missing_compares_exactly():
    lists = [
        _list("a", Document(content="x")),
        _list("b", Document(content="y")),
        _list("c", Document(content="x")),
    ]
    assert len(dedupe(lists, "url")) == 2


@pytest.mark.parametrize(
    ("url", "count"),
    [
        ("README.md", 2),
        ("docs/README.md", 2),
        ("/srv/README.md", 2),
        ("C:/docs/README.md", 2),
        ("//host/x", 2),
        ("https:", 2),
        ("https://example.org/x", 1),
        ("HTTP://example.org/x", 1),
        ("file:///srv/x.md", 1),
        ("urn:isbn:0451450523", 1),
    ],
)
def test_a_url_that_is_not_absolute_makes_no_two_documents_one(url: str, count: int):
    lists = [
        _list("a", Document(id="1", url=url, content="of one folder")),
        _list("b", Document(id="2", url=url, content="other")),
    ]
    assert len(dedupe(lists, "url")) == count
    same = [_list(name, Document(id=name, url=url, content="the same")) for name in "ab"]
    assert len(dedupe(same, "url")) == 1


@pytest.mark.case("FUS-08")
def test_empty_lists_and_no_lists_are_neutral():
    assert list(dedupe([])) == []
    assert [e.document.id for e in dedupe([ranked("a", ""), ranked("b", "d")])] == ["d"]


def test_scores_are_scaled_within_their_list():
    def scaled(scores: list[float | None], **fields: object) -> list[float | None]:
        return [
            e.provenance[0].normalized
            for e in dedupe([ranked("a", "x y z"[: 2 * len(scores) - 1], scores, **fields)])
        ]

    assert scaled([4.0, 3.0, 2.0]) == [1.0, 0.5, 0.0]
    assert scaled([0.8, 0.4], score_range=(0.0, 1.0)) == [0.8, 0.4]  # a declared range beats min-max
    assert scaled([2.0, -1.0], score_range=(0.0, 1.0)) == [1.0, 0.0]  # and is kept to
    assert scaled([7.0]) == [1.0]


@pytest.mark.case("FUS-07")
def test_equal_scores_are_a_constant_not_a_division_by_zero():
    assert [e.provenance[0].normalized for e in dedupe([ranked("a", "x y", [0.5, 0.5])])] == [1.0, 1.0]


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
@pytest.mark.case("FUS-03")
def test_a_list_that_lacks_a_score_is_scaled_by_rank(missing: float | None):
    assert [e.provenance[0].normalized for e in dedupe([ranked("a", "x y", [0.8, missing])])] == [1.0, 0.5]


@pytest.mark.parametrize("score", [1.7e308, 17 * 10**307, 10**400])
def test_scores_too_far_apart_for_a_number_are_scaled_by_rank(score: float):
    assert [e.provenance[0].normalized for e in dedupe([ranked("a", "x y", [score, -score])])] == [1.0, 0.5]


def test_highlights_of_all_copies_are_kept_and_a_vector_is_found():
    a = RankedList(source="a", leg="text", query="q", hits=[Hit(document=doc("d"), highlights=("one",))])
    b = RankedList(
        source="a",
        leg="vector",
        query="q",
        hits=[Hit(document=doc("d"), highlights=("two", "one"), vector=(1.0,))],
    )
    (envelope,) = dedupe([a, b])
    assert envelope.highlights == ("one", "two")
    assert envelope.vector == (1.0,)


_names = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)


@given(
    st.lists(
        st.tuples(st.sampled_from(["s1", "s2", "s3"]), st.sampled_from(["l1", "l2"]), _names), max_size=6
    ),
    st.randoms(),
)
def test_the_result_does_not_depend_on_the_order_of_arrival(
    lists: list[tuple[str, str, list[str]]], rng: random.Random
):
    unique = list(
        {(s, leg): RankedList(source=s, leg=leg, query="q", hits=hits(n)) for s, leg, n in lists}.values()
    )
    shuffled = unique[:]
    rng.shuffle(shuffled)
    assert sorted(map(repr, dedupe(unique))) == sorted(map(repr, dedupe(shuffled)))


@given(
    st.lists(
        st.tuples(st.sampled_from(["s1", "s2", "s3"]), st.sampled_from(["l1", "l2"]), _names), max_size=6
    )
)
def test_nothing_is_lost_and_nothing_invented(lists: list[tuple[str, str, list[str]]]):
    unique = list(
        {(s, leg): RankedList(source=s, leg=leg, query="q", hits=hits(n)) for s, leg, n in lists}.values()
    )
    found = dedupe(unique)
    assert {e.document.id for e in found} == {n for r in unique for n in (h.document.id for h in r.hits)}
    assert sum(len(e.provenance) for e in found) == sum(len(r.hits) for r in unique)


_some = st.sampled_from(["", "u"])
_texts = st.tuples(
    st.sampled_from(["", "u", "v", "w"]), _some, _some, st.sampled_from("uv")
)  # id, url, snippet, content: so few that all ways of meeting occur


def _by_hand(lists: list[RankedList]) -> set[frozenset[tuple[str, str, int]]]:
    """The same in the plainest way: document after document, which stands where no other id of its source
    does.
    """
    ordered = sorted(lists, key=lambda r: (r.source, r.leg, r.query))
    said: list[tuple[str, str, str]] = []  # of each document, what its first copy says
    ids: list[dict[str, str]] = []  # of each document, the id that a source gives it
    hits_of: list[list[tuple[str, str, int]]] = []
    for ranked_list in ordered:
        source = ranked_list.source
        for rank, hit in enumerate(ranked_list.hits, 1):
            d = hit.document
            text = (d.url, d.snippet, d.content)
            known = [n for n, given_ids in enumerate(ids) if d.id and given_ids.get(source) == d.id]
            free = [
                n
                for n, given_ids in enumerate(ids)
                if said[n] == text and (not d.id or not given_ids.get(source))
            ]
            number = [*known, *free, len(said)][0]
            if number == len(said):
                said.append(text)
                ids.append({})
                hits_of.append([])
            if d.id:
                ids[number][source] = d.id
            hits_of[number].append((source, ranked_list.leg, rank))
    best: set[frozenset[tuple[str, str, int]]] = set()
    for places in hits_of:  # each list once, at its best rank
        best.add(
            frozenset((s, leg, min(r for t, g, r in places if (t, g) == (s, leg))) for s, leg, _ in places)
        )
    return best


@given(
    st.lists(
        st.tuples(st.sampled_from("st"), st.sampled_from("lm"), st.lists(_texts, max_size=6)), max_size=6
    )
)
def test_what_is_one_document_is_what_the_plainest_way_finds(
    raw: list[tuple[str, str, list[tuple[str, str, str, str]]]],
):
    lists = list(
        {
            (s, leg): _list(
                s, *[Document(id=i, url=u, snippet=t, content=c) for i, u, t, c in found], leg=leg
            )
            for s, leg, found in raw
        }.values()
    )
    found = {frozenset((p.source, p.leg, p.rank) for p in envelope.provenance) for envelope in dedupe(lists)}
    assert found == _by_hand(lists)


def test_a_url_and_a_snippet_that_read_alike_make_no_two_documents_one():
    with_url = Document(id="1", url="u", snippet="u", content="c")
    assert len(dedupe([_list("s", with_url), _list("t", Document(id="2", snippet="u", content="c"))])) == 2
    assert len(dedupe([_list("s", with_url), _list("t", Document(id="2", content="u"))])) == 2
