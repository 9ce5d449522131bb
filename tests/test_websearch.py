"""The text analysis and the web-search syntax of the stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextrouter.builtin.providers.filtering import labelled, matches, microseconds, moment
from contextrouter.model import Document, Period, Query
from contextrouter.scope import Scope
from contextrouter.text.analysis import analyse, atoms, words
from contextrouter.text.bm25 import rarest, saturation, weight
from contextrouter.text.languages import language_terms
from contextrouter.text.query_syntax import (
    FURTHEST,
    QueryTerms,
    Question,
    drop_exclusions,
    loosen,
    parse,
    query_terms,
    write_exclusions,
)
from contextrouter.text.stemming import begins, stem, stem_language, stemmer


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        # From the sample vocabulary of the algorithm's description, and one word for each rule.
        ("consign", "consign"),
        ("consigned", "consign"),
        ("consigning", "consign"),
        ("consignment", "consign"),
        ("consistency", "consist"),
        ("consistently", "consist"),
        ("consolation", "consol"),
        ("consolatory", "consolatori"),
        ("knackeries", "knackeri"),
        ("knavish", "knavish"),
        ("kneeling", "kneel"),
        ("knightly", "knight"),
        ("knots", "knot"),
        ("generate", "generat"),
        ("generously", "generous"),
        ("communication", "communic"),
        ("arsenal", "arsenal"),
        ("ties", "tie"),
        ("cries", "cri"),
        ("gas", "gas"),
        ("gaps", "gap"),
        ("kiwis", "kiwi"),
        ("caresses", "caress"),
        ("agreed", "agre"),
        ("hopping", "hop"),
        ("hoping", "hope"),
        ("luxuriated", "luxuri"),
        ("happy", "happi"),
        ("by", "by"),
        ("say", "say"),
        ("skies", "sky"),
        ("dying", "die"),
        ("news", "news"),
        ("proceed", "proceed"),
        ("exceeding", "exceed"),
        ("relational", "relat"),
        ("hopefulness", "hope"),
        ("analogies", "analog"),
        ("controll", "control"),
        ("rate", "rate"),
        ("youth", "youth"),
        ("yellow", "yellow"),
        ("enjoy", "enjoy"),
    ],
)
def test_stems_are_those_of_porter2(word: str, stemmed: str) -> None:
    assert stem(word) == stemmed


def test_case_accents_forms_and_quotation_do_not_part_words() -> None:
    assert words("ＦＵＬＬ Café ﬁne naïve Straße ἀρχή ёлка soft\u00adhyphen") == [
        "full",
        "cafe",
        "fine",
        "naive",
        "strasse",
        "αρχη",
        "елка",
        "softhyphen",
    ]
    assert words("И́горь й") == ["и\u0301горь", "й"]  # й is no accented и
    assert words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]


@pytest.mark.case("PG-11")
def test_every_apostrophe_is_the_same_one() -> None:
    spellings = ["O'Brien's", "O’Brien’s", "OʼBrienʼs", "O＇Brien＇s"]
    assert {tuple(words(s)) for s in spellings} == {("o", "brien")}


@pytest.mark.case("PG-01")
def test_contractions_lose_their_ending() -> None:
    assert query_terms("What's your password policies?").terms == ("password", "polici")
    assert words("don't I'll we've") == ["don", "i", "we"]


@pytest.mark.case("PG-02")
def test_operators_of_databases_are_no_operators() -> None:
    assert query_terms("R&D | budget").terms == ("r", "d", "budget")
    assert query_terms("title:cat NEAR(dog, 3) ^bird* {a}").terms == (
        "titl",
        "cat",
        "near",
        "dog",
        "3",
        "bird",
    )


@pytest.mark.case("PG-03")
def test_punctuation_between_words_changes_nothing() -> None:
    assert (
        query_terms("dog cat")
        == query_terms("dog,cat")
        == query_terms("dog, cat")
        == QueryTerms(terms=("dog", "cat"))
    )


@pytest.mark.case("PG-05")
def test_a_url_is_its_words() -> None:
    assert query_terms("example.com/a:b?x=1").terms == ("exampl", "com", "b", "x", "1")


@pytest.mark.case("PG-07")
def test_stop_words_count_when_nothing_else_is_left() -> None:
    assert query_terms("will").terms == ("will",)
    assert query_terms("the who").terms == ("the", "who")
    assert query_terms("who is Will Smith").terms == ("smith",)


@pytest.mark.parametrize(
    "text", ["", "   ", "???", "👍🏽 🎉", "- -- \" '", "OR", '""', '-""', "\ud800", "\x00"]
)
@pytest.mark.case("PG-08")
def test_without_words_there_is_nothing_to_search(text: str) -> None:
    assert query_terms(text) == QueryTerms()


def test_quotes_require_a_phrase_and_minus_excludes_one() -> None:
    asked = query_terms('budget "annual report" -draft -"old version" state-of-the-art')
    assert asked.terms == ("budget", "annual", "report", "state", "art")
    assert asked.required == ((("annual", "report"),),)
    assert asked.excluded == (("draft",), ("old", "version"))


def test_or_offers_a_choice_between_phrases_and_is_a_word_in_lower_case() -> None:
    assert query_terms('"annual report" OR budget').required == ((("annual", "report"), ("budget",)),)
    assert query_terms("cat OR dog").required == ()
    assert query_terms('"a cat" or "a dog"').required == ((("a", "cat"),), (("a", "dog"),))
    assert query_terms('OR "a cat" OR').required == ((("a", "cat"),),)


def test_curly_quotes_are_quotes_and_inches_are_not() -> None:
    assert query_terms("“annual report”").required == ((("annual", "report"),),)
    assert query_terms('5" pipe and 6" pipe').required == ()
    assert query_terms('"unbalanced quote').terms == ("unbalanc", "quot")


def test_scripts_without_spaces_are_indexed_in_pairs() -> None:
    assert analyse("東京都 ABC") == ["東京", "京都", "都", "abc"]
    assert query_terms("東京都").terms == ("東京", "京都")
    assert query_terms("京").terms == ("京" + FURTHEST,)
    assert query_terms('"東京都"').required == ((("東京", "京都"),),)
    assert analyse("서울은 ไทย") == ["서울", "울은", "은", "ไท", "ทย", "ย"]
    assert analyse("OpenAIは") == ["openai", "は"]


def test_names_are_compared_by_words_or_single_characters() -> None:
    assert atoms("OpenAIは東京") == ["openai", "は", "東", "京"]


@given(st.text(max_size=300))
def test_any_text_can_be_asked_and_indexed(text: str) -> None:
    asked = query_terms(text)
    for term in (
        *asked.terms,
        *(t for p in asked.excluded for t in p),
        *(t for g in asked.required for p in g for t in p),
    ):
        assert term
        assert not set(term) & set(" \"'*():^-+\x00")
    assert analyse(" ".join(words(text))) is not None
    assert words(" ".join(words(text))) == words(text)  # folding is done once


@given(st.text(alphabet="東京都大阪 ab", max_size=30), st.integers(0, 30), st.integers(1, 10))
def test_every_part_of_a_run_is_found_as_a_phrase(text: str, start: int, size: int) -> None:
    run = "東京都大阪府"[start % 5 :][:size]
    whole = analyse(text + "大阪" + run + "京")
    (group,) = query_terms(f'"{run}"').required
    (phrase,) = group
    *first, last = phrase
    ends = [
        t
        for t in range(len(whole))
        if whole[t] == last or (last.endswith(FURTHEST) and whole[t].startswith(last[:-1]))
    ]
    assert any(whole[end - len(first) : end] == first for end in ends)


def test_rare_terms_are_read_first_and_one_always() -> None:
    counts = [("the", 900), ("sun", 5), ("comet", 2), ("absent", 0)]
    assert rarest(counts, 10_000) == ["comet", "sun", "the"]
    assert rarest(counts, 10) == ["comet", "sun"]
    assert rarest([("the", 900)], 10) == ["the"]
    assert rarest([], 10) == []


def test_weights_are_those_of_bm25() -> None:
    assert weight(10, 1) == pytest.approx(1.9924301646902063)  # ln(1 + 9.5 / 1.5)
    assert weight(10, 10) == pytest.approx(0.04652001563489291)  # ln(1 + 0.5 / 10.5)
    assert saturation(1.0, 1.0) == pytest.approx(1.0)  # 1 * 1.9 / (1 + 0.9)
    assert saturation(2.0, 2.0) == pytest.approx(3.8 / 3.26)  # 0.9 * (0.6 + 0.4 * 2) = 1.26


def test_a_chunk_is_never_laxer_than_its_document() -> None:
    document = Document(id="d", content="", tenant="t", compartment="hr", sensitivity="confidential")
    first, second = labelled(
        document, [Document(content="a"), Document(id="own", content="b", sensitivity="public")]
    )
    assert (first.id, first.parent, first.tenant, first.compartment, first.sensitivity) == (
        "d#0",
        "d",
        "t",
        "hr",
        "confidential",
    )
    assert (second.id, second.sensitivity) == ("own", "public")
    assert matches(first, Query(text="", scope=Scope(tenant="t"))) is False
    with pytest.raises(ValueError, match="two chunks with the id 'x'"):
        labelled(document, [Document(id="x", content=""), Document(id="x", content="")])


@given(st.datetimes())
@pytest.mark.case("GRA-01")
def test_naive_moments_are_utc(naive: object) -> None:
    from datetime import UTC, datetime

    assert isinstance(naive, datetime)
    assert moment(microseconds(naive)) == naive.replace(tzinfo=UTC)


def test_undated_documents_are_in_no_period() -> None:
    assert matches(Document(content=""), Query(text="", period=Period())) is False


LETTERS = st.text(alphabet="aeiouylstrngdcm", min_size=1, max_size=6)
ENDINGS = st.sampled_from(
    "s es ed eed ing ying ies ied edly ingly ization ational fulness biliti ability ogist ogies ency ance ously"
    " ement ion ical ative y e".split()
)


@given(
    st.one_of(
        st.builds("".join, st.tuples(LETTERS, ENDINGS)), st.text("abcdefghijklmnopqrstuvwxyz", min_size=1)
    )
)
@example("dying")
@example("skies")
@example("idly")
@example("organization")
def test_a_word_begins_with_what_its_stem_s_words_begin_with(word: str) -> None:
    assert word.startswith(begins(stem(word)))


def test_stems_are_those_of_a_language_and_of_english_without_one() -> None:
    german = stemmer("de-AT")
    assert german is not None
    assert {german(word) for word in ("haus", "hauser", "hausern")} == {"haus"}
    assert [stemmer(language) for language in (None, "", "en", "en-GB", "tlh")] == [None] * 5
    assert stem("connections", "tlh") == "connections"


def test_a_question_has_the_stems_of_each_language_word_by_word() -> None:
    """German stems: "haus" of both, "news"; French ones: "haus" of "hauser", "new"; English ones: no other."""
    asked = language_terms("the news of Häuser Häusern -Haus", ["fr", "de"])
    assert asked.words == [
        {"news": {"en", "de"}, "new": {"fr"}},
        {"hauser": {"en"}, "haus": {"de", "fr"}},
        {"hausern": {"en", "fr"}},
    ]
    assert asked.phrases() == [(None, QueryTerms(excluded=(("haus",),)))]
    asked = language_terms('"alte Häuser"', ["de"])
    assert asked.phrases() == [
        ({"en"}, QueryTerms(required=((("alt", "hauser"),),))),
        ({"de"}, QueryTerms(required=((("alt", "haus"),),))),
    ]
    assert [
        asked.allows([fields], language)
        for fields, language in ([["alt", "haus"], "de"], [["alt", "haus"], "en"])
    ] == [True, False]
    assert asked.without_phrases().phrases() == []


def test_a_language_is_that_of_its_stems() -> None:
    codes = {"de-AT": "de", "PT_br": "pt", "en-GB": "en", "tlh": "en", "": "en", None: "en"}
    assert {code: stem_language(code) for code in codes} == codes


def test_threads_stem_at_the_same_time() -> None:
    """A stemmer holds the word it works on: two threads must not share one."""
    words = [f"{'ab'[n % 2]}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}ations" for n in range(20_000)]
    expected = [stem.__wrapped__(word) for word in words]
    with ThreadPoolExecutor(4) as pool:
        stems = list(pool.map(stem.__wrapped__, words, chunksize=500))
    assert stems == expected


def test_a_loosened_question_has_no_phrase_and_keeps_its_exclusions() -> None:
    assert loosen('the "machine learning" -"old book" -python') == 'the machine learning -"old book" -python'
    assert loosen('"-not OR so"') == "not or so"


@given(st.text(max_size=60))
def test_any_question_can_be_loosened_and_written_again(text: str) -> None:
    question = parse(text)
    assert parse(loosen(text)).required == ()
    assert parse(loosen(text)).excluded == question.excluded
    assert parse(drop_exclusions(text)).only_excludes is False
    assert parse(write_exclusions(question.excluded)) == Question((), question.excluded)
