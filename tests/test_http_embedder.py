"""The embedder `http`: any JSON API by its body and the place of its vectors; nothing in an answer is
trusted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from contextrouter.builtin.embedders.http_embeddings import Http
from contextrouter.errors import PluginError, SettingsError, SourceError

Answer = Callable[[dict[str, Any]], Any]


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[tuple[str, list[tuple[dict[str, str], dict[str, Any]]]]]:
    """A server that answers a body with what `answer` says (a web.Response as it is). Yields its address and
    the requests.
    """
    requests: list[tuple[dict[str, str], dict[str, Any]]] = []

    async def serve(request: web.Request) -> web.Response:
        body = await request.json()
        requests.append((dict(request.headers), body))
        said = answer(body)
        return said if isinstance(said, web.Response) else web.json_response(said)

    app = web.Application()
    app.router.add_post("/embed", serve)
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/embed", requests
    finally:
        await runner.cleanup()


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """A server that takes requests and never answers."""
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/embed"
    finally:
        ended.set()
        server.close()


def make(url: str, **keys: Any) -> Http:
    usual = {
        "model": "m",
        "dimensions": 2,
        "body": {"inputs": "{texts}"},
        "vectors": "@",
        "allow_private": ["127.0.0.1/32"],
    }
    return Http(url=url, **(usual | keys))


async def embedded(embedder: Http, texts: list[str], *, query: bool = False) -> list[list[float]]:
    await embedder.open()
    try:
        return [list(vector) for vector in await embedder.embed(texts, query=query)]
    finally:
        await embedder.aclose()


def by_length(body: dict[str, Any]) -> list[list[float]]:
    """(length, 0) or (0, length), by whether a text begins with x."""
    return [[0, len(text)] if text.startswith("x") else [len(text), 0] for text in body["inputs"]]


@pytest.mark.case("NEW-49")
async def test_body_headers_and_vectors_are_where_the_settings_say() -> None:
    def answer(body: dict[str, Any]) -> Any:
        return {"embeddings": {"float": by_length({"inputs": body["texts"]})}}

    async with served(answer) as (url, requests):
        embedder = make(
            url,
            body={
                "model": "{model}",
                "texts": "{texts}",
                "input_type": "{input_type}",
                "output_dimension": "{dimensions}",
                "embedding_types": ["float"],
            },
            vectors="embeddings.float",
            headers={"Authorization": "Bearer sesame-sesame"},
            query_input_type="search_query",
            document_input_type="search_document",
            query_prefix="x",
        )
        documents = await embedded(embedder, ["ab", " ", "xy"])
        questions = await embedded(embedder, ["ab"], query=True)
    assert documents == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    assert questions == [[0.0, 1.0]]
    (headers, first), (_, second) = requests
    assert headers["Authorization"] == "Bearer sesame-sesame"
    assert first == {
        "model": "m",
        "texts": ["ab", "xy"],
        "input_type": "search_document",
        "output_dimension": 2,
        "embedding_types": ["float"],
    }
    assert (second["texts"], second["input_type"]) == (["xab"], "search_query")


async def test_vectors_are_put_in_the_order_of_their_numbers() -> None:
    data = [{"index": 1, "embedding": [0, 3]}, {"index": 0, "embedding": [4, 3]}]
    async with served(lambda body: {"data": data}) as (url, _):
        embedder = make(url, vectors="data[*].embedding", numbers="data[*].index")
        assert await embedded(embedder, ["a", "b"]) == [[0.8, 0.6], [0.0, 1.0]]


async def test_an_api_of_one_text_gets_one_request_for_each() -> None:
    async with served(lambda body: {"embedding": [len(body["prompt"]), 0]}) as (url, requests):
        embedder = make(url, body={"prompt": "{text}"}, vectors="embedding")
        assert await embedded(embedder, ["a", "bb"]) == [[1.0, 0.0], [1.0, 0.0]]
    assert sorted(body["prompt"] for _, body in requests) == ["a", "bb"]


async def test_requests_hold_no_more_texts_and_tokens_than_set() -> None:
    texts = ["one two three", "four", "five", "six", "seven"]
    async with served(by_length) as (url, requests):
        await embedded(make(url, batch_size=2), texts)
        by_number = sorted(len(body["inputs"]) for _, body in requests)
        requests.clear()
        await embedded(make(url, batch_tokens=4), texts)
        by_tokens = sorted(len(body["inputs"]) for _, body in requests)
    assert by_number == [1, 2, 2]
    assert by_tokens == [1, 4]  # three tokens alone; four of one token each


async def test_a_failure_that_may_pass_is_tried_again_and_another_is_not() -> None:
    states = iter((429, 503, 200, 401))

    def answer(body: dict[str, Any]) -> Any:
        status = next(states)
        return by_length(body) if status == 200 else web.Response(status=status, headers={"Retry-After": "0"})

    async with served(answer) as (url, requests):
        embedder = make(url, headers={"X-Key": "sesame-sesame"}, retries=2)
        assert await embedded(embedder, ["a"]) == [[1.0, 0.0]]
        assert len(requests) == 3
        with pytest.raises(PluginError, match="status 401") as caught:
            await embedded(embedder, ["a"])
        assert len(requests) == 4
    assert "sesame" not in str(caught.value)


async def test_tries_end_with_their_number_and_with_the_time() -> None:
    def busy(wait: str) -> Answer:
        return lambda body: web.Response(status=503, headers={"Retry-After": wait})

    async with served(busy("0")) as (url, requests):
        with pytest.raises(PluginError, match=r"Embedder 'http': .* status 503"):
            await embedded(make(url, retries=2), ["a"])
        assert len(requests) == 3
    async with served(busy("60")) as (url, requests):
        with pytest.raises(PluginError, match="status 503"):
            await embedded(make(url, retries=2, fetch_seconds=20.0), ["a"])  # a minute is more than is left
        assert len(requests) == 1


async def test_a_server_that_is_late_fails_the_embedder_by_its_name() -> None:
    async with asyncio.timeout(30), silent() as url:
        with pytest.raises(PluginError, match=r"Embedder 'http': .* did not answer within") as caught:
            await embedded(make(url, fetch_seconds=0.1), ["a"])
    assert not isinstance(caught.value, SourceError)  # a source's leg would be reported as late


def test_the_name_of_the_model_is_another_one_wherever_its_vectors_are() -> None:
    def name(**keys: Any) -> str:
        return make("http://host/embed", **keys).model

    def with_type(**keys: str) -> str:
        return name(body={"inputs": "{texts}", "type": "{input_type}"}, **keys)

    plain = {"input": "{texts}", "model": "{model}", "size": "{dimensions}"}
    assert name() == name(body=plain) == name(document_input_type="passage") == name(batch_size=9) == "m"
    others = [
        name(query_prefix="q: "),
        name(document_prefix="q: "),
        name(body=plain | {"truncate": True}),
        name(body=plain | {"truncate": False}),
        name(body={"inputs": "about: {text}"}),
        with_type(),
        with_type(document_input_type="passage"),
    ]
    assert all(other.startswith("m@") for other in others)
    assert len(set(others)) == 7
    keyed = [name(body=plain | {"truncate": True, "api_key": key}) for key in ("a", "b")]
    assert {*keyed} == {name(body={"truncate": True} | plain)} == {others[2]}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([[1, 0]], "returned 1 vectors for 2 texts"),
        ([[1, 0, 0], [1, 0, 0]], "vector of 3 numbers where dimensions = 2. Set dimensions = 3"),
        ([[1, 0], [0, 0]], "no direction"),
        ({"data": []}, "no list of vectors where vectors = '@' says; its keys are data"),
        ([["1", "0"], ["0", "1"]], "no list of vectors"),
        ([[True, False], [False, True]], "no list of vectors"),
        (
            web.Response(body=b"[[1" + b"0" * 400 + b", 1], [1, 1]]", content_type="application/json"),
            "no direction",
        ),
        (web.Response(body=b"<html>", content_type="application/json"), "what is no JSON"),
        (web.Response(body=b"<html>", content_type="text/html"), "content type is 'text/html'"),
    ],
)
async def test_an_answer_of_another_shape_is_named(said: Any, message: str) -> None:
    async with served(lambda body: said) as (url, _):
        with pytest.raises(PluginError, match=message.replace("[", r"\[")):
            await embedded(make(url), ["a", "b"])


@pytest.mark.case("NEW-49")
async def test_a_key_that_the_server_repeats_is_masked_and_nothing_reaches_the_terminal() -> None:
    said = {"Bearer key-of-mine-1234": 1, "\x1b[31mred": 2}
    async with served(lambda body: said) as (url, _):
        with pytest.raises(PluginError, match="its keys are") as raised:
            await embedded(make(url, headers={"Authorization": "Bearer key-of-mine-1234"}), ["a"])
    assert "key-of-mine" not in str(raised.value)
    assert str(raised.value).isprintable()


async def test_numbers_that_are_not_those_of_the_texts_are_refused() -> None:
    data = [{"n": 0, "v": [1, 0]}, {"n": 0, "v": [0, 1]}]
    async with served(lambda body: data) as (url, _):
        with pytest.raises(PluginError, match="numbered its 2 vectors"):
            await embedded(make(url, vectors="[*].v", numbers="[*].n"), ["a", "b"])


async def test_a_private_address_is_refused_unless_the_settings_open_it() -> None:
    async with served(by_length) as (url, requests):
        with pytest.raises(PluginError, match="allow_private"):
            await embedded(make(url, allow_private=[], retries=0), ["a"])
        assert not requests
        assert await embedded(make(url), ["a"]) == [[1.0, 0.0]]


async def test_a_redirect_is_not_followed_with_texts_and_key() -> None:
    async with served(by_length) as (other, requests):
        moved = web.Response(status=307, headers={"Location": other})
        async with served(lambda body: moved) as (url, _):
            with pytest.raises(PluginError, match="redirects a POST"):
                await embedded(make(url), ["a"])
        assert not requests


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"body": {"inputs": "x"}}, "holds neither"),
        ({"body": {"a": "{texts}", "b": "{text}"}}, "holds both"),
        ({"body": {"a": "{texts}", "b": "{colour}"}}, "colour"),
        ({"dimensions": 0}, "dimensions 0 is out of range"),
        ({"model": ""}, "model is empty"),
        ({"batch_size": 0}, "batch_size 0 is out of range"),
        ({"headers": {"a": "b\nc"}}, "cannot be sent"),
        ({"cache_path": "x"}, "Http.cache_path has no effect"),
        ({"url": "ftp://host/x"}, "ftp"),
    ],
)
def test_wrong_settings_of_the_api_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(keys.pop("url", "https://host/embed"), **keys)


async def test_an_expression_that_is_none_is_named_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"Http\.vectors 'a\[' is no JMESPath expression"):
        await make("https://host/embed", vectors="a[").open()
