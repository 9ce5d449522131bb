"""HTTP body decompression (gzip, deflate, brotli) under a size limit, against decompression bombs."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

CHUNK = 65_536
PIECE = 262_144
"""Decoded bytes that are made at a time."""


class Decoder(Protocol):
    """Turns chunks as they come into decoded pieces."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what `chunk` decodes to, in bounded pieces. Raises ValueError for what is not so encoded."""
        ...

    def ended(self) -> bool:
        """Whether the encoded stream is complete."""
        ...


class _Plain:
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def ended(self) -> bool:
        return True


class _Zlib:
    """gzip (also of several members) and deflate (also without a header, as some servers send it)."""

    def __init__(self, encoding: str) -> None:
        self._deflate = encoding == "deflate"
        self._decoder: Any = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            if self._decoder is None:
                # The low nibble of a zlib header is 8; some servers send deflate without any header.
                bare = self._deflate and chunk[0] & 0x0F != 8
                self._decoder = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
            elif self._decoder.eof:
                if self._deflate or not chunk.strip(b"\0"):
                    return  # padding
                self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                yield self._decoder.decompress(chunk, PIECE)
            except zlib.error as error:
                raise ValueError(f"its compressed body is damaged ({error}).") from None
            chunk = self._decoder.unconsumed_tail or self._decoder.unused_data

    def ended(self) -> bool:
        return self._decoder is None or self._decoder.eof


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._decoder, self._error = brotli.Decompressor(), brotli.error
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._begun = self._begun or bool(chunk)
        try:
            piece = self._decoder.process(chunk, output_buffer_limit=PIECE)
            while piece or not self._decoder.can_accept_more_data():
                yield piece
                piece = self._decoder.process(b"", output_buffer_limit=PIECE)
        except self._error as error:
            raise ValueError(f"its compressed body is damaged ({error}).") from None

    def ended(self) -> bool:
        return not self._begun or self._decoder.is_finished()


def encodings() -> str:
    """What `Accept-Encoding` says: brotli only where its decoder is installed, and bounded."""
    return "gzip, deflate, br" if _bounded_brotli() else "gzip, deflate"


def _bounded_brotli() -> bool:
    try:
        import brotli

        brotli.Decompressor().process(b"", output_buffer_limit=1)
    except (ImportError, TypeError, AttributeError):
        return False
    return True


def decoder(encoding: str) -> Decoder:
    """Return the decoder of a `Content-Encoding`. Raises ValueError for one that was not asked for."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity", "none"):
        return _Plain()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Zlib(encoding)
    if encoding == "br" and _bounded_brotli():
        return _Brotli()
    raise ValueError(f"its content encoding {encoding[:40]!r} was not asked for.")


async def read(chunks: AsyncIterator[bytes], encoding: str, max_bytes: int) -> bytes:
    """Return the decoded body. Raises ValueError when it is longer than `max_bytes`, damaged, or breaks
    off.
    """
    decoding = decoder(encoding)
    body = bytearray()
    async for chunk in chunks:
        for piece in decoding.feed(chunk):
            body += piece
            if len(body) > max_bytes:
                raise ValueError(f"it is longer than `max_bytes` = {max_bytes}.")
    if not decoding.ended():
        raise ValueError("its compressed body breaks off.")
    return bytes(body)
