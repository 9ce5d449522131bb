"""Conformance of built-in plugins in configurations that their examples do not show.

Stores with vectors, facts over several hops, other cuts: each keeps the laws that apply to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from contextrouter.builtin.embedders.prediction_server import PredictionServer
from contextrouter.builtin.embedders.vertex import VertexEmbedder
from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.builtin.interpreters.normalize import Normalize
from contextrouter.builtin.interpreters.periods import Periods
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.postgres.embedded import PREFIX, example_folder
from contextrouter.builtin.providers.sqlite import Sqlite, write
from contextrouter.builtin.providers.sqlite.file import StoreFile
from contextrouter.builtin.providers.vertex import Vertex
from contextrouter.builtin.providers.vertex.collection_server import CollectionServer
from contextrouter.builtin.providers.vertex_index import VertexIndex
from contextrouter.builtin.providers.vertex_index.index_server import IndexServer
from contextrouter.builtin.providers.vertex_search import VertexSearch
from contextrouter.builtin.providers.vertex_search.search_server import SearchServer
from contextrouter.builtin.stages.freshness import Freshness
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.contracts import Entry, Plugin
from contextrouter.model import Document, Fact
from contextrouter.testing import Law, judge, laws_of, subject_of


class Variant(NamedTuple):
    """A plugin in one configuration. `make` takes a folder that is empty but for what `prepare` put there."""

    cls: type[Plugin]
    make: Callable[[Path], Plugin]
    questions: Sequence[str] = ()
    prepare: Callable[[Path], None] = lambda folder: None


def make_sqlite(folder: Path) -> Plugin:
    return Sqlite(path=str(folder / f"{uuid.uuid4().hex}.db"), embedder="default")


def make_postgres(folder: Path) -> Plugin:
    """Use the approximate index, however few the rows are."""
    schema = f"variant_{uuid.uuid4().hex[:24]}"
    return Postgres(dsn=PREFIX + example_folder(), schema=schema, exact_below=0, pool_size=4)


def make_vertex(folder: Path) -> Plugin:
    store = Vertex(collection="variant")
    store._connection.server = CollectionServer("variant", 16)
    return store


def make_vertex_index(folder: Path) -> Plugin:
    """With texts in a store that has no vectors of its own, and an index whose restricts narrow."""
    texts = Memory()
    provider = VertexIndex(texts=texts, index_endpoint="1", deployed_index="example", index="2")
    provider._admin.server = IndexServer()
    return provider


def make_vertex_embedder() -> Plugin:
    embedder = VertexEmbedder(model="gemini-embedding-2", dimensions=16)
    embedder._connection.server = PredictionServer()
    return embedder


def make_vertex_search(folder: Path) -> Plugin:
    provider = VertexSearch(data_store="example", mode="documents")
    provider._connection.server = SearchServer(chunked=False)
    return provider


def write_facts(folder: Path) -> None:
    triples = [
        ("Moon", "orbits", "Earth", 1.0),
        ("Moon", "raises", "tides", 0.9),
        ("Sun", "raises", "tides", 0.4),
        ("Earth", "orbits", "Sun", 1.0),
        ("Moon", "reflects", "sunlight", 0.9),
        ("OpenAI", "founded_by", "Sam Altman", 0.8),
    ]
    facts = [Fact(subject=s, predicate=p, object=o, confidence=c) for s, p, o, c in triples]
    hidden = Fact(
        subject="Moon",
        predicate="hides",
        object="base",
        tenant="acme",
        compartment="hr",
        sensitivity="restricted",
    )
    document = Document(id="sky", content="sky")
    rows = [write.prepare(Entry(document=document, chunks=[document], facts=[*facts, hidden]), ())]
    file = StoreFile(str(folder / "facts.db"), busy_timeout=5.0, threads=1)
    file.write_here(lambda connection: write.upsert(connection, rows, "", 0))
    file.forget()


VARIANTS = {
    "memory with vectors": Variant(Memory, lambda folder: Memory(embedder="default")),
    "sqlite with vectors": Variant(Sqlite, make_sqlite),
    "postgres with vectors": Variant(Postgres, make_postgres),
    "vertex with vectors": Variant(Vertex, make_vertex),
    "vertex_index filled by ingestion": Variant(VertexIndex, make_vertex_index),
    "vertex_search for documents": Variant(VertexSearch, make_vertex_search),
    "embeddings of one text a request": Variant(VertexEmbedder, lambda folder: make_vertex_embedder()),
    "facts over several hops": Variant(
        SqliteFacts,
        lambda folder: SqliteFacts(path=str(folder / "facts.db"), hops=3),
        ("What does the Moon do?", "Earth and Sun", "Who founded OpenAI?"),
        write_facts,
    ),
    "normalize with periods": Variant(
        Normalize, lambda folder: Normalize(extract_period=True, timezone="Europe/Berlin", max_queries=2)
    ),
    "rolling periods": Variant(
        Periods, lambda folder: Periods(spans="rolling", timezone="Europe/Berlin", week_starts="sunday")
    ),
    "freshness that decays": Variant(
        Freshness,
        lambda folder: Freshness(mode="decay", half_life_days=1.0, floor=0.0, field="synced_at", missing=0.0),
    ),
    "chunks without overlap": Variant(Chunk, lambda folder: Chunk(target=64, maximum=100, overlap=0)),
}
CASES = [
    (name, law)
    for name, variant in VARIANTS.items()
    for law in laws_of(variant.cls)
    if law.applies_to(variant.make(Path("unopened")))
]


@pytest.mark.parametrize(("name", "law"), CASES, ids=[f"{name}-{law.name}" for name, law in CASES])
def test_variant_keeps_the_law(name: str, law: Law, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    variant.prepare(tmp_path)
    subject = subject_of(variant.cls, lambda: variant.make(tmp_path), questions=variant.questions)
    finding = judge(subject, law)
    assert finding.status == "ok", f"{law.says} But {finding.why}."


def test_variants_with_vectors_are_asked_the_laws_of_stores() -> None:
    stores = ("memory", "sqlite", "postgres", "vertex")
    for name in (*(f"{store} with vectors" for store in stores), "vertex_index filled by ingestion"):
        assert {"canaries_never_leave_their_scope", "deleted_is_gone"} <= {
            law.name for variant, law in CASES if variant == name
        }
