"""The preset `multisource`: every key of the reference's settings changes the answer; indexes of large tables."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.postgres_server import run, schema, uri
from support.presets import fill, piece, system

from contextrouter import Context, Fact
from contextrouter.contracts import Entry

VERBATIM = """
[rag]
provider = "library"  # or "vertex"
max_retrieval_queries = 3
general_retrieval_enabled = true
general_retrieval_final_count = 10
max_books = 5
max_videos = 3
max_qa = 5
max_web = 3
hybrid_fusion = "rrf"
rrf_k = 60
hybrid_vector_weight = 0.7
hybrid_text_weight = 0.3
enable_fts = true
graph_facts_enabled = true
max_graph_facts = 50
cache_enabled = true
cache_ttl_seconds = 3600
"""
PER_KIND = "general_retrieval_enabled = false"
WEIGHTED = 'hybrid_fusion = "weighted"'


def entries() -> list[Entry]:
    """Seven documents of each kind, some with the words of the question; sixty facts about tides."""
    facts = [Fact(subject="tides", predicate="cause", object=f"effect {n}") for n in range(60)]
    names = [(kind, n) for n in range(7) for kind in ("book", "video", "qa", "web", "note")]
    return [
        piece(
            f"{kind}{n}",
            f"{kind}{n} " + "tides " * (place % 4) + "word " * 40,
            cosine=0.9 - place / 100,
            kind=kind,
            facts=facts if place == 0 else [],
        )
        for place, (kind, n) in enumerate(names)
    ]


def observe(context: Context, second: Context) -> dict[str, Any]:
    """What a caller sees of two equal questions in a row."""
    return {
        "queries": context.intent.queries,
        "documents": [(envelope.document.id, round(envelope.score, 6)) for envelope in context.envelopes],
        "facts": len(context.facts),
        "asked": sorted((r.source, r.leg) for r in context.coverage if r.status == "ok"),
        "cached": second.cached,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


async def seen(folder: Path, rag: str) -> dict[str, Any]:
    toml = "[connectors.news]\nenabled = false\n[providers.other]\nuse = 'sqlite'\npath = 'data/other.db'\n"
    router = system(folder, "multisource", f"{rag}\n{toml}")
    if not (folder / "data" / "library.db").exists():
        await fill(router, "library", *entries())
        await fill(router, "other", piece("other", "other tides", cosine=0.99))
        router = system(folder, "multisource", f"{rag}\n{toml}")
    async with router:
        first = await router.route("Which books are about the tides of the sea?")
        await asyncio.sleep(0.02)
        return observe(first, await router.route("Which books are about the tides of the sea?"))


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("", 'provider = ["library", "other"]', "asked"),
        ("", "max_retrieval_queries = 1", "queries"),
        ("", PER_KIND, "documents"),
        ("", "general_retrieval_final_count = 4", "documents"),
        (PER_KIND, "max_books = 2", "documents"),
        (PER_KIND, "max_videos = 2", "documents"),
        (PER_KIND, "max_qa = 2", "documents"),
        (PER_KIND, "max_web = 2", "documents"),
        ("", WEIGHTED, "documents"),
        ("", "rrf_k = 10", "documents"),
        (WEIGHTED, "hybrid_vector_weight = 0.1", "documents"),
        (WEIGHTED, "hybrid_text_weight = 0.9", "documents"),
        ("", "enable_fts = false", "asked"),
        ("", "graph_facts_enabled = false", "facts"),
        ("", "max_graph_facts = 3", "facts"),
        ("", "cache_enabled = false", "cached"),
        ("", "cache_ttl_seconds = 0.001", "cached"),
    ],
)
@pytest.mark.case("R16")
@pytest.mark.without(rag__cache_enabled=False)
async def test_the_reference_settings_work_verbatim_and_every_key_changes_the_answer(
    folder: Path, before: str, after: str, what: str
):
    changed = after.partition(" ")[0]
    base = put(VERBATIM, before)
    plain, other = await seen(folder, base), await seen(folder, put(base, after))
    assert f"\n{changed} = " in VERBATIM
    assert plain[what] != other[what]


def put(text: str, line: str) -> str:
    """Put a line in the place of the one with its key."""
    lines: Sequence[str] = text.splitlines()
    key = line.partition(" ")[0]
    return "\n".join(line if key and each.startswith(f"{key} = ") else each for each in lines)


@pytest.mark.case("R17")
@pytest.mark.without(providers__postgres__index="hnsw")
async def test_an_ivfflat_index_gets_as_many_lists_as_the_root_of_the_rows(tmp_path: Path):
    """1,024 rows: 32 lists. Without the key the index is HNSW."""
    dsn, name = await asyncio.to_thread(uri), schema()
    toml = f'[rag]\nprovider = "postgres"\n[providers.postgres]\ndsn = "{dsn}"\nschema = "{name}"\n'
    try:
        router = system(tmp_path, "multisource", toml)
        await fill(router, "postgres", *(piece(f"d{n}", "x", cosine=n / 1024) for n in range(1024)))
        assert "hnsw" in await definition(name)
        other = system(tmp_path, "multisource", toml + 'index = "ivfflat"\n')
        store: Any = other.instances.all["provider", "postgres"]
        async with other:
            changes = await store.tune(apply=True)
            assert changes[0].endswith("; ivfflat WITH (lists = 32)")
        assert "lists='32'" in await definition(name)
    finally:
        await run(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


async def definition(name: str) -> str:
    rows = await run(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND indexdef ~ 'vector_cosine'", name
    )
    return " ".join(row["indexdef"] for row in rows)
