"""The provider `vertex_search` against a search app on loopback: filters, modes, pages, scores."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import pytest
from support.vertex import Script, Step, listening, opened

from contextrouter import Hit, Period, Query, Scope
from contextrouter.builtin.providers.vertex_search import VertexSearch
from contextrouter.builtin.providers.vertex_search.filter_expression import quote_string
from contextrouter.builtin.providers.vertex_search.search_server import SearchServer, Stored, parse_filter
from contextrouter.contracts import Partial
from contextrouter.errors import SourceError

LABELS = {"tenant": "team", "sensitivity": "level"}


@asynccontextmanager
async def app(server: SearchServer, **keys: Any) -> AsyncIterator[tuple[VertexSearch, Script]]:
    keys = {"project": "p", "engine": "intranet", **keys}
    async with listening(server) as (endpoint, script), opened(VertexSearch(endpoint=endpoint, **keys)) as it:
        yield it, script


def stored(id: str, text: str, **data: Any) -> Stored:
    return Stored(id, id.title(), text, data, f"https://example.org/{id}")


async def find(provider: VertexSearch, text: str, **fields: Any) -> list[Hit]:
    return list(await provider.search(Query(text=text, **fields)))


async def test_a_chunk_has_its_text_page_address_and_relevance():
    async with app(SearchServer([stored("tides", "The moon raises the tides.", year=2024)])) as (provider, _):
        (hit,) = await find(provider, "moon tides")
        document = hit.document
        assert (document.id, document.parent, document.title) == ("tides#c1", "tides", "Tides")
        assert (document.url, document.content) == ("https://example.org/tides", "The moon raises the tides.")
        assert document.metadata == {"year": 2024, "page": 2, "last_page": 3}
        assert hit.score == 1.0
        assert provider.score_range == (-1.0, 1.0)


async def test_scope_and_filters_narrow_there_by_the_fields_that_labels_names():
    server = SearchServer(
        [
            stored("a", "moon", team="acme", level="internal", dept="x"),
            stored("b", "moon", team="acme", level="secret", dept="x"),
            stored("c", "moon", team="globex", level="-", dept="x"),
            stored("d", "moon", team="*", level="-", dept="y"),
        ]
    )
    labels = {**LABELS, "division": "dept"}
    async with app(server, labels=labels) as (provider, _):
        scope = Scope(tenant="acme", ceiling="internal")
        assert [hit.document.id for hit in await find(provider, "moon", scope=scope)] == ["a#c1", "d#c1"]
        assert server.asked[-1].filter == ('team: ANY("acme", "*") AND level: ANY("-", "public", "internal")')
        (hit,) = await find(provider, "moon", scope=scope, filters={"division": "y"}, limit=1)
        assert (hit.document.id, hit.document.tenant, hit.document.sensitivity) == ("d#c1", "*", None)
        assert server.asked[-1].page_size == 1
        assert await find(provider, "moon", filters={"division": ["z"]}) == []


async def test_what_cannot_be_asked_for_is_checked_on_arrival():
    server = SearchServer(
        [stored(f"m{n}", "moon", year=2000 + n, when=f"20{n:02d}-05-01", tags=["a"]) for n in range(30)]
    )
    async with app(server, fields={"updated_at": "when"}) as (provider, _):
        hits = await find(provider, "moon", filters={"year": 2029}, limit=1)
        assert [hit.document.id for hit in hits] == ["m29#c1"]
        assert server.asked[-1].page_size == 100
        period = Period(start=date(2028, 1, 1), end=date(2028, 12, 31))
        assert [hit.document.id for hit in await find(provider, "moon", period=period, limit=2)] == ["m28#c1"]


@pytest.mark.parametrize("text", ['a" OR tenant: ANY("b', "\\", 'x\\" ) AND y: ANY("z', "\n\x00", "ß “q”"])
async def test_a_filter_cannot_be_escaped_from(text: str):
    expected = text.replace("\n", "").replace("\x00", "")  # control characters are in no string of a filter
    assert parse_filter(f"team: ANY({quote_string(text)})", {"team"}) == [("team", {expected})]
    server = SearchServer([stored("a", "moon", team="acme")])
    async with app(server, labels={"tenant": "team"}) as (provider, _):
        assert await find(provider, "moon", scope=Scope(tenant=text)) == []


@pytest.mark.parametrize(
    "text", ["東京\u3000支社", "10\u00a0000", "می\u200cخواهم", "👩\u200d🔬", "co\u00adop", "a\u2028b"]
)
async def test_spaces_and_joiners_of_all_scripts_stay_in_a_filter(text: str):
    server = SearchServer([stored("a", "moon", team=text), stored("b", "moon", team="other")])
    async with app(server, labels={"tenant": "team"}) as (provider, _):
        (hit,) = await find(provider, "moon", scope=Scope(tenant=text), limit=1)
        assert (hit.document.id, hit.document.tenant) == ("a#c1", text)


@pytest.mark.parametrize(
    "text", ["team = 1", 'team: ANY("a") OR x: ANY("b")', "team: ANY(a)", 'other: ANY("a")']
)
async def test_the_service_refuses_filters_of_another_form_and_fields_it_does_not_have(text: str):
    async with app(SearchServer([stored("a", "moon", team="acme")])) as (provider, _):
        request = provider._request(Query(text="moon"), 1)
        request.filter = text
        with pytest.raises(SourceError, match=r"refuses the request \((Invalid filter|Unsupported field)"):
            await provider._connection.call(provider._client.search, request)


async def test_documents_mode_gives_the_part_that_fits_and_answers_as_highlights():
    server = SearchServer([stored("tides", "The moon raises the tides of the sea.")], chunked=False)
    async with app(server, mode="documents") as (provider, _):
        (first,) = await find(provider, "moon")
        (second,) = await find(provider, "tides")
        assert first.document == second.document, "a document does not depend on the question"
        assert first.document.id.startswith("tides#")
        assert first.document.parent == "tides"
        assert first.highlights == ("The moon raises the ", "<b>moon</b>")
        assert second.highlights[-1] == "<b>tides</b>"
        server.segments = False
        (whole,) = await find(provider, "moon")
        assert (whole.document.id, whole.document.content) == ("tides", server.documents[0].text)


async def test_results_without_text_are_counted():
    server = SearchServer([stored("a", "moon"), stored("b", "")], chunked=True)
    server.documents[1] = Stored("b", "Moon", "")
    async with app(server) as (provider, _):
        hits = await provider.search(Query(text="moon"))
        assert isinstance(hits, Partial)
        assert (len(hits), hits.reason) == (1, "1 of 2 results have no text")


@pytest.mark.parametrize("level", [None, 7, True, {"is": "secret"}, [], ["secret", "-"], [7], "", math.nan])
async def test_a_result_without_labels_is_left_out_and_counted(level: Any):
    """A label of another type, or none at all, must not become "all may see it"."""
    server = SearchServer([stored("a", "moon", level=level), stored("b", "moon", level="-")])
    async with app(server, labels={"sensitivity": "level"}) as (provider, _):
        for scope in (None, Scope()):
            server.documents[0] = stored("a", "moon", level=level)
            hits = await provider.search(Query(text="moon", scope=scope))
            assert [hit.document.id for hit in hits] == ["b#c1"]
        hits = await provider.search(Query(text="moon"))
        assert isinstance(hits, Partial)
        assert "1 of 2 results have no text in the field 'level' of labels.sensitivity" in hits.reason


def mode(chunks: bool) -> dict[str, Any]:
    return {"mode": "chunks" if chunks else "documents"}


@pytest.mark.parametrize("chunks", [True, False])
async def test_results_without_an_id_are_counted_and_not_taken_for_one_another(chunks: bool):
    server = SearchServer([stored(f"d{n}", f"moon {n}") for n in range(3)], chunked=chunks)
    async with app(server, **mode(chunks)) as (provider, _):
        server.named = lambda document: document.id == "d1"
        hits = await provider.search(Query(text="moon"))
        assert [hit.document.parent for hit in hits] == ["d1"]
        assert isinstance(hits, Partial)
        assert hits.reason.startswith("2 of 3 results have no ")


@pytest.mark.parametrize("score", [math.nan, math.inf, 7.0, -1.5])
async def test_scores_that_are_none_are_left_out(score: float):
    server = SearchServer([stored("a", "moon"), stored("b", "moon")])
    server.share = lambda share: score
    async with app(server) as (provider, _):
        assert [hit.score for hit in await find(provider, "moon")] == [None, None]


async def test_values_of_other_types_are_no_titles_dates_or_numbers():
    data = {"year": math.nan, "heading": 7, "when": 1.5, "what": ["x"], "team": "-", "page": 2.0}
    names = {"title": "heading", "updated_at": "when", "kind": "what"}
    for chunked in (True, False):
        server = SearchServer([stored("a", "moon", **data)], chunked=chunked)
        server.derived = {"title": ["x"], "link": {"a": 1}, "snippets": "no", "extractive_answers": [7, {}]}
        async with app(server, fields=names, labels={"tenant": "team"}, **mode(chunked)) as (provider, _):
            (hit,) = await find(provider, "moon")
            document = hit.document
            assert (document.title, document.url) == (("A", "https://example.org/a") if chunked else ("", ""))
            assert (document.updated_at, document.kind, document.tenant) == (None, "document", None)
            assert document.metadata["year"] is None
            assert type(document.metadata["page"]) is int
            assert hit.highlights == ()


@pytest.mark.case("VTX-03")
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("keys", [{"engine": "intranet"}, {"engine": "", "data_store": "example"}])
async def test_a_mode_that_does_not_fit_the_data_store_is_named_at_the_start(
    chunked: bool, keys: Mapping[str, str]
):
    """Asked in the other mode, the service finds nothing and says nothing."""
    fits, other = ("chunks", "documents") if chunked else ("documents", "chunks")
    async with app(SearchServer(chunked=chunked), mode=fits, **keys) as (provider, _):
        assert await find(provider, "moon")
    async with listening(SearchServer(chunked=chunked)) as (endpoint, _):
        provider = VertexSearch(project="p", endpoint=endpoint, mode=other, **keys)
        made = "with" if chunked else "without"
        with pytest.raises(SourceError, match=rf"'example' was made {made} chunks.*Set mode = '{fits}'"):
            await provider.open()
        await provider.aclose()


async def test_an_account_that_may_not_read_the_settings_of_a_data_store_may_search():
    async with listening(SearchServer()) as (endpoint, script):
        script.only, script.always = ("GetEngine",), Step(status="PERMISSION_DENIED")
        async with opened(VertexSearch(project="p", engine="intranet", endpoint=endpoint)) as provider:
            assert await find(provider, "moon")


async def test_a_data_store_that_is_not_there_is_named():
    with pytest.raises(SourceError, match=r"Vertex AI Search has no '.*/dataStores/missing'"):
        async with app(SearchServer(), engine="", data_store="missing"):
            pass


async def test_a_page_smaller_than_asked_for_says_which_limit_to_set():
    server = SearchServer([stored(f"m{n:02d}", "moon") for n in range(40)])
    server.most = 25
    async with app(server) as (provider, script):
        script.seen.clear()
        hits = await provider.search(Query(text="moon", limit=30))
        assert isinstance(hits, Partial)
        assert (len(hits), hits.reason) == (25, "a page of this store has 25 results; set limit = 25")
        assert script.methods() == ["Search"], "one page for one question"
        assert not isinstance(await provider.search(Query(text="moon", limit=25)), Partial)


async def test_scores_that_contradict_the_order_are_left_out():
    server = SearchServer([stored("a", "moon"), stored("b", "moon tides")])
    async with app(server) as (provider, _):
        assert [hit.score for hit in await find(provider, "moon tides")] == [1.0, 0.5]
        server.boost = lambda document: 5.0 if document.id == "a" else 0.0
        hits = await find(provider, "moon tides")
        assert [(hit.document.id, hit.score) for hit in hits] == [("a#c1", None), ("b#c1", None)]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, "Give either engine"),
        ({"engine": "a", "data_store": "b"}, "Give either engine"),
        ({"engine": "a", "mode": "pages"}, "mode 'pages' is not one of"),
        ({"engine": "a", "labels": {"tenant": 'x" OR'}}, "is no field of a schema"),
        ({"engine": "a", "fields": {"colour": "x"}}, "fields has the name 'colour'"),
        ({"engine": "a/b"}, "engine 'a/b' is no name"),
    ],
)
def test_a_wrong_key_says_what_is_wrong(keys: Mapping[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        VertexSearch(**keys)
