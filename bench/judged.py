"""Judged collections, read from a folder, and stores made of them once.

A collection is a folder with `corpus.jsonl.gz` (lines of {"id", "title", "text"}, perhaps "source" and
"published", a time),
`queries.dev.jsonl` or `queries.jsonl` ({"id", "text"}, perhaps "answerable"; "conversation" in both is a
tenant), and `qrels.dev.tsv` or `qrels.tsv` (query, document, grade; a head line). A folder with
`sources.json` instead of a corpus names other collections as its sources, each with a prefix of ids. Where
lines have a field "lang", `NAME-de` is the German part of the collection in the folder NAME.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np

from contextrouter.builtin.providers.sqlite import Sqlite
from contextrouter.builtin.transforms.keywords import Keywords
from contextrouter.contracts import Embedder, Entry
from contextrouter.ingest.preparation import leg_text
from contextrouter.model import Document, Vector
from contextrouter.scope import Scope

BATCH = 500


@dataclass
class Question:
    """A judged question; one that is not answerable has no judgements, or misleading ones."""

    id: str
    text: str
    answerable: bool = True
    group: str = ""  # the source that holds its answers, where the collection says so
    scope: Scope | None = None  # of the conversation that it is about, where documents belong to one


@dataclass
class Collection:
    """Documents by source, questions, and grades by question and document."""

    name: str
    sources: dict[str, list[Document]]
    questions: list[Question]
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    language: str = ""  # of all documents and questions; "": not said

    @property
    def judged(self) -> list[Question]:
        """Questions with at least one relevant document."""
        return [
            q
            for q in self.questions
            if q.answerable and any(g > 0 for g in self.grades.get(q.id, {}).values())
        ]

    def asked(self, questions: Sequence[Question]) -> Collection:
        """The same documents, and only these questions."""
        return replace(self, questions=list(questions))

    @property
    def unlabelled(self) -> Collection:
        """The same documents, none of which says its language."""
        sources = {name: [d.replace(language=None) for d in given] for name, given in self.sources.items()}
        return replace(self, name=f"{self.name}-unlabelled", sources=sources)

    @property
    def documents(self) -> list[Document]:
        """All documents, source by source."""
        return [document for documents in self.sources.values() for document in documents]


def read(folder: Path) -> Collection:
    """The collection in a folder, or the part of it in one language; split by the field "source" when there are 10 to 100 of them that hold 10
    documents or more.
    """
    name, language = folder.name, ""
    if not folder.is_dir():
        whole, _, language = name.rpartition("-")
        folder = folder.with_name(whole)
    listed = folder / "sources.json"
    if listed.exists():
        rows = json.loads(listed.read_text(encoding="utf-8"))["sources"]
        sources = {r["source"]: _documents(folder / r["corpus"], r["id_prefix"], "")[1] for r in rows}
    else:
        split, documents = _documents(folder / "corpus.jsonl.gz", "", language)
        sources = split if name == "kgpacks-faq" else {"docs": documents}
    questions = [
        Question(
            r["id"],
            r["text"],
            r.get("answerable", True) is not False,
            _word(r.get("gold_source") or r.get("pack") or ""),
            Scope(tenant=r["conversation"]) if r.get("conversation") else None,
        )
        for r in map(
            json.loads,
            _first(folder, "queries.dev.jsonl", "queries.jsonl").read_text(encoding="utf-8").splitlines(),
        )
        if not language or r["lang"] == language
    ]
    grades: dict[str, dict[str, int]] = {}
    for line in _first(folder, "qrels.dev.tsv", "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question, document, grade = line.split("\t")
        grades.setdefault(question, {})[document] = int(float(grade))
    return Collection(name, sources, questions, grades, language)


def _documents(path: Path, prefix: str, language: str) -> tuple[dict[str, list[Document]], list[Document]]:
    """Documents by the field "source", and all of them; those in one language, if one is named."""
    split: dict[str, list[Document]] = {}
    every = []
    with gzip.open(path, "rb") as lines:
        for row in map(msgspec.json.decode, lines):
            if language and row["lang"] != language:
                continue
            title = row.get("title") or ""
            text, tenant = row.get("text") or title, row.get("conversation")
            made = Document(
                id=prefix + str(row["id"]),
                title=title,
                content=text,
                tenant=tenant,
                language=row.get("lang"),
                updated_at=_time(row.get("published")),
            )
            if made.content.strip():
                every.append(made)
                split.setdefault(_word(row.get("source") or "docs"), []).append(made)
    return split, every


def _time(text: str | None) -> datetime | None:
    """The time of a text in ISO 8601, without a zone UTC; None: it has none, or is written otherwise."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        moment = None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def _word(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in text.lower())


def _first(folder: Path, *names: str) -> Path:
    return next((folder / name for name in names if (folder / name).exists()), folder / names[-1])


class Kept(Embedder):
    """Another embedder, its vectors kept by text in a file: a model that takes an hour does so once."""

    def __init__(self, inner: Embedder, path: Path) -> None:
        self.inner, self.path = inner, path
        self.score_weights, self.leg_weights = inner.score_weights, inner.leg_weights
        self.unrelated = inner.unrelated

    async def open(self) -> None:
        await self.inner.open()
        self.model, self.dimensions = self.inner.model, self.inner.dimensions
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = sqlite3.connect(self.path)
        self.file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")

    async def aclose(self) -> None:
        self.file.close()
        await self.inner.aclose()

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        keys = [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        found: dict[bytes, Vector] = {}
        for key in set(keys):
            row = self.file.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
            if row:
                found[key] = np.frombuffer(row[0], "<f4")
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            made = await self.inner.embed(list(missing.values()), query=query)
            new = {key: np.asarray(vector, "<f4") for key, vector in zip(missing, made, strict=True)}
            self.file.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?)", [(k, v.tobytes()) for k, v in new.items()]
            )
            self.file.commit()
            found.update(new)
        return [found[key] for key in keys]


async def stores(
    collection: Collection, folder: Path, embedder: Embedder | None, legs: Sequence[str] = ("vector",)
) -> dict[str, Sqlite]:
    """One open store for each source, filled on the first time; `legs` are those that have vectors."""
    return {
        name: await filled(folder / f"{name}.db", documents, embedder, legs)
        for name, documents in collection.sources.items()
    }


async def filled(
    path: Path, documents: Sequence[Document], embedder: Embedder | None, legs: Sequence[str] = ("vector",)
) -> Sqlite:
    """An open store, filled on the first time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    store = Sqlite(path=str(path), embedder="default" if embedder else None)
    await store.open()
    if embedder is not None:
        await store.embedded_by(embedder.model, embedder.dimensions)
    if not await store.tenants():
        for start in range(0, len(documents), BATCH):
            await store.upsert(await entries_of(documents[start : start + BATCH], embedder, legs))
    return store


async def entries_of(
    documents: Sequence[Document], embedder: Embedder | None, legs: Sequence[str] = ("vector",)
) -> list[Entry]:
    """Documents as they are stored, each in one piece, with vectors for these legs."""
    if embedder is not None and "keywords" in legs:
        keywords = Keywords()
        documents = [made for document in documents for made in await keywords.transform(document)]
    vectors: list[dict[str, list[Vector | None]]] = [{} for _ in documents]
    for leg in legs if embedder is not None else ():
        assert embedder is not None
        texts = [leg_text(leg, document) or "" for document in documents]
        made = iter(await embedder.embed([text for text in texts if text]))
        for found, text in zip(vectors, texts, strict=True):
            found[leg] = [next(made) if text else None]
    return [
        Entry(document=d, chunks=[d], vectors=found, fingerprint=d.fingerprint)
        for d, found in zip(documents, vectors, strict=True)
    ]
