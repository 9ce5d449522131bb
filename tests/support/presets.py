"""Presets as a user runs them: a settings file that extends one, in a folder of its own, with a real store.

`TAKE_OUT=1` takes the setting out that a test's marker `without` names: the test must then fail.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from contextrouter import ContextRouter, Embedder, Vector
from contextrouter.contracts import Entry
from contextrouter.ingest import run
from contextrouter.model import Document, Fact
from contextrouter.runtime.registry import Registry
from contextrouter.settings.loading import load
from support.example import ROOT

PRESETS = ROOT / "contextrouter" / "presets"
taken_out: dict[str, Any] = {}
"""What the running test must not have, as overrides of its settings."""


class Plane(Embedder):
    """Vectors of two dimensions. Every query with a question mark points to the right.

    A text that says `at 0.8` has that cosine with every question, any other text `elsewhere`.
    """

    dimensions, model = 2, "plane-1"

    def __init__(self, *, elsewhere: float = 1.0) -> None:
        self.elsewhere = elsewhere

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Vector]:
        return [at(1.0 if query and "?" in text else self._place(text)) for text in texts]

    def _place(self, text: str) -> float:
        words = text.split()
        return float(words[words.index("at") + 1]) if "at" in words else self.elsewhere


def at(similarity: float) -> list[float]:
    """A unit vector of that cosine with every question."""
    return [similarity, (1 - similarity**2) ** 0.5]


def piece(
    id: str, content: str = "", *, cosine: float = 1.0, facts: Sequence[Fact] = (), **fields: Any
) -> Entry:
    """A document of one chunk, at a cosine of every question. Without a content it has forty plain words."""
    content = content or f"{id} " + "word " * 40
    document = Document(**{"id": id, "title": id, "content": content, **fields})
    vectors = {"vector": [at(cosine)], "keywords": [at(cosine)] if document.keywords else [None]}
    return Entry(document=document, chunks=[document], vectors=vectors, facts=tuple(facts))


def system(folder: Path, preset: str, toml: str = "", **by_hand: Any) -> ContextRouter:
    """A router of a settings file that extends the preset. Without `embedders` every question points right."""
    path = folder / "settings.toml"
    folder.mkdir(exist_ok=True)
    path.write_text(f'extends = "{preset}"\n{toml}', "utf-8")
    by_hand.setdefault("embedders", {"default": Plane()})
    names = {kind[:-1]: list(plugins) for kind, plugins in by_hand.items() if isinstance(plugins, Mapping)}
    settings, registry = load(path, Registry, overrides=taken_out, by_hand=names)
    return ContextRouter(settings, registry=cast("Registry", registry), **by_hand)


async def fill(router: ContextRouter, store: str, *entries: Entry) -> None:
    """Put documents with their vectors into a store of the preset."""
    await router.open()
    provider: Any = router.instances.all["provider", store]
    if not provider.vector_legs:
        entries = tuple(msgspec.structs.replace(entry, vectors={}) for entry in entries)
    await provider.upsert(list(entries))
    await router.aclose()


def example(folder: Path, preset: str) -> Path:
    """What `init --preset` writes."""
    shutil.copytree(PRESETS / preset, folder, dirs_exist_ok=True)
    shutil.copy(PRESETS / f"{preset}.toml", folder / "settings.toml")
    return folder


async def ingest(folder: Path, preset: str, toml: str = "") -> None:
    """The example documents of a preset, ingested by a file that extends it."""
    example(folder, preset)
    async with system(folder, preset, toml, embedders={}) as router:
        await run(router)


def ids(context: Any) -> list[str]:
    return [envelope.document.id for envelope in context.envelopes]


def note(context: Any, step: str) -> str:
    """The note of a step of the trace."""
    return next((each.note for each in context.trace.steps if each.name == step), "")
