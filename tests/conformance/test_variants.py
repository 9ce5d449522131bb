"""Plugins in forms that their examples do not show keep the laws too: stores with vectors, facts over several
hops, other cuts.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from contextrouter.builtin.facts.sqlite import SqliteFacts
from contextrouter.builtin.interpreters.normalize import Normalize
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.postgres.embedded import PREFIX, example_folder
from contextrouter.builtin.providers.sqlite import Sqlite, write
from contextrouter.builtin.providers.sqlite.file import StoreFile
from contextrouter.builtin.stages.freshness import Freshness
from contextrouter.builtin.transforms.chunking import Chunk
from contextrouter.contracts import Entry, Plugin
from contextrouter.model import Document, Fact
from contextrouter.testing import FactSourceSuite, InterpreterSuite, ProviderSuite, StageSuite, TransformSuite


class TestMemoryWithVectors(ProviderSuite):
    plugin = Memory

    def make(self) -> Plugin:
        return Memory(embedder="default")


class TestSqliteWithVectors(ProviderSuite):
    plugin = Sqlite

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder, self.made = tmp_path, 0

    def make(self) -> Plugin:
        self.made += 1
        return Sqlite(path=str(self.folder / f"{self.made}.db"), embedder="default")


class TestPostgresWithVectors(ProviderSuite):
    """Its approximate index is used, however few the rows."""

    plugin = Postgres

    def make(self) -> Plugin:
        return Postgres(
            dsn=PREFIX + example_folder(),
            schema=f"variant_{uuid.uuid4().hex[:24]}",
            exact_below=0,
            pool_size=4,
        )


class TestFactsOfManyHops(FactSourceSuite):
    plugin = SqliteFacts
    questions: ClassVar[Sequence[str]] = ("What does the Moon do?", "Earth and Sun", "Who founded OpenAI?")

    @pytest.fixture(autouse=True)
    def _store(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "facts.db")
        told = [
            ("Moon", "orbits", "Earth", 1.0),
            ("Moon", "raises", "tides", 0.9),
            ("Sun", "raises", "tides", 0.4),
            ("Earth", "orbits", "Sun", 1.0),
            ("Moon", "reflects", "sunlight", 0.9),
            ("OpenAI", "founded_by", "Sam Altman", 0.8),
        ]
        facts = [Fact(subject=s, predicate=p, object=o, confidence=c) for s, p, o, c in told]
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
        file = StoreFile(self.path, busy_timeout=5.0, threads=1)
        file.write_here(lambda connection: write.upsert(connection, rows, "", 0))
        file.forget()

    def make(self) -> Plugin:
        return SqliteFacts(path=self.path, hops=3)


class TestNormalizeWithPeriods(InterpreterSuite):
    plugin = Normalize

    def make(self) -> Plugin:
        return Normalize(extract_period=True, timezone="Europe/Berlin", max_queries=2)


class TestFreshnessThatDecays(StageSuite):
    plugin = Freshness

    def make(self) -> Plugin:
        return Freshness(mode="decay", half_life_days=1.0, floor=0.0, field="synced_at", missing=0.0)


class TestChunksWithoutOverlap(TransformSuite):
    plugin = Chunk

    def make(self) -> Plugin:
        return Chunk(target=64, maximum=100, overlap=0)
