"""Filters: the same in a store, in a connector and on arrival; fields before metadata."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from contextrouter import (
    ContextRouter,
    Document,
    Hit,
    Intent,
    Interpreter,
    InterpreterContext,
    Query,
    Request,
)
from contextrouter.builtin.connectors import matching
from contextrouter.builtin.providers import filtering
from contextrouter.builtin.providers.memory import Memory
from contextrouter.contracts import Entry
from contextrouter.filters import FIELDS, attributes, forms, passes, request_filters
from contextrouter.pipeline.admission import Admission
from contextrouter.testing import Fixed

BOOK = Document(
    id="b1",
    content="x",
    kind="book",
    tenant="acme",
    sensitivity="internal",
    labels=("own",),
    path=("Part",),
    metadata={
        "year": 2020,
        "tags": ["a", "b"],
        "kind": "novel",
        "labels": ["told"],
        "path": "books/b.md",
        "deep": {"a": 1},
    },
)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"kind": "book"}, True),
        ({"kind": "novel"}, False),
        ({"kind": ["video", "book"]}, True),
        ({"id": "b1"}, True),
        ({"id": "b2"}, False),
        ({"tenant": "acme"}, True),
        ({"sensitivity": ("internal",)}, True),
        ({"compartment": "hr"}, False),
        ({"labels": "own"}, True),
        ({"labels": "told"}, False),
        ({"path": "books/b.md"}, True),
        ({"path": "Part"}, False),
        ({"year": 2020.0}, True),
        ({"year": "2020"}, False),
        ({"tags": "b"}, True),
        ({"tags": {"x", "a"}}, True),
        ({"missing": "x"}, False),
        ({"missing": None}, False),
        ({"compartment": None}, False),
        ({"year": []}, False),
        ({"deep": {"a": 1}}, False),
        ({"kind": "book", "year": 2021}, False),
        ({}, True),
    ],
)
def test_store_connector_and_arrival_let_the_same_through(filters: dict[str, Any], found: bool) -> None:
    query = Query(text="", filters=filters)
    assert passes(BOOK, filters) is found
    assert filtering.matches(BOOK, query) is found
    assert matching.matches(BOOK, query) is found
    assert bool(Admission(query, None).hits([Hit(document=BOOK)])) is found


def test_equal_numbers_are_alike_and_texts_are_no_numbers() -> None:
    assert forms([1, 1.0, True]) == forms([1]) * 3
    assert forms("1") != forms(1)
    assert attributes(BOOK)["kind"] == {"book"}
    assert set(attributes(BOOK)) == {*"id tenant sensitivity kind media_type labels year tags path".split()}


@pytest.mark.parametrize(
    "value", [datetime(2025, 3, 1, tzinfo=UTC), Decimal("1.50"), b"bytes", 2.5, "text", 7, True]
)
def test_a_value_is_found_by_itself_before_and_after_it_was_stored(value: object) -> None:
    """A store writes metadata as JSON: what it gives back is checked again on arrival."""
    document = Document(content="", metadata={"m": value})
    stored = msgspec.json.decode(msgspec.json.encode(document), type=Document)
    assert passes(document, {"m": value})
    assert passes(stored, {"m": value})


def test_every_filtered_field_is_one_of_a_document() -> None:
    assert set(FIELDS) <= set(Document.__struct_fields__)


class Labels(Interpreter):
    """Asks for what bears a label."""

    async def interpret(self, intent: Intent, context: InterpreterContext) -> Intent:
        return intent.replace(labels=("wanted",))


async def test_labels_of_the_intent_are_enforced_on_arrival() -> None:
    bearing, other = (Document(id=name, content=name, labels=(name,)) for name in ("wanted", "other"))
    careless = Fixed([Hit(document=bearing), Hit(document=other)], careless=True)
    async with ContextRouter(connectors={"s": careless}, interpreters={"labels": Labels()}) as router:
        context = await router.route("q")
    assert [envelope.document.id for envelope in context.envelopes] == ["wanted"]
    assert context.coverage[0].withheld == 1


async def test_a_request_s_filter_on_a_field_is_not_met_by_metadata() -> None:
    store = Memory()
    forged = Document(id="f", content="tides", kind="web", metadata={"kind": "book"})
    await store.upsert(
        [Entry(document=d, chunks=[d]) for d in (forged, Document(id="t", content="tides", kind="book"))]
    )
    async with ContextRouter(providers={"m": store}) as router:
        for filters, expected in (({"kind": "book"}, ["t"]), ({"id": "f"}, ["f"])):
            context = await router.route(Request(question="tides", filters=filters))
            assert [envelope.document.id for envelope in context.envelopes] == expected


@pytest.mark.parametrize(
    ("kinds", "named", "both"),
    [
        (None, "book", "book"),
        (("book", "video"), None, ["book", "video"]),
        (("book", "video"), "video", ["video"]),
        (("book",), ["video", "qa"], []),
        ((), "book", []),
    ],
)
def test_kinds_and_a_filter_for_kinds_both_hold(kinds: tuple[str, ...] | None, named: Any, both: Any) -> None:
    filters = {"year": 2020} if named is None else {"year": 2020, "kind": named}
    assert request_filters(Request(question="q", kinds=kinds, filters=filters)) == {
        "year": 2020,
        "kind": both,
    }
