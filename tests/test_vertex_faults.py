"""Twelve faults of each Google service: a result or a report by the deadline, and nothing left running.

No test measures time. The server says how much time a call gave it, and which of its calls were cancelled.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

import pytest
from support.vertex import DAILY, MINUTE, Script, Step, listening, opened, tasks_left

from contextrouter import ContextRouter, Document, Query
from contextrouter.builtin.embedders.prediction_server import PredictionServer
from contextrouter.builtin.embedders.vertex import VertexEmbedder
from contextrouter.builtin.generators.gemini_server import GeminiServer
from contextrouter.builtin.generators.vertex import VertexGenerator
from contextrouter.builtin.providers.memory import Memory
from contextrouter.builtin.providers.vertex import Vertex
from contextrouter.builtin.providers.vertex.collection_server import CollectionServer
from contextrouter.builtin.providers.vertex_index import VertexIndex
from contextrouter.builtin.providers.vertex_index.index_server import IndexServer
from contextrouter.builtin.providers.vertex_search import VertexSearch
from contextrouter.builtin.providers.vertex_search.search_server import SearchServer
from contextrouter.builtin.shared.google_cloud.grpc_server import GrpcServer
from contextrouter.builtin.stages.rank_server import RankServer
from contextrouter.builtin.stages.vertex import VertexReranker
from contextrouter.contracts import Entry
from contextrouter.errors import ContextRouterError, PluginError, SourceTimeout
from contextrouter.testing import Fixed

CONNECTIONS = ("_connection", "_admin", "_match")
SHORT, LONG = 1.0, 20.0  # seconds that a call may take: of one that hangs, and of all others
X = [1.0, 0.0]
MOON = Document(id="moon", content="the moon raises the tides")


class Service(NamedTuple):
    """A plugin of one service: how it is made, asked, and which of its methods the faults befall."""

    server: Callable[[], GrpcServer]
    make: Callable[[dict[str, Any]], Any]
    ask: Callable[[Any, float | None], Awaitable[Any]]
    method: str
    source: bool = False
    asked_by: str = "question"  # "document": no deadline of a question, its limit is request_timeout


async def _vector(plugin: Any, deadline: float | None, vector: list[float] = X) -> Any:
    return await plugin.search(Query(text="moon", leg="vector", vector=vector, deadline=deadline))


async def _text(plugin: Any, deadline: float | None) -> Any:
    return await plugin.search(Query(text="moon", leg=plugin.legs[-1], deadline=deadline))


async def _embed(plugin: Any, deadline: float | None) -> Any:
    return await plugin.embed(["moon"])


async def _score(plugin: Any, deadline: float | None) -> Any:
    return await plugin.score("moon", [MOON])


async def _complete(plugin: Any, deadline: float | None) -> Any:
    return await plugin.complete([{"role": "user", "content": "moon"}])


async def _stream(plugin: Any, deadline: float | None) -> Any:
    return [piece async for piece in plugin.stream([{"role": "user", "content": "moon"}])]


async def _fetch(plugin: Any, deadline: float | None) -> Any:
    return await plugin.fetch(["moon"])


_numbers = count()


async def _write(plugin: Any, deadline: float | None) -> Any:
    document = Document(id=f"d{next(_numbers)}", content="dust")
    await plugin.upsert([Entry(document=document, chunks=[document], vectors={"vector": [X]})])
    return [document.id in await plugin.fingerprints()]


def _collection() -> GrpcServer:
    return CollectionServer("c", 2)


def _vertex(keys: dict[str, Any]) -> Any:
    return Vertex(collection="c", **keys)


def _index(keys: dict[str, Any]) -> Any:
    return VertexIndex(texts=Memory(), index_endpoint="1", deployed_index="example", index="2", **keys)


def _search(keys: dict[str, Any]) -> Any:
    return VertexSearch(engine="e", **keys)


SERVICES = {
    "vectors": Service(_collection, _vertex, _vector, "SearchDataObjects", True),
    "texts": Service(_collection, _vertex, _text, "BatchSearchDataObjects", True),
    "index": Service(IndexServer, _index, _vector, "FindNeighbors", True),
    "search": Service(SearchServer, _search, _text, "Search", True),
    "stored texts": Service(_collection, _vertex, _fetch, "QueryDataObjects", True, "document"),
    "writes": Service(_collection, _vertex, _write, "BatchCreateDataObjects", True, "document"),
    "writes to an index": Service(IndexServer, _index, _write, "UpsertDatapoints", True, "document"),
    "embedder of one text": Service(
        PredictionServer,
        lambda keys: VertexEmbedder(dimensions=2, model="gemini-embedding-2", **keys),
        _embed,
        "EmbedContent",
    ),
    "embedder": Service(
        PredictionServer, lambda keys: VertexEmbedder(dimensions=2, **keys), _embed, "Predict"
    ),
    "reranker": Service(RankServer, lambda keys: VertexReranker(**keys), _score, "Rank"),
    "generator": Service(GeminiServer, lambda keys: VertexGenerator(**keys), _complete, "GenerateContent"),
    "stream": Service(GeminiServer, lambda keys: VertexGenerator(**keys), _stream, "StreamGenerateContent"),
}
FAULTS = {
    "slow": (Step(delay=0.05), ""),
    "hang": (Step(delay=30.0), "did not answer within"),
    "unavailable": (Step(status="UNAVAILABLE"), "is not reachable now"),
    "daily quota": (Step(status="RESOURCE_EXHAUSTED", message=DAILY), "the daily quota is used up"),
    "quota per minute": (Step(status="RESOURCE_EXHAUSTED", message=MINUTE), "Raise it in the console"),
    "no role": (Step(status="PERMISSION_DENIED"), "Give the account of the credentials the role roles/"),
    "expired token": (Step(status="UNAUTHENTICATED"), "gcloud auth application-default login"),
    "missing": (Step(status="NOT_FOUND"), "has no '.*Check project, location and name"),
    "malformed": (Step(cut=lambda raw: b"\xff\xff\xff"), r"cannot be read|another form"),
    "half an answer": (Step(cut=lambda raw: raw[: len(raw) // 2]), r"cannot be read|another form"),
}


@asynccontextmanager
async def asked(name: str, seconds: float = LONG) -> AsyncIterator[tuple[Service, Any, GrpcServer, Script]]:
    """A plugin that answers, with something in its store, and the script before its server."""
    service = SERVICES[name]
    server = service.server()
    async with listening(server) as (endpoint, script):
        keys = {"project": "p", "endpoint": endpoint, "request_timeout": LONG}
        async with opened(service.make(keys)) as plugin:
            if service.server in (_collection, IndexServer):
                await plugin.upsert([Entry(document=MOON, chunks=[MOON], vectors={"vector": [X]})])
            assert await service.ask(plugin, monotonic() + LONG)
            if not (service.source and service.asked_by == "question"):
                for connection in filter(None, (getattr(plugin, each, None) for each in CONNECTIONS)):
                    connection.options = connection.options._replace(request_timeout=seconds)
            script.seen.clear()
            script.only = (service.method,)
            yield service, plugin, server, script
    await _until(lambda: tasks_left() == [])  # the server's own end a moment after it


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SERVICES)
async def test_a_fault_of_a_service_is_a_result_or_an_error_with_a_remedy(name: str, fault: str):
    step, message = FAULTS[fault]
    if (name, fault) == ("writes to an index", "half an answer"):
        message = ""  # an answer without a byte is whole
    seconds = SHORT if fault == "hang" else LONG
    async with asked(name, seconds) as (service, plugin, _, script):
        script.always = step
        if not message:
            assert await service.ask(plugin, monotonic() + seconds)
            return
        with pytest.raises(PluginError, match=message) as caught:
            await service.ask(plugin, monotonic() + seconds)
        assert isinstance(caught.value, SourceTimeout) == (service.source and fault == "hang")
        assert caught.value.exhausted == (fault == "daily quota")
        assert caught.value.__cause__ is None, "the chain holds the request, and with it the credentials"
        (call,) = [call for call in script.seen if call.method == service.method]  # once: no hidden retry
        assert call.left is not None
        assert call.left <= seconds + 0.2, "the server knows the deadline"
        if fault == "hang":
            await _until(lambda: script.cancelled == [service.method])
        script.always = None
        assert await service.ask(plugin, monotonic() + LONG), "the next question is answered"


@pytest.mark.parametrize("name", SERVICES)
async def test_a_caller_that_leaves_ends_the_call_at_the_server(name: str):
    async with asked(name) as (service, plugin, _, script):
        script.steps = [Step(delay=30.0)]
        call = asyncio.ensure_future(service.ask(plugin, monotonic() + LONG))
        await _until(lambda: service.method in script.methods())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await _until(lambda: script.cancelled == [service.method])
        assert await service.ask(plugin, monotonic() + LONG)


@pytest.mark.parametrize("name", SERVICES)
async def test_a_server_that_is_gone_is_reported(name: str):
    async with asked(name, SHORT) as (service, plugin, server, _):
        await server.aclose()
        with pytest.raises(PluginError, match=r"is not reachable now|did not answer within"):
            await service.ask(plugin, monotonic() + SHORT)


@pytest.mark.parametrize("name", ["vectors", "index"])
async def test_a_question_with_a_vector_of_another_length_is_an_error(name: str):
    async with asked(name) as (_, plugin, _, _):
        with pytest.raises(PluginError, match=r"(Q|q)uery vector has 3 dimensions"):
            await _vector(plugin, None, [1.0, 0.0, 0.0])


@pytest.mark.parametrize("name", ["vectors", "texts", "index", "search"])
async def test_a_deadline_that_is_over_asks_nothing(name: str):
    async with asked(name) as (service, plugin, _, script):
        with pytest.raises(SourceTimeout, match="no time was left"):
            await service.ask(plugin, monotonic() - 1)
        assert script.seen == []


OPENING = {
    "GetDataObject": SERVICES["vectors"],
    "GetIndexEndpoint": SERVICES["index"],
    "GetIndex": SERVICES["index"],
    "GetEngine": SERVICES["search"],
    "GetDataStore": SERVICES["search"],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", OPENING)
async def test_a_fault_while_a_plugin_opens_is_an_error_and_the_next_opening_works(method: str, fault: str):
    service, (step, message) = OPENING[method], FAULTS[fault]
    if (fault, method) == ("missing", "GetDataObject"):
        message = ""  # a collection without notes is empty; one that is missing is known by the first search
    elif fault == "missing" and service.make is _search:
        message = "has no '.*Check project, location, and its name"
    elif fault == "no role" and service.make is _search:
        message = ""  # who may search need not be allowed to read settings
    async with listening(service.server()) as (endpoint, script):
        if method == "GetDataObject":  # there are notes to be read
            async with opened(service.make({"project": "p", "endpoint": endpoint})) as plugin:
                await plugin.upsert([Entry(document=MOON, chunks=[MOON], vectors={"vector": [X]})])
        script.seen.clear()
        seconds = SHORT if fault == "hang" else LONG
        plugin = service.make({"project": "p", "endpoint": endpoint, "request_timeout": seconds})
        script.only, script.always = (method,), step
        if message:
            with pytest.raises(PluginError, match=message):
                await plugin.open()
        else:
            await plugin.open()
            await plugin.aclose()
        (call,) = [call for call in script.seen if call.method == method]
        assert call.left is not None
        assert call.left <= seconds + 0.2
        script.always = None
        plugin = service.make({"project": "p", "endpoint": endpoint, "request_timeout": LONG})
        async with opened(plugin):
            await plugin.ping()
    await _until(lambda: tasks_left() == [])


SOURCES = [name for name, service in SERVICES.items() if service.source and service.asked_by == "question"]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "slow"])
@pytest.mark.parametrize("name", SOURCES)
async def test_in_a_router_one_source_fails_and_the_others_answer(name: str, fault: str):
    step, message = FAULTS[fault]
    async with asked(name) as (service, plugin, _, script):
        script.always = step
        seconds = SHORT if fault == "hang" else LONG
        settings = {"rag": {"cache_enabled": False, "max_retrieval_queries": 1, "timeout_seconds": seconds}}
        plugin.embedder = None  # the leg is asked with a vector by `ask` alone
        source = Asking(service, plugin)
        async with ContextRouter(settings, connectors={"cloud": source, "good": Fixed("b")}) as router:
            context = await router.route("moon")
            report = next(each for each in context.coverage if each.source == "cloud")
            assert report.status == ("timeout" if fault == "hang" else "error")
            cut_off = "no answer by the request's deadline"  # the router's own word, where it is first
            assert re.search(message, report.error) or (fault == "hang" and report.error == cut_off)
            assert [each.document.id for each in context.envelopes] == ["b"]
            assert context.degraded


class Asking(Fixed):
    """A connector that asks a plugin as the service is asked, within the router's deadline."""

    def __init__(self, service: Service, plugin: Any) -> None:
        super().__init__("x")
        self.service, self.plugin = service, plugin

    async def search(self, query: Query) -> Any:
        return await self.service.ask(self.plugin, query.deadline)


async def test_half_of_what_was_to_be_read_is_no_answer():
    """A list of several pages, the second of which fails, is not taken for the whole."""
    async with asked("vectors") as (_, plugin, _, script):
        parts = [Document(id=f"d#{n}", parent="d", content=f"part {n}") for n in range(1100)]
        whole = Document(id="d", content="whole")
        await plugin.upsert([Entry(document=whole, chunks=parts, vectors={"vector": [X] * 1100})])
        script.only, script.steps = ("QueryDataObjects",), [Step(), Step(status="UNAVAILABLE")]
        with pytest.raises(PluginError, match="not reachable"):
            await plugin.embedded(["d"], None, "")
        assert len(await plugin.embedded(["d"], None, "")) == 1100


async def test_a_plugin_that_was_opened_elsewhere_says_so():
    plugin = Vertex.example()
    await plugin.open()

    def elsewhere() -> str:
        try:
            asyncio.run(plugin.search(Query(text="moon", leg="text")))
        except ContextRouterError as error:
            return str(error)
        return ""

    assert "another event loop or process" in await asyncio.to_thread(elsewhere)
    assert await plugin.search(Query(text="moon", leg="text"))
    await plugin.aclose()


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for what happens in the server a moment later."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    assert condition()
