"""What a caller writes by hand: made right where that is plain, and refused by name before anything runs
where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from contextrouter import ContextRouter, Request, RequestRefused
from contextrouter.testing import Facts, Fixed, Legs, hits


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("deadline", -1, "The deadline is -1 seconds from now. Give a number above 0."),
        ("deadline", 0, "The deadline is 0 seconds"),
        ("deadline", nan, "The deadline is nan seconds"),
        ("deadline", inf, "The deadline is inf seconds"),
        ("deadline", "2", "The deadline is '2' seconds"),
        ("sources", "good", r"Request.sources is a list of names, not str 'good'. Write \('good',\)."),
        ("legs", b"text", "Request.legs is a list of names, not bytes"),
        ("kinds", "book", "Request.kinds is a list of names, not str 'book'"),
        ("kinds", ["book", 3], "Request.kinds is a list of names, not list"),
        ("sources", {"a": 1}, "Request.sources is a list of names, not dict"),
        ("question", None, "Request.question is a text, not NoneType None"),
        ("filters", ["kind"], "Request.filters is a mapping, not list"),
        ("profile", "me", "Request.profile is a mapping, not str 'me'"),
        ("history", "hello", "Request.history is a list of mappings"),
        ("mode", 1, "Request.mode is the name of a route, not int 1"),
        ("scope", "acme", "Request.scope is a Scope, not str 'acme'"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_name(field: str, value: Any, message: str):
    """It is refused when the request is made and when it is changed."""
    with pytest.raises(RequestRefused, match=message):
        Request(**{"question": "q", field: value})
    with pytest.raises(RequestRefused, match=message):
        Request(question="q").replace(**{field: value})


def test_lists_and_sets_of_names_become_tuples():
    request = Request(question="q", sources=["b", "a"], legs={"y", "x"}, kinds={"book": 1}.keys())  # type: ignore[arg-type]  # any collections of names will do
    assert (request.sources, request.legs, request.kinds) == (("b", "a"), ("x", "y"), ("book",))


SETTINGS = {"connectors": {"off": {"use": "files", "path": ".", "enabled": False}}}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.route("q", sources="docs"), "Request.sources is a list of names"),
        (lambda r: r.route("q", deadline=-1), "The deadline is -1 seconds"),
        (
            lambda r: r.route("q", legs=["vektor"]),
            r"No source has a leg 'vektor'. Legs: facts, text, vector.",
        ),
        (lambda r: r.plan(Request(question="q", legs=("vektor",))), "No source has a leg 'vektor'"),
        (
            lambda r: r.route("q", sources=["off"]),
            r"Source 'off' is disabled: \[connectors.off\] says enabled = false.",
        ),
        (lambda r: r.route("q", sources=["of"]), "Source 'of' is not defined. Defined sources: docs, g"),
    ],
)
async def test_names_that_nothing_has_are_refused(ask: Callable[[ContextRouter], Any], message: str):
    docs = Legs({"text": hits("a"), "vector": hits("b")})
    async with ContextRouter(SETTINGS, providers={"docs": docs}, facts={"g": Facts([])}) as router:
        with pytest.raises(RequestRefused, match=message):
            await ask(router)
    assert not docs.queries


async def test_a_leg_that_some_source_has_may_be_asked_for():
    docs = Legs({"text": hits("a"), "vector": hits("b")})
    async with ContextRouter({}, providers={"docs": docs}, connectors={"web": Fixed("c")}) as router:
        context = await router.route("q", legs=["text"])
    assert [envelope.document.id for envelope in context.envelopes] == ["a"]
