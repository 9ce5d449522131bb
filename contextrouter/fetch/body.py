"""HTTP body decompression (gzip, deflate, brotli) under a size limit, against decompression bombs."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

CHUNK = 65_536
PIECE = 262_144
"""Decoded bytes of one step."""


class Decoder(Protocol):
    """Decodes a body chunk by chunk."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes of `chunk` in pieces of limited size. Raises ValueError for
        damaged input.
        """
        ...

    def is_complete(self) -> bool:
        """Whether the encoded stream is complete."""
        ...


class _Plain:
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def is_complete(self) -> bool:
        return True


class _Zlib:
    """gzip (one or several members) and deflate (with or without a zlib header)."""

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

    def is_complete(self) -> bool:
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

    def is_complete(self) -> bool:
        return not self._begun or self._decoder.is_finished()


def accept_encoding() -> str:
    """Return the `Accept-Encoding` header. Brotli needs an installed decoder with an output limit."""
    return "gzip, deflate, br" if _has_bounded_brotli() else "gzip, deflate"


def _has_bounded_brotli() -> bool:
    try:
        import brotli

        brotli.Decompressor().process(b"", output_buffer_limit=1)
    except (ImportError, TypeError, AttributeError):
        return False
    return True


def make_decoder(encoding: str) -> Decoder:
    """Return the decoder of a `Content-Encoding`. Raises ValueError for an unsupported one."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity", "none"):
        return _Plain()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Zlib(encoding)
    if encoding == "br" and _has_bounded_brotli():
        return _Brotli()
    raise ValueError(f"its content encoding {encoding[:40]!r} was not asked for.")


async def read_body(chunks: AsyncIterator[bytes], encoding: str, max_bytes: int) -> bytes:
    """Return the decoded body. Raises ValueError when it is too long, damaged or incomplete."""
    decoding = make_decoder(encoding)
    body = bytearray()
    async for chunk in chunks:
        for piece in decoding.feed(chunk):
            body += piece
            if len(body) > max_bytes:
                raise ValueError(f"it is longer than `max_bytes` = {max_bytes}.")
    if not decoding.is_complete():
        raise ValueError("its compressed body breaks off.")
    return bytes(body)
