"""Public nouns compare and travel between processes, and so do errors."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from contextrouter import ContextRouter, errors
from contextrouter.model import Document, Envelope, Hit, Query, SourceReport
from contextrouter.testing import Fixed


@pytest.mark.case("NEW-34")
@pytest.mark.parametrize("vector", [np.array([0.6, 0.8], np.float32), [0.6, 0.8], None])
def test_nouns_with_a_vector_compare_by_what_they_hold(vector: Any):
    document = Document(content="x", id="a", metadata={"page": 3})
    nouns = [Envelope(document=document, vector=vector), Hit(document=document, vector=vector)]
    for noun in (*nouns, Query(text="x", vector=vector)):
        copy = pickle.loads(pickle.dumps(noun))
        assert noun == copy
        assert copy in [noun]
        assert [noun] == [copy]
        assert noun != noun.replace(vector=np.array([0.8, 0.6]))
        assert noun != noun.replace(vector=np.array([0.6]))
        assert noun != object()
    assert nouns[0] != nouns[0].replace(dropped="token budget")
    assert nouns[1] != nouns[0]


@pytest.mark.case("NEW-34")
async def test_a_context_comes_out_of_another_process_as_it_went_in():
    hit = Hit(document=Document(content="x", id="a"), vector=np.array([0.6, 0.8], np.float32))
    async with ContextRouter(connectors={"s": Fixed([hit])}) as router:
        context = await router.route("x")
    assert pickle.loads(pickle.dumps(context)) == context


REPORT = SourceReport(source="s", leg="text", query="q", status="error", error="down")
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "SettingsError": ([errors.Problem("wrong", key="rag.k", file="s.toml", line=4)],),
    "PluginNotFound": ("nosuch", "stage", ["gate"]),
    "MissingDependency": ("numpy", "sqlite"),
    "AllSourcesFailed": ([REPORT],),
}
ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, errors.ContextRouterError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_public_error_can_be_pickled(kind: Any):
    error = kind(*ARGUMENTS.get(kind.__name__, ("it failed",)))
    error.note = "kept"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (kind, str(error), error.__dict__)
