"""Documents of others move neither scores nor order of mine: in the stores, in their statistics, and
calibrated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextrouter import ContextRouter
from contextrouter.builtin.connectors.files import Files
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.sqlite import Sqlite, text_leg
from contextrouter.contracts import Entry
from contextrouter.model import Context, Document, Query, Request
from contextrouter.scope import SHARED, Scope

SCOPE = Scope(tenant="a", compartments=frozenset({"hr"}), ceiling="internal")
_WORDS = ["sun", "moon", "tide", "comet", "\u4eac\u90fd", "\u4eac\u6c34"]
_TEXTS = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=6).map(" ".join)
_MINE = st.builds(
    Document,
    content=_TEXTS,
    title=_TEXTS,
    tenant=st.sampled_from(["a", SHARED]),
    compartment=st.sampled_from([None, "hr"]),
)
_OTHERS = (
    st.builds(Document, content=_TEXTS, title=_TEXTS, tenant=st.sampled_from(["b", None, "A"]))
    | st.builds(Document, content=_TEXTS, tenant=st.just("a"), compartment=st.just("legal"))
    | st.builds(
        Document,
        content=_TEXTS,
        tenant=st.just("a"),
        sensitivity=st.sampled_from(["restricted", "unheard-of"]),
    )
)
_QUESTIONS = st.sampled_from(["sun", "tide of the moon", "comet sun", "\u4eac", "moon -sun"])


def entries(documents: Sequence[Document], mark: str) -> list[Entry]:
    named = [document.replace(id=f"{mark}{number}") for number, document in enumerate(documents)]
    return [Entry(document=document, chunks=[document]) for document in named]


async def told(store: Memory | Sqlite, question: str) -> object:
    hits = await store.search(Query(text=question, leg="text", scope=SCOPE, limit=20))
    return [(hit.document.id, hit.score) for hit in hits], await store.statistics(_WORDS, SCOPE)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mine=st.lists(_MINE, min_size=1, max_size=5),
    others=st.lists(_OTHERS, min_size=1, max_size=5),
    questions=st.lists(_QUESTIONS, min_size=1, max_size=3, unique=True),
)
def test_others_documents_move_no_score(
    tmp_path: Path, mine: list[Document], others: list[Document], questions: list[str]
) -> None:
    async def compare() -> None:
        for store in (Memory(), Sqlite(path=str(tmp_path / f"{time.monotonic_ns()}.db"), embedder=None)):
            await store.open()
            await store.upsert(entries(mine, "m"))
            before = [await told(store, question) for question in questions]
            await store.upsert(entries(others, "o"))
            assert [await told(store, question) for question in questions] == before
            await store.delete(["o0"], others[0].tenant)
            assert [await told(store, question) for question in questions] == before
            await store.aclose()

    asyncio.run(compare())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_terms_that_only_others_have_take_no_place_of_those_a_character_begins(
    tmp_path: Path, kind: str
) -> None:
    """A character stands for 50 terms it begins; others' 60 come first by code point, mine after them."""
    store = Memory() if kind == "memory" else Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    await store.upsert(
        entries([Document(content="\u4eac\u90fd", tenant="a"), Document(content="sun", tenant="a")], "m")
    )
    before = await told(store, "\u4eac")
    await store.upsert(
        entries([Document(content="\u4eac" + chr(0x4E00 + n), tenant="b") for n in range(60)], "o")
    )
    assert await told(store, "\u4eac") == before
    assert before[0][0][0] == "m0"  # type: ignore[index]  # hits, then scores
    await store.aclose()


async def test_which_terms_are_too_common_to_read_is_decided_by_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nine terms, more than are read unseen, the budget of 20 postings covers all of mine; others' would
    use it up.
    """
    monkeypatch.setattr(text_leg, "POSTINGS", 20)
    store = Sqlite(path=str(tmp_path / "s.db"), embedder=None)
    await store.open()
    words = [f"word{n}" for n in range(9)]
    await store.upsert(entries([Document(content=word, tenant="a") for word in words], "m"))
    before = await told(store, " ".join(words))
    await store.upsert(entries([Document(content=words[0], tenant="b") for _ in range(15)], "o"))
    assert await told(store, " ".join(words)) == before
    assert len(before[0]) == 9  # type: ignore[index]  # hits, then scores
    await store.aclose()


@settings(max_examples=25, deadline=None)
@given(
    mine=st.lists(_MINE, min_size=2, max_size=6),
    others=st.lists(_OTHERS, min_size=1, max_size=6),
    question=st.sampled_from(["sun moon", "tide of the moon", "comet"]),
)
def test_others_documents_move_no_calibrated_score(
    mine: list[Document], others: list[Document], question: str
) -> None:
    async def routed(*documents: Sequence[Document]) -> Context:
        stores = {}
        for name in ("one", "two"):
            stores[name] = Memory()
            for mark, found in zip("mo", documents, strict=False):
                await stores[name].upsert(entries(found[name == "two" :: 2], f"{name}-{mark}"))
        async with ContextRouter({"rag": {"interpreters": []}}, providers=stores) as router:
            return await router.route(Request(question=question, scope=SCOPE))

    def seen(context: Context) -> object:
        found = context.envelopes
        ranked = [
            (each.document.id, each.score, [(p.source, p.rank, p.score) for p in each.provenance])
            for each in found
        ]
        return ranked, {step.name: step.note for step in context.trace.steps}

    async def compare() -> None:
        assert seen(await routed(mine, others)) == seen(await routed(mine))

    asyncio.run(compare())


async def test_counts_by_label_follow_what_comes_goes_and_is_replaced(tmp_path: Path):
    """Beside a reader that looks anew each time, one that only counts what is new says the same after every
    write.
    """
    path = str(tmp_path / "s.db")
    writer, kept = Sqlite(path=path, embedder=None), Sqlite(path=path, embedder=None)
    for store in (writer, kept):
        await store.open()

    async def same() -> int:
        fresh = Sqlite(path=path, embedder=None)
        await fresh.open()
        told = await fresh.statistics(["sun"], SCOPE)
        assert await kept.statistics(["sun"], SCOPE) == told
        await fresh.aclose()
        return told.documents

    await writer.upsert(
        entries([Document(content="sun", tenant="a"), Document(content="sun moon", tenant="b")], "x")
    )
    assert await same() == 1
    await writer.upsert(
        entries([Document(content="sun tide", tenant="a"), Document(content="moon", tenant=SHARED)], "y")
    )
    assert await same() == 3
    await writer.upsert(entries([Document(content="sun sun moon tide", tenant="a")], "y"))  # y0 is replaced
    assert await same() == 3
    await writer.delete(["x0"], "a")
    assert await same() == 2
    await writer.vacuum()
    await writer.upsert(entries([Document(content="comet", tenant="a")], "z"))
    assert await same() == 3
    await writer.clear()
    assert await same() == 0
    await writer.upsert(entries([Document(content="comet", tenant="a")], "z"))
    assert await same() == 1
    for store in (writer, kept):
        await store.aclose()


async def test_files_of_others_move_no_score_of_mine(tmp_path: Path):
    def write(name: str, labels: str, text: str) -> None:
        (tmp_path / name).write_text(f"---\n{labels}\n---\n{text}\n", "utf-8")

    write("mine.md", "tenant: a", "The sun and the moon.")
    write("tide.md", "tenant: a", "The tide of the moon, and much more of it.")

    async def found() -> list[tuple[str, float | None]]:
        source = Files(path=str(tmp_path))
        await source.open()
        hits = await source.search(Query(text="sun moon tide", scope=SCOPE))
        await source.aclose()
        return [(hit.document.id, hit.score) for hit in hits]

    before = await found()
    assert len(before) == 2
    write("theirs.md", "tenant: b", "The sun, the sun, the sun " + "and the sun " * 30)
    write("secret.md", "tenant: a\nsensitivity: restricted", "sun")
    assert await found() == before
