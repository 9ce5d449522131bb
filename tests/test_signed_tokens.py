"""Callers with a signed token of an identity provider: its claims are their scope, and nothing else counts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from support.serving import KEY, document, key, router, serve_router

from contextrouter import SettingsError
from contextrouter.server import signed_tokens

ISSUER, AUDIENCE = "https://login.example.org", "contextrouter"
PRIVATE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
EDWARDS = ed25519.Ed25519PrivateKey.generate()
DOCS = [
    document("open"),
    document("staff", sensitivity="internal"),
    document("pay", compartment="hr"),
    document("ours", tenant="acme"),
]


def pem(private: Any) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return private.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def jwk(private: Any, kid: str) -> dict[str, Any]:
    kinds = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    (kind,) = [kind for of, kind in kinds.items() if isinstance(private, of)]
    return {**json.loads(kind.to_jwk(private.public_key())), "kid": kid, "use": "sig"}


def token(private: Any = PRIVATE, algorithm: str = "RS256", kid: str | None = None, **claims: Any) -> str:
    """A token; a claim that is None is left out."""
    told = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "exp": int(time.time()) + 300, **claims}
    told = {name: value for name, value in told.items() if value is not None}
    return jwt.encode(told, private, algorithm, headers={"kid": kid} if kid else None)


def settings(**more: Any) -> dict[str, Any]:
    return {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, **more}}


@pytest.fixture
def keys_file(tmp_path: Path) -> str:
    (tmp_path / "keys.pem").write_text(pem(PRIVATE))
    return str(tmp_path / "keys.pem")


async def seen(ask: Any, bearer: str, **body: Any) -> Any:
    headers = {"Authorization": f"Bearer {bearer}"}
    answer = await ask("/v1/route", {"question": "about", **body}, headers=headers)
    if answer.status != 200:
        return answer.status, answer.json["code"]
    return sorted(citation["title"] for citation in answer.json["citations"])


async def test_claims_are_the_scope_of_the_caller(keys_file: str):
    async with serve_router(router(settings(keys_file=keys_file), answer=DOCS)) as ask:
        assert await seen(ask, token()) == ["open"]
        assert await seen(ask, token(ceiling="internal")) == ["open", "staff"]
        assert await seen(ask, token(compartments=["hr"], ceiling="public")) == ["open", "pay"]
        assert await seen(ask, token(compartments="sales hr")) == ["open", "pay"]
        assert await seen(ask, token(tenant="acme")) == ["ours"]
        assert await seen(ask, token(ceiling="internal"), scope={"ceiling": "public"}) == ["open"]
        assert await seen(ask, token(), scope={"ceiling": "internal"}) == (403, "scope_exceeded")
        told = (await ask("/v1/sources", headers={"Authorization": f"bearer {token()}"})).json
        without = await ask("/v1/route", {"question": "about"})
    assert told["caller"] == "token anna"
    assert (without.status, without.json["code"]) == (401, "invalid_api_key")


async def test_names_of_claims_are_those_of_the_provider_and_may_lie_in_objects(keys_file: str):
    names = {"compartments_claim": "realm_access.roles", "tenant_claim": "https://example.org/tenant"}
    async with serve_router(router(settings(keys_file=keys_file, **names), answer=DOCS)) as ask:
        assert await seen(ask, token(realm_access={"roles": ["hr"]})) == ["open", "pay"]
        assert await seen(ask, token(**{"https://example.org/tenant": "acme"})) == ["ours"]


WRONG = {
    "another key": lambda: token(OTHER),
    "another issuer": lambda: token(iss="https://evil.example.org"),
    "another audience": lambda: token(aud="elsewhere"),
    "over": lambda: token(exp=int(time.time()) - 3600),
    "endless": lambda: token(exp=None),
    "not yet": lambda: token(nbf=int(time.time()) + 3600),
    "nobody": lambda: token(sub=None),
    "no audience": lambda: token(aud=None),
    "unsigned": lambda: jwt.encode(
        {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "exp": 1 << 33},
        None,
        "none",  # type: ignore[arg-type]  # wrong on purpose
    ),
    "ceiling": lambda: token(ceiling="everything"),
    "compartments": lambda: token(compartments={"hr": True}),
    "compartments of numbers": lambda: token(compartments=[1]),
    "tenant": lambda: token(tenant=["acme"]),
    "a tenant that no encoding carries": lambda: token(tenant="\ud800"),
    "a compartment that no encoding carries": lambda: token(compartments=["hr", "\ud800"]),
    "cut": lambda: token()[:-8],
    "no json": lambda: "eyJ.eyJ.x",
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
async def test_a_token_that_is_wrong_in_any_way_grants_nothing(make: Any, keys_file: str):
    async with serve_router(router(settings(keys_file=keys_file), answer=DOCS)) as ask:
        assert await seen(ask, make()) == (401, "invalid_token")


async def test_a_public_key_is_no_secret_to_sign_with(keys_file: str):
    """A token that is signed by HMAC with the public key as its secret."""
    import base64
    import hashlib
    import hmac

    def encoded(part: bytes) -> bytes:
        return base64.urlsafe_b64encode(part).rstrip(b"=")

    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "exp": int(time.time()) + 300}
    parts = encoded(b'{"alg":"HS256","typ":"JWT"}') + b"." + encoded(json.dumps(claims).encode())
    mark = encoded(hmac.new(pem(PRIVATE).encode(), parts, hashlib.sha256).digest())
    async with serve_router(router(settings(keys_file=keys_file), answer=DOCS)) as ask:
        assert await seen(ask, (parts + b"." + mark).decode()) == (401, "invalid_token")


@pytest.mark.parametrize("form", ["pem", "jwks"])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("kept", [PRIVATE, CURVE, EDWARDS], ids=["rsa", "curve", "edwards"])
async def test_a_token_of_another_kind_than_the_key_is_a_wrong_token(
    kept: Any, algorithm: str, form: str, tmp_path: Path
):
    """And no fault of the server, whoever sends it."""
    signers = {"RS256": PRIVATE, "ES256": CURVE, "EdDSA": EDWARDS}
    text = pem(kept) if form == "pem" else json.dumps({"keys": [jwk(kept, "only")]})
    (tmp_path / "keys").write_text(text)
    async with serve_router(router(settings(keys_file=str(tmp_path / "keys")), answer=DOCS)) as ask:
        found = await seen(ask, token(signers[algorithm], algorithm))
    assert found == (["open"] if signers[algorithm] is kept else (401, "invalid_token"))


async def test_the_rate_counts_for_each_subject_of_a_token(keys_file: str):
    limited = settings(keys_file=keys_file) | {"serve": {"rate_per_minute": 1}}
    made = router(limited, answer=DOCS)
    async with serve_router(made) as ask:
        assert await seen(ask, token()) == ["open"]
        assert await seen(ask, token()) == (429, "rate_limited")
        assert await seen(ask, token(sub="bert")) == ["open"]


async def test_keys_and_tokens_stand_beside_each_other(keys_file: str):
    both = settings(keys_file=keys_file) | key(ceiling="internal")
    async with serve_router(router(both, answer=DOCS)) as ask:
        assert await seen(ask, KEY) == ["open", "staff"]
        assert await seen(ask, token()) == ["open"]
        assert await seen(ask, "cr_wrong") == (401, "invalid_api_key")


@asynccontextmanager
async def provider(keys: list[Any]) -> AsyncIterator[tuple[str, list[int]]]:
    """The JWKS of an identity provider, and a number for each time that it is read."""
    read: list[int] = []

    async def answer(_: web.Request) -> web.Response:
        read.append(len(read))
        return web.json_response({"keys": keys}) if keys else web.Response(status=500)

    app = web.Application()
    app.router.add_get("/jwks", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # it listens
    try:
        yield f"http://127.0.0.1:{port}/jwks", read
    finally:
        await runner.cleanup()


async def test_keys_of_a_provider_are_read_once_and_again_for_a_new_one(monkeypatch: pytest.MonkeyPatch):
    keys = [{"kty": "oct", "k": "AAAA", "kid": "secret"}, jwk(PRIVATE, "first"), {"kty": "RSA", "kid": "bad"}]
    async with (
        provider(keys) as (url, read),
        serve_router(router(settings(jwks_url=url), answer=DOCS)) as ask,
    ):
        first, rotated = token(kid="first"), token(CURVE, "ES256", kid="second")
        assert await seen(ask, f" {first}") == ["open"], "two spaces before the first token"
        found = await asyncio.gather(*(seen(ask, first) for _ in range(8)))
        assert found == [["open"]] * 8
        assert len(read) == 1
        assert await seen(ask, rotated) == (401, "invalid_token")
        assert len(read) == 1, "a stranger's tokens cause no traffic"
        keys.append(jwk(CURVE, "second"))
        monkeypatch.setattr(signed_tokens, "LEAST_SECONDS", 0.0)
        assert await seen(ask, rotated) == ["open"]
        assert await seen(ask, token(CURVE, "ES256", kid="first")) == (401, "invalid_token")
        assert await seen(ask, token(OTHER, kid="first")) == (401, "invalid_token")
        keys.clear()
        assert await seen(ask, token(kid="third")) == (401, "invalid_token")
        assert await seen(ask, first) == ["open"], "a provider that is gone takes no key away"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"keys_file": "k.pem"}, r"jwt\.issuer"),
        ({"keys_file": "k.pem", "issuer": ISSUER}, r"jwt\.audience"),
        ({"issuer": ISSUER}, "no token is taken. Set keys_file or jwks_url"),
        (
            {"keys_file": "k", "jwks_url": "https://x.example/jwks", "issuer": "i", "audience": "a"},
            "one of the two",
        ),
        ({"jwks_url": "http://x.example/jwks", "issuer": "i", "audience": "a"}, "over https"),
        ({"jwks_url": "https://x.example/jwks", "algorithms": ["HS256"]}, "HS256"),
    ],
    ids=str,
)
def test_a_table_that_would_take_the_tokens_of_others_is_refused(table: dict[str, Any], said: str):
    with pytest.raises(SettingsError, match=said):
        router({"jwt": table})


@pytest.mark.parametrize(
    "text", [None, "", "no key", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AA"}]}']
)
async def test_a_file_without_a_public_key_stops_the_start(text: str | None, tmp_path: Path):
    if text is not None:
        (tmp_path / "keys").write_text(text)
    with pytest.raises(SettingsError, match=r"keys_file '.*keys' has no public key: "):
        async with serve_router(router(settings(keys_file=str(tmp_path / "keys")))):
            pass
