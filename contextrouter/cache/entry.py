"""Cache entry format with a checksum or signature, and the full key.

    magic (4) · format (1) · digest (32) · expiry, seconds since 1970 (8) · length of the key (4) · key · body

The digest is SHA-256 over all that follows it, or HMAC-SHA-256 where a secret is set. Numbers are big-endian.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from struct import Struct

MAGIC = b"ctxr"
FORMAT = 1
_START = MAGIC + bytes([FORMAT])
_NUMBERS = Struct("!dI")
_SIGNED = len(_START) + 32
_KEY = _SIGNED + _NUMBERS.size


def seal(key: bytes, body: bytes, *, expires: float, secret: bytes = b"") -> bytes:
    """Return the entry for `body` under `key`."""
    signed = _NUMBERS.pack(expires, len(key)) + key + body
    return _START + _sign(signed, secret) + signed


def unseal(entry: bytes, key: bytes, *, secret: bytes = b"") -> tuple[memoryview, float] | None:
    """Return body and expiry; None for an entry that is corrupt, of another format or of another key."""
    if len(entry) < _KEY + len(key) or not entry.startswith(_START):
        return None
    view = memoryview(entry)
    expires, length = _NUMBERS.unpack(view[_SIGNED:_KEY])
    if length != len(key) or view[_KEY : _KEY + length] != key:
        return None
    if not hmac.compare_digest(view[len(_START) : _SIGNED], _sign(view[_SIGNED:], secret)):
        return None
    return view[_KEY + length :], expires


def _sign(signed: bytes | memoryview, secret: bytes) -> bytes:
    return hmac.digest(secret, signed, "sha256") if secret else sha256(signed).digest()
