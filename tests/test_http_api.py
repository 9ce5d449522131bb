"""The http_api connector: any JSON API by settings alone, served on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile import ALLOWED, Hostile, send

from contextrouter.builtin.connectors import url_template
from contextrouter.builtin.connectors.http_api import HttpApi
from contextrouter.builtin.connectors.http_api.field_mapping import FieldMapping
from contextrouter.contracts import Partial
from contextrouter.errors import SettingsError, SourceError, SourceTimeout
from contextrouter.model import Query

FIELDS = {"content": "text", "id": "id", "title": "title"}
Answer = Callable[[dict[str, list[str]], bytes], Any]


class Api(Hostile):
    """Answers `/api` with what `reply` makes of the parameters; `asked` are those of each request, `bodies`
    what was posted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reply: Callable[[dict[str, list[str]]], Any] = lambda asked: []
        self.asked: list[dict[str, list[str]]] = []

    async def answer(self, path: str, head: str, writer: asyncio.StreamWriter) -> None:
        raw = head.split(" ")[1]
        if not raw.startswith("/api"):
            return await super().answer(path, head, writer)
        self.asked.append(parse_qs(urlsplit(raw).query))
        body = self.reply(self.asked[-1])
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await send(writer, "200 OK", data, {"Content-Type": "application/json"})


@pytest.fixture
async def server() -> AsyncIterator[Api]:
    async with Api() as it:
        yield it


@asynccontextmanager
async def api(server: Api, **keywords: Any) -> AsyncIterator[HttpApi]:
    given_ = {
        "url": server.url + "/api",
        "fields": FIELDS,
        "allow_private": ALLOWED,
        "retries": 0,
        **keywords,
    }
    source = HttpApi(**given_)
    await source.open()
    try:
        yield source
    finally:
        await source.aclose()


def items(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": n, "title": f"T{n}", "text": f"zebra {n}"} for n in numbers]


async def ids(source: HttpApi, **more: Any) -> list[str]:
    return [hit.document.id for hit in await source.search(Query(text="zebra & co", **more))]


async def test_the_query_goes_where_the_templates_say_and_can_end_no_parameter(server: Api) -> None:
    server.reply = lambda asked: {"hits": items(2, 1)}
    more = {"parameters": {"q": "{query}", "n": "{limit}", "lang": "{language}"}, "results": "hits"}
    async with api(server, **more) as source:
        assert await ids(source, limit=7) == ["2", "1"]
        assert server.asked == [{"q": ["zebra & co"], "n": ["7"]}]
    async with api(server, url=server.url + "/api/{query}?x={limit}", results="hits") as source:
        await source.search(Query(text="a/b?c=d&x=9#e"))
        assert unquote(server.hits[-1]) == "/api/a/b?c=d&x=9#e?x=20"
        assert server.asked[-1] == {"x": ["20"]}


async def test_a_post_sends_the_body_filled_in_with_numbers_as_numbers(server: Api) -> None:
    seen: list[bytes] = []

    async def posted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(re.search(rb"content-length: (\d+)", head.lower())[1])
        seen.append(head)
        seen.append(await reader.readexactly(size))
        await send(writer, "200 OK", json.dumps(items(1)).encode(), {"Content-Type": "application/json"})
        writer.close()

    listening = await asyncio.start_server(posted, "127.0.0.2", 0)
    url = f"http://127.0.0.2:{listening.sockets[0].getsockname()[1]}/"
    body = {"query": {"text": "for {query}"}, "size": "{limit}", "tags": ["{query}", 3]}
    async with api(server, url=url, method="POST", body=body, headers={"X-Tenant": "acme"}) as source:
        assert await ids(source, limit=4) == ["1"]
    listening.close()
    assert seen[0].startswith(b"POST / ")
    assert b"X-Tenant: acme" in seen[0]
    assert json.loads(seen[1]) == {"query": {"text": "for zebra & co"}, "size": 4, "tags": ["zebra & co", 3]}


async def test_fields_become_those_of_a_document_and_others_metadata(server: Api) -> None:
    item = {
        "key": 7,
        "head": {"line": "A <b>zebra</b>"},
        "paras": ["<p>one</p>", "two &amp; three"],
        "link": "/z",
        "at": 1767225600,
        "tags": ["x", "y", 3],
        "who": {"name": "Ada"},
        "rank": 0.5,
    }
    server.reply = lambda asked: {"data": {"list": [item]}}
    fields = {
        "id": "key",
        "title": "head.line",
        "content": "paras",
        "url": "link",
        "updated_at": "at",
        "labels": "tags",
        "author": "who.name",
        "score": "rank",
        "nothing": "no.such",
    }
    async with api(server, results="data.list", fields=fields, markup=True, document_kind="qa") as source:
        (hit,) = await source.search(Query(text="zebra"))
    document = hit.document
    assert (document.id, document.title, document.content) == ("7", "A zebra", "one\ntwo & three")
    assert (document.url, document.kind, document.untrusted) == (f"{server.url}/z", "qa", True)
    assert document.updated_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert document.labels == ("x", "y", "3")
    assert document.metadata == {"author": "Ada"}
    assert hit.score == 0.5


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([3, 2, 2], [3.0, 2.0, 2.0]),
        ([1, 2, 3], [None] * 3),
        ([3, None, 1], [None] * 3),
        ([True, 1, 1], [None] * 3),
    ],
)
async def test_the_order_is_the_apis_and_scores_that_say_otherwise_are_left_out(
    server: Api, scores: list[Any], kept: list[float | None]
) -> None:
    server.reply = lambda asked: [
        {**item, "score": score} for item, score in zip(items(1, 2, 3), scores, strict=True)
    ]
    async with api(server, fields={**FIELDS, "score": "score"}) as source:
        hits = await source.search(Query(text="zebra"))
    assert [hit.document.id for hit in hits] == ["1", "2", "3"]
    assert [hit.score for hit in hits] == kept


async def test_pages_by_number_end_with_the_last_one_or_the_cap(server: Api) -> None:
    server.reply = lambda asked: items(*range(10))[(int(asked["p"][0]) - 1) * 4 :][:4]
    more = {"parameters": {"p": "{page}", "from": "{offset}"}, "page_size": 4}
    async with api(server, max_pages=9, **more) as source:
        assert await ids(source) == [str(n) for n in range(10)]
        assert [(asked["p"], asked["from"]) for asked in server.asked] == [
            (["1"], ["0"]),
            (["2"], ["4"]),
            (["3"], ["8"]),
        ]
    async with api(server, max_pages=2, **more) as source:
        assert len(await ids(source)) == 8
    async with api(server, max_pages=9, **more) as source:
        server.asked.clear()
        assert len(await ids(source, limit=3)) == 3
        assert len(server.asked) == 1


async def test_pages_by_cursor_and_by_the_address_of_the_next(server: Api) -> None:
    cursors = ["", "c1", "c2", ""]
    server.reply = lambda asked: {"hits": items(len(server.asked)), "next": cursors[len(server.asked)]}
    async with api(
        server, results="hits", parameters={"after": "{cursor}"}, cursor="next", max_pages=9
    ) as source:
        assert await ids(source) == ["1", "2", "3"]
        assert [asked.get("after") for asked in server.asked] == [None, ["c1"], ["c2"]]
    server.asked.clear()
    server.reply = lambda asked: {
        "hits": items(len(server.asked)),
        "next": None if len(server.asked) == 2 else "/api?page=2",
    }
    async with api(server, results="hits", next_url="next", max_pages=9) as source:
        assert await ids(source) == ["1", "2"]
        assert server.asked == [{}, {"page": ["2"]}]


async def test_pages_that_never_end_end_with_the_cap_or_when_nothing_new_comes(server: Api) -> None:
    server.reply = lambda asked: {"hits": items(len(server.asked)), "next": "more"}
    async with api(
        server, results="hits", parameters={"after": "{cursor}"}, cursor="next", max_pages=5
    ) as source:
        assert len(await ids(source)) == 5
    server.reply = lambda asked: {"hits": items(1), "next": "more"}
    server.asked.clear()
    async with api(
        server, results="hits", parameters={"after": "{cursor}"}, cursor="next", max_pages=50
    ) as source:
        assert len(await ids(source)) == 1
    assert len(server.asked) == 2


async def test_the_next_address_of_another_host_is_not_followed(server: Api) -> None:
    async with Hostile("127.0.0.3") as other:
        server.reply = lambda asked: {"hits": items(1), "next": f"{other.url}/good/api"}
        more = {
            "next_url": "next",
            "max_pages": 5,
            "allow_private": ["127.0.0.0/30"],
            "headers": {"X-Key": "secret-word"},
        }
        async with api(server, results="hits", **more) as source:
            hits = await source.search(Query(text="zebra"))
        assert isinstance(hits, Partial)
        assert "leads to another host" in hits.reason
        assert other.hits == []


async def test_a_later_page_that_fails_leaves_the_earlier_ones(server: Api) -> None:
    server.reply = lambda asked: items(*range(20)) if len(server.asked) == 1 else b"{broken"
    async with api(server, parameters={"p": "{page}"}, max_pages=3) as source:
        hits = await source.search(Query(text="zebra"))
    assert isinstance(hits, Partial)
    assert len(hits) == 20
    assert "Page 2:" in hits.reason
    assert "no JSON" in hits.reason


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"hits": 3}', "no list of items"),
        (b'"text"', "no list of items"),
        (b'{"error": "quota"}', "no list of items"),
    ],
)
async def test_an_answer_that_is_none_says_what_it_is(server: Api, body: bytes, message: str) -> None:
    server.reply = lambda asked: body
    async with api(server, results="hits") as source:
        with pytest.raises(SourceError, match=message):
            await ids(source)


async def test_items_that_cannot_be_used_are_counted_and_the_others_kept(server: Api) -> None:
    server.reply = lambda asked: [*items(1), None, 7, {"id": 2}, {"text": "  "}, {"text": {"a": 1}, "id": 9}]
    async with api(server) as source:
        hits = await source.search(Query(text="zebra"))
    assert isinstance(hits, Partial)
    assert "4 of 6 items were left out" in hits.reason
    assert [hit.document.id for hit in hits] == ["1", "9"]
    assert hits[1].document.content == '{"a": 1}'


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=9),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_any_item_is_a_document_or_a_reason(item: Any) -> None:
    everything = dict.fromkeys(("content", "updated_at", "labels", "score"), "@")
    mapped = FieldMapping("", {**FIELDS, **everything, "x": "length(@)"}, "web", True)
    mapped.open({})
    assert mapped.document(item, "https://example.org/")


async def test_so_many_requests_a_minute_and_none_that_would_come_too_late(server: Api) -> None:
    server.reply = lambda asked: items(1)
    async with api(server, per_minute=300) as source:
        begun = monotonic()
        for _ in range(3):
            await ids(source)
        assert monotonic() - begun >= 0.4
    async with api(server, per_minute=1) as source:
        await ids(source)
        with pytest.raises(SourceTimeout, match="per_minute"):
            await ids(source, deadline=monotonic() + 0.5)


async def test_secrets_in_headers_are_seen_in_no_message(server: Api) -> None:
    headers = {"Authorization": "Bearer very-secret-word"}
    async with api(
        server, url=f"{server.url}/status-404/very-secret-word/Bearer%20very-secret-word", headers=headers
    ) as source:
        with pytest.raises(SourceError) as caught:
            await ids(source)
        assert "very-secret-word" not in str(caught.value)


async def test_an_expression_that_is_none_stops_the_start(server: Api) -> None:
    with pytest.raises(SettingsError, match=r"HttpApi\.fields\.title 'a\.\[' is no JMESPath expression"):
        async with api(server, fields={"content": "x", "title": "a.["}):
            pass


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"url": "ftp://a/"}, "is not http or https"),
        ({"url": "https://a.example/{question}"}, "{question}"),
        ({"fields": {"url": "link"}}, "nothing of the content"),
        ({"body": {"q": "{query}"}}, 'no effect with method = "GET"'),
        ({"max_pages": 3}, "max_pages has no effect"),
        ({"page_size": 0}, "page_size"),
        ({"per_minute": -1}, "per_minute"),
        ({"headers": {"X:": "y"}}, "headers"),
        ({"headers": {"X": "y\r\nZ: 1"}}, "headers"),
        ({"allow_private": "10.0.0.0/8"}, "HttpApi.allow_private"),
    ],
)
def test_values_that_make_no_sense_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        HttpApi(**{"url": "https://a.example/?q={query}", "fields": FIELDS, **keywords})


@pytest.mark.case("SEC-07")
@pytest.mark.parametrize("question", ["..", ".", " .. ", "%2e%2e"])
async def test_no_question_changes_the_path_of_the_address(server: Api, question: str) -> None:
    server.reply = lambda asked: items(1)
    async with api(server, url=server.url + "/api/docs/{query}/items") as source:
        with contextlib.suppress(SourceError):
            await source.search(Query(text=question))
    paths = [head.split(" ")[1] for head in server.heads]
    assert paths in ([], ["/api/docs/%252e%252e/items"])


@pytest.mark.case("SEC-07")
def test_dots_that_are_no_step_of_a_path_stay() -> None:
    assert (
        url_template.fill_url("http://h/v1/{query}/items?q={query}", {"query": "..."})
        == "http://h/v1/.../items?q=..."
    )
    assert url_template.fill_url("http://h/v1/items?q={query}", {"query": ".."}) == "http://h/v1/items?q=.."
    for template in ("http://h/v1/{query}/items", "http://h/v1/.{query}"):
        with pytest.raises(SourceError, match="cannot stand in the path"):
            url_template.fill_url(template, {"query": "."} if "." in template[11:] else {"query": ".."})
