"""Signed tokens (JWT) of an identity provider: their claims say who asks, and what the caller may see.

The keys are public ones, from a file or from the provider's JWKS. A token counts only with a known key, a
listed algorithm, the issuer, the audience and a time at which it ends. What a claim does not grant, is not
granted: without a ceiling the caller sees what is public.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from contextrouter.errors import MissingDependency, SettingsError
from contextrouter.runtime.limited_file import read_limited
from contextrouter.scope import SENSITIVITIES, Scope
from contextrouter.server.error_responses import Refused
from contextrouter.server.logs import log
from contextrouter.settings import Jwt
from contextrouter.text.characters import whole_texts

MOST_BYTES = 1_000_000
"""Of a file of keys, and of a JWKS."""
FETCH_SECONDS = 5.0
LEAST_SECONDS = 5.0
"""Between two readings of a JWKS, whatever key a token names: a stranger's tokens cause no traffic."""


class Grant(NamedTuple):
    """What a token grants: the name of its caller, and the scope."""

    name: str
    scope: Scope


class SignedTokens:
    """Verifies the tokens of one issuer. Raises SettingsError for a file without a public key."""

    def __init__(self, jwt: Jwt) -> None:
        self._settings = jwt
        self._keys: dict[str, Any] = {}  # key id -> key
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        try:
            import jwt as library
        except ImportError:
            raise MissingDependency("jwt", "jwt", what="[jwt]") from None
        self._library: Any = library
        if jwt.keys_file:
            self._keys = self._read_file(Path(jwt.keys_file))

    @staticmethod
    def looks_like(token: str) -> bool:
        """Whether a text has the form of a signed token: three parts with points between them."""
        return token.count(".") == 2 and token.startswith("ey")  # "ey": the beginning of a JSON object

    async def prepare(self, token: str) -> None:
        """Read the JWKS where it has to be: for the first token, for a key that is new, and when it is old.

        Where that fails, the keys there are go on to count.
        """
        url = self._settings.jwks_url
        has_key = self._key_of(token) is not None
        if not url or (has_key and (self._reading.locked() or not self._has_to_read(token))):
            return
        async with self._reading:
            if not self._has_to_read(token):  # another request has read it, or it was read just now
                return
            self._read_at = monotonic()
            try:
                self._keys = self._read_set(await _fetch(url))
            except (ValueError, OSError, TimeoutError, self._library.PyJWTError) as error:
                log.warning("The keys of [jwt] jwks_url cannot be read: %s", error or type(error).__name__)

    def _has_to_read(self, token: str) -> bool:
        age = math.inf if self._read_at is None else monotonic() - self._read_at
        if age > self._settings.refresh_seconds:
            return True
        return age > LEAST_SECONDS and self._key_of(token) is None

    def verify(self, token: str) -> Grant:
        """Return what a token grants. Raises Refused (401)."""
        settings, key = self._settings, self._key_of(token)
        if key is None:
            raise _refusal("it is signed with a key that is not known")
        try:
            claims: Mapping[str, Any] = self._library.decode(
                token,
                key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_seconds,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (self._library.InvalidKeyError, TypeError, ValueError):
            raise _refusal("its key is for other algorithms than the one that it names") from None
        except self._library.PyJWTError as error:
            raise _refusal(str(error) or type(error).__name__) from None
        return Grant(f"token {claims['sub']}"[:200], self._scope(claims))

    def _scope(self, claims: Mapping[str, Any]) -> Scope:
        settings = self._settings
        tenant = _claim(claims, settings.tenant_claim)
        compartments = _claim(claims, settings.compartments_claim)
        ceiling = _claim(claims, settings.ceiling_claim)
        if isinstance(compartments, str):
            compartments = compartments.split()  # as OAuth writes its scopes
        compartments = [] if compartments is None else compartments
        if not (tenant is None or (isinstance(tenant, str) and tenant)):
            raise _refusal(f"its claim {settings.tenant_claim!r} is no text")
        if not isinstance(compartments, list) or not all(isinstance(name, str) for name in compartments):
            raise _refusal(f"its claim {settings.compartments_claim!r} is no list of texts")
        texts = (tenant or "", *compartments)
        if whole_texts(texts) != texts:
            raise _refusal("a text in it has characters that no encoding can carry")
        if ceiling is not None and ceiling not in SENSITIVITIES:
            raise _refusal(f"its claim {settings.ceiling_claim!r} is none of {', '.join(SENSITIVITIES)}")
        return Scope(tenant=tenant, compartments=frozenset(compartments), ceiling=ceiling or "public")

    def _key_of(self, token: str) -> Any:
        """Return the key that a token names; the only one there is, where it names none."""
        try:
            name = self._library.get_unverified_header(token).get("kid")
        except self._library.PyJWTError:
            return None
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get("") or self._keys.get(str(name))

    def _read_file(self, path: Path) -> dict[str, Any]:
        try:
            text = read_limited(path, MOST_BYTES)
            if text.lstrip().startswith("{"):
                return self._read_set(text)
            return {"": _public_key(text)}
        except (OSError, ValueError, self._library.PyJWTError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"[jwt] keys_file {str(path)!r} has no public key: {reason}. Give PEM, or a JWKS in JSON."
            ) from None

    def _read_set(self, text: str) -> dict[str, Any]:
        """Return the public keys of a JWKS for signatures, by their ids. Raises ValueError."""
        document = json.loads(text)
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise ValueError("it is no JWKS: it has no list `keys`")
        keys: dict[str, Any] = {}
        for number, entry in enumerate(listed[:100]):
            if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP") or "d" in entry:
                continue  # no public key
            if entry.get("use", "sig") == "sig":
                try:
                    keys[str(entry.get("kid", f"key {number}"))] = self._library.PyJWK(entry)
                except self._library.PyJWTError:
                    continue  # of a kind that is not known here
        if not keys:
            raise ValueError("it has no public key for signatures")
        return keys


def _public_key(text: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    return load_pem_public_key(text.encode())


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by the names of objects with points between them."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _refusal(reason: str) -> Refused:
    detail = f"The token is not taken: {reason[:300]}."
    headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return Refused(401, "invalid_token", detail, headers=headers)


async def _fetch(url: str) -> str:
    """Return a JWKS. Raises ValueError, OSError and TimeoutError."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ValueError(f"its server answered {response.status}")
            data = await response.content.read(MOST_BYTES + 1)
            while len(data) <= MOST_BYTES and (part := await response.content.read(MOST_BYTES)):
                data += part
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES:,} bytes")
    return data.decode("utf-8")
