"""Filters are bounded, and the forms of their values are made once for a request, not for every hit."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.serving import router, serve_router

from contextrouter import ContextRouter, Document, Hit, Request, RequestRefused
from contextrouter import filters as filtering
from contextrouter.testing import Fixed


@pytest.mark.case("SEC-11")
@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"kind": ["document", *map(str, range(1_000))]}, "1 keys and 1001 values"),
        ({f"k{n}": 1 for n in range(51)}, "51 keys and 51 values"),
        ({"kind": "x" * 2_001}, "longer than 2000 characters"),
        ({"x" * 2_001: "kind"}, "longer than 2000 characters"),
        ({"year": {"$gt": 3}}, "filters['year'] is a value, or a list"),
        ({"year": [{"$gt": 3}]}, "filters['year'] is a value, or a list"),
    ],
)
async def test_filters_beyond_the_limits_are_refused_before_anything_runs(
    filters: dict[str, Any], message: str
):
    with pytest.raises(RequestRefused, match=re.escape(message)):
        Request(question="q", filters=filters)
    async with serve_router(router()) as ask:
        reply = await ask("/v1/route", {"question": "q", "filters": filters})
    assert (reply.status, message in reply.json["detail"]) == (422, True)


@pytest.mark.case("SEC-11")
async def test_the_forms_of_a_filter_are_made_once_for_a_request(monkeypatch: pytest.MonkeyPatch):
    counted: list[Any] = []
    forms = filtering.forms
    monkeypatch.setattr(filtering, "forms", lambda value: counted.append(value) or forms(value))
    hits = [Hit(document=Document(id=f"d{n}", content="x", kind="book")) for n in range(30)]
    values = ["book", *map(str, range(900))]
    async with ContextRouter(connectors={"a": Fixed(hits), "b": Fixed(hits)}) as made:
        context = await made.route("x", filters={"kind": values})
    assert len(context.envelopes) == 10
    # Once for the router, and once for the copy of each of the two sources.
    assert sum(isinstance(value, list) and len(value) == 901 for value in counted) <= 3


async def test_a_change_of_filters_after_a_request_was_made_has_no_effect():
    filters: dict[str, Any] = {"kind": ["book"]}
    request = Request(question="x", filters=filters)
    filters["kind"].append("video")
    filters["language"] = "de"
    assert request.filters == {"kind": ["book"]}
