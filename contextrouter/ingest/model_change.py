"""Change of the embedding model: fills a store with the vectors of a second model while it answers with the
first.

Questions are compared with the vectors of their own router's embedder. So the former model answers until the
settings name the new one, and the new one answers from the moment that no vector of it is missing. What an
interruption leaves out, the next call does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from contextrouter.contracts import (
    Embedder,
    Plugin,
    StoredModel,
    SupportsModels,
    SupportsUpsert,
    VectorModels,
)
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.ingest.entity_vectors import embed_pages
from contextrouter.ingest.job_plugins import Wiring, wire
from contextrouter.ingest.plugin_failures import as_ingest_error
from contextrouter.ingest.preparation import leg_text
from contextrouter.ingest.store_lock import turn
from contextrouter.model import Document, Vector
from contextrouter.router import ContextRouter
from contextrouter.runtime.plugin_calls import containment
from contextrouter.settings.suggestions import unknown

PASSES = 20
"""How often a store is looked through for chunks that came without vectors, before that counts as a fault."""


class ModelReport(msgspec.Struct, kw_only=True):
    """What a call of `embed` did in one store. `seconds` is wall time."""

    model: str
    chunks: int = 0  # that got vectors now
    entities: int = 0  # that got vectors now
    embedded: int = 0  # texts that went to the embedder
    total: int = 0  # chunks of the store
    seconds: float = 0.0


OnModelProgress = Callable[[str, ModelReport], None]
"""Called after every batch with the name of the store and its report so far."""


class _Store(NamedTuple):
    """A store whose model can be changed."""

    name: str
    plugin: SupportsUpsert
    models: VectorModels


async def embed(
    router: ContextRouter | str | Path,
    embedder: str,
    stores: Sequence[str] = (),
    *,
    batch: int = 64,
    wait: float = 60.0,
    progress: OnModelProgress | None = None,
) -> dict[str, ModelReport]:
    """Make the vectors of `embedder`, a name of the settings, for all chunks of `stores` (none: all that
    can), and return a report for each.

    The stores answer with the vectors they have meanwhile. Ingestion that begins later stores the vectors of
    both models. When nothing is missing any more, the store answers routers whose `embedder` it is, from one
    moment to the next. The former vectors stay, until `drop_model()`. `batch` chunks are embedded at a time.
    An ingestion that runs is waited for up to `wait` seconds.

    Raises SettingsError for a name or a store that does not fit; IngestError if embedder or store fails: what
    was embedded stays, and the next call goes on.
    """
    if batch < 1:
        raise ValueError(f"batch {batch!r} is too small; give a number of at least 1.")
    async with wire(router) as wiring:
        plugin = await wiring.embedder(embedder)
        reports: dict[str, ModelReport] = {}
        for store in await _stores(wiring, stores):
            filling = _Filling(store, plugin, batch, progress)
            try:
                await _begin(store, embedder, plugin, wiring, wait)
                reports[store.name] = await filling.run()
            except ContextRouterError as error:
                if isinstance(error, IngestError | SettingsError):
                    raise
                raise IngestError(f"Store {store.name!r}: {error}") from error
        return reports


async def drop_model(
    router: ContextRouter | str | Path, name: str, stores: Sequence[str] = (), *, wait: float = 60.0
) -> list[str]:
    """Remove the vectors of a model, by its own name or that of its embedder in the settings, from `stores`
    (none: all that have it); return the names of the stores.

    Raises SettingsError if no store has it; IngestError if it is the one that the settings search, or the
    last one that answers.
    """
    async with wire(router) as wiring:
        dropped: list[str] = []
        every: list[str] = []
        for store in await _stores(wiring, stores):
            stored = await _stored(store)
            every += [model.model for model in stored]
            if any(name in (model.model, model.embedder) for model in stored):
                async with turn(store.plugin, store.name, wait):
                    dropped += [store.name] if await _drop(store, name, wiring) else []
        if not dropped:
            names = list(dict.fromkeys(every))
            raise SettingsError(unknown(f"No store has vectors of {name!r}", name, names, "Models"))
        return dropped


async def stored_models(
    router: ContextRouter | str | Path, stores: Sequence[str] = ()
) -> dict[str, Sequence[StoredModel]]:
    """Return the models whose vectors each store has, of `stores` (none: all whose model can be changed)."""
    async with wire(router) as wiring:
        return {store.name: await _stored(store) for store in await _stores(wiring, stores)}


async def _stores(wiring: Wiring, names: Sequence[str]) -> list[_Store]:
    """Return the stores of these names, open. Raises SettingsError for one whose model cannot be changed."""
    providers = wiring.settings.providers
    for name in names:
        if name not in providers:
            raise SettingsError(unknown(f"Store {name!r} is not defined", name, providers, "Stores"))
    stores: list[_Store] = []
    for name in names or providers:
        plugin = await wiring.plugin(providers[name])
        if isinstance(plugin, SupportsModels) and isinstance(plugin, SupportsUpsert) and plugin.vector_legs:
            stores.append(_Store(name, plugin, plugin.vector_models()))
        elif names:
            raise SettingsError(_refusal(name, providers[name].use, plugin))
    if not stores:
        raise SettingsError(
            "No store has vectors of a model that can be changed. Stores that can: `sqlite` and `postgres`"
            " with an `embedder`."
        )
    return stores


def _refusal(name: str, use: str, plugin: Plugin) -> str:
    if isinstance(plugin, SupportsModels):
        return f"Store {name!r} has no embedder; name one in [providers.{name}], and fill it."
    return (
        f"Store {name!r} ({use}) cannot have the vectors of two models; fill another one with the new"
        " embedder, and let the settings name that, or run `contextrouter ingest --rebuild`."
    )


async def _stored(store: _Store) -> Sequence[StoredModel]:
    with as_ingest_error(f"Store {store.name!r} does not say whose vectors it has"):  # nothing was changed
        return await store.models.stored()


async def _begin(store: _Store, name: str, embedder: Embedder, wiring: Wiring, wait: float) -> None:
    """Make a place for the vectors, while no ingestion runs that would not know of it."""
    async with turn(store.plugin, store.name, wait):
        former = store.plugin.embedder or ""
        if former and former != name:
            current = await wiring.embedder(former)
            if any(model.model == current.model for model in await _stored(store)):
                with containment():  # notes the name of its embedder, which ingestion then finds
                    await store.models.begin(current.model, current.dimensions, former)
        with containment():
            await store.models.begin(embedder.model, embedder.dimensions, name)


async def _drop(store: _Store, name: str, wiring: Wiring) -> bool:
    """Remove the vectors of a model; return whether there are some. Call this in the turn: while that was
    waited for, the store may have changed.
    """
    named = [model for model in await _stored(store) if name in (model.model, model.embedder)]
    for model in named:
        await _check_droppable(store, model, await _stored(store), wiring)
        with containment():
            await store.models.drop(model.model)
    return bool(named)


async def _check_droppable(
    store: _Store, model: StoredModel, stored: Sequence[StoredModel], wiring: Wiring
) -> None:
    others = [alternative for alternative in stored if alternative.ready and alternative.model != model.model]
    if not others:
        raise IngestError(
            f"Store {store.name!r} answers with no other vectors than those of {model.model!r}; fill it with"
            " others first: `contextrouter embed --model NAME`."
        )
    named = store.plugin.embedder or ""
    if model.ready and (await wiring.embedder(named)).model == model.model:
        other = others[0]
        name = repr(other.embedder) if other.embedder else f"the name of the embedder of {other.model!r}"
        raise IngestError(
            f"Store {store.name!r} is searched by its vectors of {model.model!r}, so they cannot be dropped;"
            f" set `embedder` in [providers.{store.name}] to {name}, reload the servers, and then drop them."
        )


class _Filling:
    """The filling of one store with the vectors of one embedder."""

    def __init__(
        self, store: _Store, embedder: Embedder, batch: int, progress: OnModelProgress | None
    ) -> None:
        self.store, self.embedder, self.batch = store, embedder, batch
        self.report = ModelReport(model=embedder.model)
        self._progress, self._start = progress, time.monotonic()

    async def run(self) -> ModelReport:
        """Embed what has no vectors, until nothing is missing, and let the store answer with them."""
        models, name = self.store.models, self.store.name
        for stored in await _stored(self.store):
            if stored.model == self.embedder.model:
                self.report.total = stored.chunks + stored.missing
        for _ in range(PASSES):  # chunks may come meanwhile from writers that know of one model only
            await self._embed_chunks()
            await self._embed_entities()
            with containment():
                gaps = await models.finish(self.embedder.model)
            self._send()
            if not gaps:
                return self.report
        raise IngestError(
            f"Store {name!r} still lacks {gaps} vectors of {self.embedder.model!r}, because somebody"
            " writes documents without them; stop that, and run `contextrouter embed` again."
        )

    async def _embed_chunks(self) -> None:
        model, after = self.embedder.model, ""
        while True:
            with containment():
                chunks = await self.store.models.missing(model, self.batch, after)
            if not chunks:
                return
            documents = [chunk.document for chunk in chunks]
            by_leg = {leg: await self._vectors(leg, documents) for leg in self.store.plugin.vector_legs}
            vectors = {
                chunk.key: {leg: vectors[number] for leg, vectors in by_leg.items()}
                for number, chunk in enumerate(chunks)
            }
            with containment():
                self.report.chunks += await self.store.models.add(model, vectors)
            after = chunks[-1].key
            self._send()

    async def _vectors(self, leg: str, chunks: Sequence[Document]) -> list[Vector | None]:
        """Return one vector for each chunk; None where the leg has no text."""
        texts = [leg_text(leg, chunk) for chunk in chunks]
        vectors: list[Vector | None] = [None] * len(texts)
        positions = [number for number, text in enumerate(texts) if text]
        if not positions:
            return vectors
        results = await self._embed([texts[number] or "" for number in positions])
        for number, vector in zip(positions, results, strict=True):
            vectors[number] = vector
        return vectors

    async def _embed(self, texts: list[str]) -> Sequence[Vector]:
        message = (
            f"The embedder of {self.embedder.model!r} failed after {self.report.chunks} chunks; run"
            " `contextrouter embed` again to go on"
        )
        with as_ingest_error(message):  # what was embedded stays: the next call goes on
            vectors = await self.embedder.embed(texts)
        if len(vectors) != len(texts):
            raise IngestError(
                f"The embedder returned {len(vectors)} vectors for {len(texts)} texts; it must return one"
                " each."
            )
        self.report.embedded += len(texts)
        return vectors

    async def _embed_entities(self) -> None:
        models, model = self.store.models, self.embedder.model
        texts, keep = partial(models.entity_texts, model), partial(models.embed_entities, model)
        _, entities = await embed_pages(texts, keep, self._embed, self.batch)
        self.report.entities += entities

    def _send(self) -> None:
        self.report.seconds = time.monotonic() - self._start
        if self._progress:
            self._progress(self.store.name, self.report)
