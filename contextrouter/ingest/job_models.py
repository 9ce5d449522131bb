"""The models of the store that a job fills: whose vectors it gets, and which one its fingerprints count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from contextrouter.contracts import Embedder, StoredModel, SupportsModels
from contextrouter.errors import ContextRouterError, IngestError, SettingsError
from contextrouter.ingest.job_options import JobPlugins
from contextrouter.ingest.plugin_failures import as_ingest_error

FindEmbedder = Callable[[StoredModel], Awaitable[Embedder]]
"""Returns the open embedder of a model. Raises a ContextRouterError where there is none."""


async def add_models(plugins: JobPlugins, find: FindEmbedder, *, dry_run: bool) -> JobPlugins:
    """Return the plugins with the embedders of all models that the store has vectors of.

    Raises IngestError where one of them has none: new chunks would lack its vectors, and be found no more.
    """
    store, embedder = plugins.store, plugins.embedder
    if embedder is None or not isinstance(store, SupportsModels):
        return plugins
    with as_ingest_error("The store does not say whose vectors it has"):  # nothing was stored or removed
        models = store.vector_models()
        stored = await models.stored()
        counted = await models.fingerprint_model()
    plugins = plugins._replace(fingerprint_model=counted)
    others = [model for model in stored if model.model and model.model != embedder.model]
    if dry_run or len(others) == len(stored):  # of no model that this job has: the store refuses it
        return plugins
    return plugins._replace(others=[await _find(model, find) for model in others])


def among(embedders: Sequence[Embedder]) -> FindEmbedder:
    """Return what finds the embedder of a model among these."""

    async def find(model: StoredModel) -> Embedder:
        for embedder in embedders:
            if embedder.model == model.model:
                return embedder
        raise SettingsError(f"none of `others` makes vectors of {model.model!r}")

    return find


async def _find(model: StoredModel, find: FindEmbedder) -> Embedder:
    try:
        embedder = await find(model)
        reason = "" if embedder.model == model.model else f"{embedder.model!r} is the model of that name"
    except ContextRouterError as error:
        reason = str(error).rstrip(".")
    if reason:
        name = f" {model.embedder!r}" if model.embedder else ""
        raise IngestError(
            f"The store has the vectors of {model.model!r}, too, and their embedder{name} is not there:"
            f" {reason}. Define it, or drop these vectors: `contextrouter embed --drop {model.model}`."
        )
    return embedder
