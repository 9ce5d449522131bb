"""Servers on this machine that do what servers on the web do: answer late, for ever, wrongly, or with a bomb.

`Hostile` listens on 127.0.0.2, which tests allow; `Forbidden` on 127.0.0.1, which they do not, and counts who
comes all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Any
from urllib.parse import unquote

import brotli

ALLOWED = ["127.0.0.2/32"]
GIB = 1 << 30

FEED = (
    '<?xml version="1.0"?><rss'
    ' version="2.0"><channel><title>T</title><link>https://example.org/</link><item><title>zebra'
    " crossing</title><link>https://example.org/z</link><description>A zebra has"
    " stripes.</description></item></channel></rss>"
)
PAGE = (
    "<!DOCTYPE html><html lang='en'><head><title>On zebras</title></head><body><article><h1>On zebras</h1>"
    + "".join(
        f"<p>A zebra has stripes, and paragraph {n} of this article says more about every zebra.</p>"
        for n in range(9)
    )
    + "</article></body></html>"
)
API = json.dumps(
    {"results": [{"id": 1, "title": "zebra", "text": "A zebra has stripes.", "url": "https://example.org/z"}]}
)
KINDS = {
    "feed": ("application/rss+xml", FEED),
    "page": ("text/html; charset=utf-8", PAGE),
    "api": ("application/json", API),
}

REDIRECTS = (
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[fe80::1]:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://168.63.129.16/",
    "http://224.0.0.1/",
    "http://100.100.100.200/",
)
"""Where a redirect may try to lead: this machine in every spelling, metadata services, multicast."""

FAILING = (
    "slow-first-byte",
    "slow-drip",
    "never-ends",
    "endless-headers",
    "gzip-bomb",
    "deflate-bomb",
    "brotli-bomb",
    "loop",
    "long-loop",
    "short",
    "broken-chunks",
    "status-503",
    "status-429-later",
    "status-404",
    "reset",
    "hang-up",
    "garbage",
    "silent-304",
    "extra-bytes",
    "wrong-type",
    "damaged-gzip",
    "cut-gzip",
    "unknown-encoding",
    "redirect-nowhere",
    "redirect-file",
)
WORKING = ("good", "gzip", "brotli", "latin", "gbk", "chunked", "once-503", "once-429")


@cache
def bomb(encoding: str) -> bytes:
    """A GiB of zeros, compressed."""
    if encoding == "br":
        packer = brotli.Compressor(quality=1)
        mebibyte = bytes(1 << 20)
        return b"".join([*(packer.process(mebibyte) for _ in range(1024)), packer.finish()])
    header, tail = (
        (b"\x1f\x8b\x08\0\0\0\0\0\0\xff", bytes(8)) if encoding == "gzip" else (b"\x78\x9c", bytes(4))
    )
    deflate = zlib.compressobj(wbits=-15)
    block = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return header + block * 1024 + b"\x03\0" + tail


class Listening:
    """A raw TCP server; `hits` are the paths asked for, `heads` the requests' heads."""

    def __init__(self, host: str, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.host, self.context = host, context
        self.hits: list[str] = []
        self.heads: list[str] = []
        self.connections = 0
        self.most_at_once = 0
        self.port = port
        self._at_once = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"http{'s' if self.context else ''}://{self.host}:{self.port}"

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError
            ):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                path = unquote(head.split(" ")[1])
                self.hits.append(path)
                await self.answer(path, head, writer)
        finally:
            self._at_once -= 1
            self._tasks.discard(task)
            writer.close()

    async def answer(self, path: str, head: str, writer: asyncio.StreamWriter) -> None:
        await send(writer, "200 OK", b"here I am", {"Content-Type": "text/plain"})


class Forbidden(Listening):
    """What must never be reached."""


async def send(
    writer: asyncio.StreamWriter, status: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> None:
    lines = {"Content-Length": str(len(body)), "Connection": "close", **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body)
    await writer.drain()


class Hostile(Listening):
    """`/<how>/<kind>` answers with a feed, page or API answer, in the way that `how` says. `more` holds
    further ways by path.
    """

    def __init__(self, host: str = "127.0.0.2", context: ssl.SSLContext | None = None) -> None:
        super().__init__(host, context)
        self.more: dict[str, Callable[[asyncio.StreamWriter, str], Awaitable[None]]] = {}
        self.targets: dict[str, str] = {}

    async def answer(self, path: str, head: str, writer: asyncio.StreamWriter) -> None:
        path = path.partition("?")[0]
        if path in self.more:
            return await self.more[path](writer, head)
        how, _, kind = path.strip("/").partition("/")
        media, text = KINDS.get(kind.partition("/")[0], KINDS["page"])
        if how in self.targets:
            return await send(writer, "302 Found", headers={"Location": self.targets[how]})
        if how == "robots.txt":
            return await send(writer, "404 Not Found")
        await getattr(self, "_" + how.replace("-", "_"))(writer, media, text, path)

    async def _good(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(writer, "200 OK", text.encode(), {"Content-Type": media})

    async def _slow_first_byte(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await asyncio.sleep(60)

    async def _slow_drip(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {len(text.encode())}\r\n\r\n".encode()
        )
        for byte in text.encode():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    async def _never_ends(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n\r\n".encode() + text.encode())
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()

    async def _endless_headers(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: " + b"x" * 4_000 + b"\r\n")
            await writer.drain()

    async def _bomb(self, writer: asyncio.StreamWriter, media: str, encoding: str) -> None:
        await send(writer, "200 OK", bomb(encoding), {"Content-Type": media, "Content-Encoding": encoding})

    async def _gzip_bomb(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._bomb(writer, media, "gzip")

    async def _deflate_bomb(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._bomb(writer, media, "deflate")

    async def _brotli_bomb(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._bomb(writer, media, "br")

    async def _loop(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(writer, "302 Found", headers={"Location": path})

    async def _long_loop(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(writer, "302 Found", headers={"Location": path + "/more"})

    async def _short(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(
            writer, "200 OK", text.encode(), {"Content-Type": media, "Content-Length": str(len(text) + 1_000)}
        )

    async def _extra_bytes(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(
            writer,
            "200 OK",
            text.encode() + b" and more than was said" * 50,
            {"Content-Type": media, "Content-Length": str(len(text.encode()))},
        )

    async def _chunks(
        self, writer: asyncio.StreamWriter, media: str, pieces: list[bytes], end: bytes
    ) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        writer.write(end)
        await writer.drain()

    async def _chunked(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._chunks(writer, media, [text.encode()[:50], text.encode()[50:]], b"0\r\n\r\n")

    async def _broken_chunks(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._chunks(writer, media, [text.encode()[:50]], b"zz\r\nno number\r\n")

    async def _status(
        self, writer: asyncio.StreamWriter, status: str, headers: dict[str, str] | None = None
    ) -> None:
        await send(writer, status, b"no", headers)

    async def _status_503(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._status(writer, "503 Unavailable")

    async def _status_404(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._status(writer, "404 Not Found")

    async def _status_429_later(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._status(writer, "429 Too Many", {"Retry-After": "3600"})

    async def _once_503(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await (
            self._good(writer, media, text, path)
            if self._come_before(path)
            else self._status(writer, "503 Unavailable")
        )

    async def _once_429(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        again = self._come_before(path)
        await (
            self._good(writer, media, text, path)
            if again
            else self._status(writer, "429 Wait", {"Retry-After": "0"})
        )

    def _come_before(self, path: str) -> bool:
        return [hit.partition("?")[0] for hit in self.hits].count(path) > 1

    async def _silent_304(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        writer.write(b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async def _reset(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: 100000\r\n\r\n".encode()
            + text.encode()[:20]
        )
        await writer.drain()
        writer.transport.abort()

    async def _hang_up(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        writer.close()

    async def _garbage(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        writer.write(b"\x00\xff\x13 this is no HTTP\r\n\r\n" * 100)
        await writer.drain()

    async def _wrong_type(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(writer, "200 OK", b"\x89PNG\r\n", {"Content-Type": "image/png"})

    async def _encoded(self, writer: asyncio.StreamWriter, media: str, body: bytes, encoding: str) -> None:
        await send(writer, "200 OK", body, {"Content-Type": media, "Content-Encoding": encoding})

    async def _gzip(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._encoded(writer, media, compress_gzip(text.encode()), "gzip")

    async def _brotli(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._encoded(writer, media, brotli.compress(text.encode()), "br")

    async def _damaged_gzip(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        data = bytearray(compress_gzip(text.encode()))
        data[20:40] = b"\xff" * 20
        await self._encoded(writer, media, bytes(data), "gzip")

    async def _cut_gzip(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._encoded(writer, media, compress_gzip(text.encode())[:-12], "gzip")

    async def _unknown_encoding(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await self._encoded(writer, media, text.encode(), "zstd, gzip")

    async def _latin(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        """Says utf-8 and sends Latin-1."""
        body = text.replace("stripes", "strípes" if "json" not in media else "stripes")
        await send(
            writer,
            "200 OK",
            body.encode("latin-1"),
            {"Content-Type": media.partition(";")[0] + "; charset=utf-8"},
        )

    async def _gbk(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        """Says GBK and is GBK."""
        body = text.replace("stripes", "stripes 条纹" if "json" not in media else "stripes")
        await send(
            writer, "200 OK", body.encode("gbk"), {"Content-Type": media.partition(";")[0] + "; charset=gbk"}
        )

    async def _redirect_nowhere(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(writer, "302 Found")

    async def _redirect_file(self, writer: asyncio.StreamWriter, media: str, text: str, path: str) -> None:
        await send(writer, "302 Found", headers={"Location": "file:///etc/passwd"})


def compress_gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


@contextlib.asynccontextmanager
async def battlefield() -> AsyncIterator[tuple[Hostile, Forbidden]]:
    """A hostile server, and a forbidden one that it may try to lead to."""
    async with Hostile() as hostile, Forbidden("127.0.0.1") as forbidden:
        for number, target in enumerate(REDIRECTS):
            hostile.targets[f"to-{number}"] = target.format(port=forbidden.port)
        yield hostile, forbidden
