"""Keys, scopes and rates: who is let in, what they may see, how often; and that nothing else gets out by any
door.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example import CommandLine
from support.serving import KEY, ScriptedGenerator, document, key, router, serve_router

from contextrouter import ContextRouter, Scope, SettingsError
from contextrouter.scope import SENSITIVITIES
from contextrouter.server.auth import Access, Caller, hash_key, is_loopback, narrow_scope, new_key
from contextrouter.server.error_responses import Refused
from contextrouter.server.logs import Structured
from contextrouter.testing.fakes import Fixed

GUARDED = ["/v1/sources", "/v1/models", "/metrics"]


async def test_where_keys_are_set_nothing_is_answered_without_one():
    async with serve_router(router(key())) as ask:
        for path in GUARDED:
            for header in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": KEY},
                {"Authorization": f"Basic {KEY}"},
            ):
                answer = await ask(path, headers=header)
                assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), (path, header)
        for path in ("/v1/route", "/v1/plan", "/v1/chat/completions"):
            assert (await ask(path, {"question": "q"})).status == 401
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert (await ask(path)).status == 200
        for scheme in ("Bearer", "bearer"):
            assert (await ask("/v1/sources", headers={"Authorization": f"{scheme} {KEY}"})).json[
                "caller"
            ] == "anna"


async def test_a_key_that_is_disabled_opens_nothing_and_leaves_nothing_open():
    async with serve_router(router(key(enabled=False)), token=KEY) as ask:
        assert (await ask("/v1/sources")).status == 401


async def test_without_keys_only_names_of_this_machine_are_answered():
    """A page of the web may make its own name lead to this machine."""
    async with serve_router(router()) as ask:
        status = {}
        for host in (
            "localhost:80",
            "127.0.0.1",
            "[::1]:99",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
        ):
            status[host] = (await ask("/v1/sources", headers={"Host": host})).status
    assert list(status.values()) == [200, 200, 200, 403, 403, 403]


def test_loopback_is_known_by_address_not_by_look():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "LOCALHOST"]))
    assert not any(
        map(is_loopback, ["", "0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.org", "example.org"])
    )


async def test_a_scope_is_the_key_s_or_narrower_never_wider():
    docs = [
        document("open"),
        document("pay", compartment="hr"),
        document("plan", sensitivity="internal"),
        document("all", tenant="acme"),
    ]
    async with serve_router(
        router(key(compartments=["hr"], ceiling="internal"), answer=docs), token=KEY
    ) as ask:

        async def seen(scope: Any) -> Any:
            answer = await ask("/v1/route", {"question": "q"} | ({} if scope is None else {"scope": scope}))
            return (
                {e["document"]["id"] for e in answer.json["envelopes"]}
                if answer.status == 200
                else answer.json["code"]
            )

        assert await seen(None) == {"open", "pay", "plan"}
        assert await seen({"compartments": ["hr"]}) == {"open", "pay"}
        assert await seen({"ceiling": "internal"}) == {"open", "plan"}
        assert await seen({}) == {"open"}
        for wider in ({"compartments": ["hr", "law"]}, {"ceiling": "restricted"}, {"tenant": "acme"}):
            assert await seen(wider) == "scope_exceeded"


def test_an_unrestricted_key_may_still_ask_for_less():
    everything = Caller(name="root")
    assert narrow_scope(everything, None) is None
    assert narrow_scope(everything, Scope(ceiling="internal")) == Scope(ceiling="internal")
    with pytest.raises(Refused):
        narrow_scope(Caller(name="x", scope=Scope()), Scope(tenant="t"))


async def test_a_key_asks_only_its_sources():
    sources = {"docs": Fixed("a"), "payroll": Fixed("b")}
    async with serve_router(router(key(sources=["docs"]), connectors=sources), token=KEY) as ask:
        told = (await ask("/v1/route", {"question": "q"})).json
        named = await ask("/v1/route", {"question": "q", "sources": ["payroll"]})
        chat = await ask(
            "/v1/chat/completions", {"model": "contextrouter", "messages": [{"role": "user", "content": "q"}]}
        )
        listed = {each["name"]: each["excluded"] for each in (await ask("/v1/sources")).json["sources"]}
    assert [envelope["document"]["id"] for envelope in told["envelopes"]] == ["a"]
    assert (named.status, named.json["code"]) == (403, "source_not_allowed")
    assert [each["id"] for each in chat.json["contextrouter"]["sources"]] == ["a"]
    assert listed == {"docs": "", "payroll": "not among the sources of this API key"}
    assert sources["payroll"].queries == []


async def test_a_caller_over_its_rate_is_refused():
    """The refusal says when to come back."""
    async with serve_router(
        router(key(rate_per_minute=2) | {"serve": {"rate_per_minute": 1}}), token=KEY
    ) as ask:
        answers = [await ask("/v1/plan", {"question": "q"}) for _ in range(3)]
        assert (await ask("/healthz")).status == 200
        assert (await ask("/metrics")).status == 200
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].json["code"] == "rate_limited"
    assert 25 <= int(answers[2].headers["Retry-After"]) <= 31


async def test_a_caller_has_no_more_requests_at_once_than_it_may():
    made = router(key(max_requests=1), connectors={"docs": Fixed("a", delay=0.5)})
    async with serve_router(made, token=KEY) as ask:
        answers = await asyncio.gather(*(ask("/v1/route", {"question": "q"}) for _ in range(3)))
    assert sorted(answer.status for answer in answers) == [200, 429, 429]


def test_every_key_is_compared_and_a_hash_is_no_key():
    made = {"keys": {name: {"hash": hash_key(f"cr_{name}"), "ceiling": "public"} for name in ("a", "b", "c")}}
    access = Access(ContextRouter(made).settings)
    assert [access.caller(f"Bearer cr_{name}", "any.host").name for name in "abc"] == ["a", "b", "c"]
    for wrong in (hash_key("cr_a"), "", "cr_", "cr_A", "cr_a\ud800"):
        with pytest.raises(Refused):
            access.caller(f"Bearer {wrong}", "localhost")


BAD_KEYS = [
    ({"hash": "cr_secret"}, "keys.k.hash"),
    ({"hash": hash_key("x")}, r"the key has no scope\. Set ceiling"),
    ({"hash": hash_key("x"), "unrestricted": True, "ceiling": "public"}, "have no effect"),
    ({"hash": hash_key("x"), "ceiling": "public", "sources": ["nowhere"]}, "'nowhere' is no defined source"),
    ({"hash": hash_key("x"), "ceiling": "public", "generator": "nobody"}, "'nobody' is no defined generator"),
    ({"hash": hash_key("x"), "ceiling": "top"}, "'top' is not allowed"),
]


@pytest.mark.parametrize(("table", "message"), BAD_KEYS, ids=[message for _, message in BAD_KEYS])
def test_a_key_that_says_too_little_or_too_much_stops_the_start(table: dict[str, Any], message: str):
    with pytest.raises(SettingsError, match=message):
        ContextRouter({"keys": {"k": table}})


def test_two_callers_have_two_keys():
    both = {name: {"hash": hash_key("same"), "ceiling": "public"} for name in ("a", "b")}
    with pytest.raises(SettingsError, match="key 'a' has the same hash"):
        ContextRouter({"keys": both})


def test_new_keys_are_unlike_and_only_their_hash_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
):
    cli = CommandLine(monkeypatch, capsys)
    made = json.loads(
        cli("keys", "new", "anna", "--compartment", "hr", "--ceiling", "internal", "--json", cwd=tmp_path).out
    )
    table = made["settings"]["keys"]["anna"]
    assert table == {"hash": hash_key(made["key"]), "compartments": ["hr"], "ceiling": "internal"}
    assert Access(ContextRouter(made["settings"]).settings).caller(
        f"Bearer {made['key']}", "x"
    ).scope == Scope(compartments=frozenset({"hr"}), ceiling="internal")
    shown = cli("keys", "new", "root", "--unrestricted")
    assert "unrestricted = true" in shown.out
    assert "[keys.root]" in shown.out
    assert cli("keys", "new", "Anna").code == 2
    assert cli("keys", "new", "anna", "--unrestricted", "--tenant", "t").code == 2
    assert len({new_key()[0] for _ in range(100)}) == 100
    assert len(made["key"]) >= 46


LABELS = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from([None, "acme", "other"]),
        "compartment": st.sampled_from([None, "hr", "law"]),
        "sensitivity": st.sampled_from([None, *SENSITIVITIES]),
    }
)
SCOPES = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from([None, "acme"]),
        "compartments": st.sets(st.sampled_from(["hr", "law"])).map(sorted),
        "ceiling": st.sampled_from(SENSITIVITIES),
    }
)


@settings(max_examples=25, deadline=None)
@given(labels=st.lists(LABELS, min_size=1, max_size=8), scope=SCOPES, careless=st.booleans())
def test_what_a_key_may_not_see_comes_out_by_no_door(
    labels: list[dict[str, Any]], scope: dict[str, Any], careless: bool
):
    """Random labels and keys: the canary of a forbidden document is in no answer, stream, trace, metric, log
    or error.
    """
    docs = [
        document(f"name-canary{i}x", f"what text-canary{i}x says", **label) for i, label in enumerate(labels)
    ]
    allowed = Scope(
        tenant=scope["tenant"], compartments=frozenset(scope["compartments"]), ceiling=scope["ceiling"]
    )
    seen = {i for i, hit in enumerate(docs) if allowed.allows(hit.document)}
    text = asyncio.run(
        _everything(docs, {name: value for name, value in scope.items() if value is not None}, careless)
    )
    out = {i for i in range(len(docs)) if f"canary{i}x" in text}
    assert out == seen


async def _everything(docs: list[Any], scope: dict[str, Any], careless: bool) -> str:
    """All that a server says to one key, and all that it logs."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(Structured([]))
    logger = logging.getLogger("contextrouter")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    said = ScriptedGenerator("It says so [1][2][3] [9].")
    made = router(
        key(**scope)
        | {
            "chat": {"synthesis_model": "said"},
            "rag": {"interpreters": [], "general_retrieval_final_count": 2},
        },
        connectors={"docs": Fixed(docs, careless=careless)},
        generators={"said": said},
    )
    told = []
    try:
        async with serve_router(made, token=KEY) as ask:
            for stream in (False, True):
                told.append(
                    (await ask("/v1/route", {"question": "what", "stream": stream, "detail": "trace"})).text
                )
                messages = [{"role": "user", "content": "what"}]
                body = {"model": "contextrouter", "messages": messages, "stream": stream}
                told.append((await ask("/v1/chat/completions", body)).text)
            told.append((await ask("/v1/plan", {"question": "what"})).text)
            wider = {"ceiling": "restricted", "compartments": ["hr", "law"]}
            told.append(
                (await ask("/v1/route", {"question": "what", "detail": "trace", "scope": wider})).text
            )
            told.append((await ask("/v1/route", {"question": ""})).text)
            told += [
                (await ask(path)).text
                for path in ("/v1/sources", "/v1/models", "/metrics", "/readyz", "/nowhere")
            ]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    return "\n".join([*told, lines.getvalue(), json.dumps(said.seen)])
