"""Which chunks the text leg of Postgres scores: no less is found than by scoring all, and what a scope hides
changes nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from hashlib import md5
from itertools import count, islice
from typing import Any

import pytest
from support.postgres_server import note_plans, open_store, run
from support.stores import entry, ids

from contextrouter.builtin.providers.postgres import Postgres, nomination
from contextrouter.builtin.providers.postgres import schema as postgres_schema
from contextrouter.builtin.providers.postgres.nomination import Nomination, Sample, Term, at_least, nominate
from contextrouter.contracts import Entry
from contextrouter.model import Query
from contextrouter.scope import Scope

WORDS = ["sun", "moon", "tide", "comet", "star", "orbit"]


def in_sample(id: str) -> bool:
    """Whether the sample has the chunk of this id."""
    return md5(id.encode()).hexdigest()[:2] in {"00", "01", "02", "03"}


SAMPLED = list(islice(filter(in_sample, (f"d{number:05}" for number in count())), 80))
"""Ids of chunks that are in the sample."""


@pytest.fixture
async def store() -> AsyncIterator[Postgres]:
    async with open_store(embedder=None) as opened:
        yield opened


def texts(seed: int, many: int) -> list[str]:
    """Texts of the words, the first of them rare and the last in nearly all."""
    chance = random.Random(seed)
    weights = [1, 2, 4, 8, 12, 16]
    return [" ".join(chance.choices(WORDS, weights, k=chance.randint(1, 14))) for _ in range(many)]


def entries(names: Sequence[str], contents: Sequence[str], **fields: Any) -> list[Entry]:
    return [entry(id, text, **fields) for id, text in zip(names, contents, strict=True)]


async def scored(store: Postgres, text: str, **query: Any) -> list[tuple[str, float | None]]:
    hits = await store.search(Query(text=text, leg="text", **query))
    return [(hit.document.id, hit.score) for hit in hits]


def few(patch: pytest.MonkeyPatch, least: int = 4) -> None:
    """Score as few of a handful as otherwise of many thousands."""
    patch.setattr(nomination, "LEAST_SCORED", least)
    patch.setattr(nomination, "SCORED_PER_HIT", 1)
    patch.setattr(nomination, "NARROW", 0)


def sampling(patch: pytest.MonkeyPatch, one_in: int = 1) -> None:
    """Look at the sample alone, and believe it."""
    for name, value in (("WHOLE", 0), ("SURE", 1), ("ONE_IN", one_in)):
        patch.setattr(nomination, name, value)


# Sums of weights as a tsquery.


async def test_at_least_finds_those_that_weigh_enough() -> None:
    chance = random.Random(2)
    for _ in range(20):
        weights = sorted((chance.randint(1, 10) for _ in range(chance.randint(1, 6))), reverse=True)
        needed = chance.randint(1, sum(weights))
        held = [chance.sample(range(len(weights)), chance.randint(0, len(weights))) for _ in range(8)]
        query = at_least([(f"'t{place}'", weight) for place, weight in enumerate(weights)], needed)
        rows = await run(
            "SELECT t.text::tsvector @@ $2::text::tsquery AS found FROM unnest($1::text[]) AS t (text)",
            [" ".join(f"t{place}" for place in places) for places in held],
            query,
        )
        right = [sum(weights[place] for place in places) >= needed for places in held]
        assert [row["found"] for row in rows] == right
    assert at_least([("'t0'", 3), ("'t1'", 2)], 6) == ""


# What is scored.


@pytest.mark.parametrize(
    "question", ["sun orbit", "sun moon star orbit", "star orbit", "orbit", " ".join(WORDS)]
)
@pytest.mark.parametrize("frequent", [True, False])
async def test_few_are_scored_and_those_that_hold_every_term_are_found(
    store: Postgres, monkeypatch: pytest.MonkeyPatch, question: str, frequent: bool
) -> None:
    """Where no more chunks than are scored hold every term, the best of them are where they are when all are
    scored; and a score is the same whichever chunks are scored.
    """
    names = [f"d{number:03}" for number in range(120)]
    contents = texts(3, 120)
    await store.upsert(entries(names, contents))
    if not frequent:
        await run(f'DROP INDEX "{store.pool.schema}".chunks_frequent')
    right = dict(await scored(store, question, limit=200))
    whole = {
        id for id, text in zip(names, contents, strict=True) if set(question.split()) <= set(text.split())
    }
    few(monkeypatch, 10)
    found = await scored(store, question, limit=10)
    assert len(found) == min(10, len(right))
    assert found == [(id, right[id]) for id, _ in found]
    if len(whole) <= 10 * nomination.TOO_MANY:
        best = list(right)[:10]
        assert whole.intersection(best) <= {id for id, _ in found}


async def test_a_common_word_finds_the_chunks_that_have_it_in_the_title_or_often(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = [entry(f"a{n:02}", f"sun and word{n}") for n in range(60)]
    await store.upsert(
        [
            *once,
            entry("often", "sun and sun and sun again"),
            entry("titled", "sun and words", title="Sun"),
            entry("more", "sun " * 7),
        ]
    )
    few(monkeypatch, 3)
    assert set(await ids(store, "sun", limit=3)) == {"often", "titled", "more"}
    assert len(await ids(store, "sun", limit=30)) == 30
    assert len(await ids(store, "sun", limit=100)) == 63


async def test_filters_and_phrases_are_no_reason_to_find_less(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.upsert(
        [
            entry(f"d{n:02}", "moon sun" if n % 9 else "sun moon", kind="web" if n % 7 else "book")
            for n in range(63)
        ]
    )
    few(monkeypatch, 2)
    assert len(await ids(store, "sun moon", filters={"kind": "book"}, limit=5)) == 5
    assert len(await ids(store, "sun moon", filters={"kind": "book"}, limit=20)) == 9
    assert len(await ids(store, '"sun moon"', limit=20)) == 7
    assert len(await ids(store, "sun -moon", limit=20)) == 0


async def test_equal_scores_go_by_id_however_few_are_scored(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"d{number:02}" for number in range(50)]
    await store.upsert(entries(random.Random(1).sample(names, 50), ["sun moon"] * 50))
    few(monkeypatch)
    assert await ids(store, "sun moon", limit=10) == names[:10]


async def test_how_much_a_scope_hides_changes_no_estimate_and_no_score(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope of 60 chunks has a sample of them. Beside eight times as many that it hides it is read whole, and
    gives the same.
    """
    for name, value in (("WHOLE", 20), ("NARROW", 80), ("SURE", 3)):
        monkeypatch.setattr(nomination, name, value)
    mine = Scope(tenant="mine")
    names = [*SAMPLED[:9], *(f"e{number:03}" for number in range(51))]
    await store.upsert(entries(names, texts(5, 60), tenant="mine"))
    questions = ["sun orbit", " ".join(WORDS), "star"]

    async def told() -> list[Any]:
        counts = await store.statistics(WORDS, mine)
        return [counts, *[await scored(store, question, scope=mine, limit=20) for question in questions]]

    alone = await told()
    await store.upsert(entries([f"h{n:03}" for n in range(500)], texts(6, 500), tenant="other"))
    assert await told() == alone
    assert alone[0].frequencies["orbit"] % nomination.ONE_IN == 0 or alone[0].frequencies["orbit"] == 60


@pytest.mark.parametrize(
    ("least", "terms"),
    [
        (2, "('a') & (('b'))"),
        (4, "('a')"),
        (5, "('a')"),
        (6, "('a') | ('b')"),
        (11, "('a') | ('b') | ('c')"),
        (99, "('a') | ('b') | ('c')"),
    ],
)
def test_the_heaviest_chunks_are_scored_as_many_as_are_wanted(
    monkeypatch: pytest.MonkeyPatch, least: int, terms: str
) -> None:
    """Two chunks have both rare terms, three the rarest one alone, five the other, and nine the common one."""
    few(monkeypatch, least)
    patterns = Counter({"110": 2, "100": 3, "010": 5, "001": 9})
    idf = {"'a'": 6.0, "'b'": 4.0, "'c'": 1.0}
    asked = [Term(query, query.strip("'"), number) for number, query in enumerate(idf)]
    assert nominate(asked, idf, Sample(1, patterns, patterns, patterns), 1, frequent=False)[0].terms == terms


@pytest.mark.parametrize(("common", "nominating"), [(50, 17), (200, 12), (5, 30)])
def test_of_long_questions_the_rarest_terms_nominate(
    monkeypatch: pytest.MonkeyPatch, common: int, nominating: int
) -> None:
    """Where eight find less than the 100 that are wanted, as many as find 400; or all."""
    few(monkeypatch, 100)
    terms = [Term(f"'t{number:02}'", f"t{number:02}", number) for number in range(30)]
    idf = {term.tsquery: 30.0 - term.word for term in terms}
    held = ["".join("1" if place == number else "0" for place in range(30)) for number in range(30)]
    patterns = Counter({one: 5 if number < 10 else common for number, one in enumerate(held)})
    chosen = nominate(terms, idf, Sample(1, patterns, patterns, patterns), 10, frequent=True)
    every = Nomination(" | ".join(f"('t{number:02}')" for number in range(30)))
    first = Nomination(every.terms[: len("('t00') | ") * nominating - len(" | ")])
    assert chosen == ([first, every] if nominating < 30 else [every])


# The sample.


async def test_a_sample_of_all_finds_what_looking_at_all_finds(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.upsert(entries(SAMPLED, texts(5, len(SAMPLED))))
    questions = ["sun orbit", "moon star", " ".join(WORDS), "comet -tide", "nothing"]
    few(monkeypatch)
    whole = [await scored(store, question, limit=7) for question in questions]
    counted = await store.statistics([*WORDS, "sun orbit"], None)
    sampling(monkeypatch)
    assert [await scored(store, question, limit=7) for question in questions] == whole
    assert await store.statistics([*WORDS, "sun orbit"], None) == counted


async def test_a_common_term_is_estimated_and_a_rare_one_counted(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of chunks in the sample, one stands for sixty-four; but no term has more chunks than there are."""
    outside = [name for n in range(300) if (name := f"n{n}") and not in_sample(name)][:198]
    tide = ["tide" if number < 150 else "comet" for number in range(198)]
    await store.upsert(
        [
            *entries(outside, tide),
            *entries(SAMPLED[:2], ["sun moon", "sun"]),
            *entries(SAMPLED[2:6], ["star", "star", "star", "star"]),
        ]
    )
    terms = ["sun", "moon", "tide", "star"]
    exact = (await store.statistics(terms, None)).frequencies
    assert exact == {"sun": 2, "moon": 1, "tide": 150, "star": 4}
    sampling(monkeypatch, one_in=64)
    monkeypatch.setattr(nomination, "SURE", 2)
    assert (await store.statistics(terms, None)).frequencies == exact | {"sun": 128, "star": 204}


@pytest.mark.parametrize("one_in", [1, 64])
async def test_what_a_scope_hides_moves_no_score_and_no_estimate(
    store: Postgres, monkeypatch: pytest.MonkeyPatch, one_in: int
) -> None:
    mine, theirs = SAMPLED[::2], SAMPLED[1::2]
    outside = [f"n{number}" for number in range(40) if not in_sample(f"n{number}")]
    await store.upsert(entries(mine, texts(7, len(mine)), tenant="a"))
    await store.upsert(entries(outside, [f"{text} quasar" for text in texts(8, len(outside))], tenant="a"))
    few(monkeypatch)
    sampling(monkeypatch, one_in)
    scope = Scope(tenant="a")

    async def told() -> object:
        questions = ("sun orbit", "star", "moon -tide", "quasar tide")
        found = [await scored(store, question, scope=scope, limit=6) for question in questions]
        return found, await store.statistics([*WORDS, "quasar"], scope)

    before = await told()
    await store.upsert(entries(theirs, ["sun moon orbit"] * len(theirs), tenant="b"))
    await store.upsert(entries(["x", "y"], ["orbit quasar " * 9] * 2, tenant="a", compartment="legal"))
    assert await told() == before


@pytest.mark.parametrize(
    "what", ["the sun", "sun sun", "sun sun sun", "sun " * 5, "sun " * 6, "x " + "sun " * 40]
)
@pytest.mark.parametrize(
    "fields", [{}, {"title": "Sun"}, {"path": ("sun",)}, {"title": "Sun", "path": ("sun",)}]
)
async def test_the_index_of_frequent_terms_has_what_the_sample_takes_for_frequent(
    store: Postgres, what: str, fields: dict[str, Any]
) -> None:
    await store.upsert([entry("d", what, **fields)])
    async with store.pool.transaction() as connection:
        totals = await nomination.read_totals(connection, None)
        sample = await nomination.read_sample(connection, [Term("'sun'", "sun", 0)], totals, None)
        lexemes = await connection.fetchval("SELECT tsvector_to_array(frequent_terms(terms)) FROM chunks")
    (digit,) = sample.patterns
    assert int(digit) == 1 + ("sun" in lexemes) + ("sun" + nomination.VERY in lexemes)


async def test_the_server_reads_the_indexes_that_were_made_for_it(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the plans of the very statements that the store sends."""
    names = [*SAMPLED, *(f"n{number}" for number in range(300))]
    await store.upsert(entries(names, ["sun moon sun sun"] * len(names)))
    few(monkeypatch)
    sampling(monkeypatch)
    await run(f'ANALYZE "{store.pool.schema}".chunks')
    plans = note_plans(monkeypatch, "FROM chunks")
    await ids(store, "sun moon", limit=2)
    assert "Index Scan on chunks_sample" in plans[0]
    assert any("Index Scan on chunks_frequent" in plan for plan in plans)
    assert not any("Seq Scan on chunks" in plan for plan in plans)


async def test_a_store_of_the_version_before_is_searched_until_it_is_migrated(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:4])
        older.setattr(postgres_schema, "VERSION", 4)
        await store.upsert(entries(SAMPLED, texts(9, len(SAMPLED))))
    few(monkeypatch)
    sampling(monkeypatch)
    before = await ids(store, "star orbit", limit=5)
    assert len(before) == 5
    assert [said for said in await store.tune() if "frequent" in said] == []
    assert await store.migrate() == [5]
    assert len(await ids(store, "star orbit", limit=5)) == 5
    assert await store.tune() == []
