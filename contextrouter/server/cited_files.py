"""Cited files over HTTP: `GET /v1/files` serves the local files that citations name.

A request names a source and the id of a document, never a path. The file is served if the caller may see the
document, lies in the folder that the document was read from, and for a caller with a scope has not changed
since: its new text may have labels that nobody has read yet.
"""

from __future__ import annotations

import base64
import html
import re
from hashlib import sha256
from pathlib import PurePath
from urllib.parse import quote

from aiohttp import web

from contextrouter.runtime.local_files import read_local_file
from contextrouter.runtime.threads import work_aside
from contextrouter.server.citation_links import FILES, is_part
from contextrouter.server.endpoints import Endpoint, Exchange
from contextrouter.server.error_responses import Refused
from contextrouter.server.router_endpoints import check_sources

MOST_BYTES = 100_000_000
_PDF = "application/pdf"
_SHOWN = {
    ".pdf": _PDF,
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""What browsers show as it is, and cannot run."""
_STYLE = (
    ":root{color-scheme:light dark}body{margin:1rem;font:14px/1.5 ui-monospace,monospace}"
    "ol{margin:0;padding-left:4rem;white-space:pre-wrap;overflow-wrap:anywhere}"
    "li::marker{color:GrayText}li:target{background:Mark;color:MarkText}"
)
_STYLE_DIGEST = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


async def get_file(exchange: Exchange) -> web.StreamResponse:
    """GET /v1/files."""
    query = exchange.request.query
    source, id = query.get("source", ""), query.get("id", "")
    if not source or not id:
        detail = "Name a `source` and the `id` of a document that it cites, as in /v1/files?source=…&id=…"
        raise Refused(422, "invalid_query", detail)
    check_sources(exchange.caller, (source,))
    scope = exchange.caller.scope
    document = await exchange.server.router.document(source, id, scope=scope)
    file = exchange.server.router.engine.connections.file(source, document) if document else None
    if document is None or file is None or (scope is not None and is_part(document)):
        raise _not_there()
    content = await work_aside(read_local_file, file, MOST_BYTES)
    if content is None:
        raise _not_there()
    data, changed_at = content
    ingested_at = document.synced_at if document.job else None
    if scope is not None and document.job and (ingested_at is None or changed_at > ingested_at.timestamp()):
        detail = "The file has changed since it was ingested. It is served again after the next ingestion."
        raise Refused(409, "file_changed", detail)
    for_people = "text/html" in exchange.request.headers.get("Accept", "")
    return await work_aside(_make_response, data, file.path.name, for_people)  # others are answered meanwhile


def _not_there() -> Refused:
    """Return the one refusal of what does not exist and what may not be seen: nobody learns which."""
    return Refused(404, "not_found", "There is no such document for you, or it comes from no file.")


def _make_response(data: bytes, name: str, for_people: bool) -> web.Response:
    suffix = PurePath(name).suffix.lower()
    headers = {"Content-Security-Policy": f"{_POLICY}; sandbox", "Referrer-Policy": "no-referrer"}
    if suffix in _SHOWN:
        if _SHOWN[suffix] == _PDF:  # a browser's viewer does not run in a sandbox
            headers["Content-Security-Policy"] = f"{_POLICY}; object-src 'self'; style-src 'unsafe-inline'"
        headers["Content-Disposition"] = _disposition("inline", name)
        return web.Response(body=data, content_type=_SHOWN[suffix], headers=headers)
    text = _decode(data)
    if text is None:
        headers["Content-Disposition"] = _disposition("attachment", name)
        return web.Response(body=data, content_type="application/octet-stream", headers=headers)
    if not for_people:
        headers["Content-Disposition"] = _disposition("inline", name)
        return web.Response(text=text, content_type="text/plain", charset="utf-8", headers=headers)
    headers["Content-Security-Policy"] = f"{_POLICY}; sandbox; style-src 'sha256-{_STYLE_DIGEST}'"
    page = _lines_page(text, name)
    return web.Response(text=page, content_type="text/html", charset="utf-8", headers=headers)


def _decode(data: bytes) -> str | None:
    """Return the text of a file; None if it is no text."""
    encodings = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252")
    if encodings[0] != "utf-16" and b"\0" in data:
        return None
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return None


def _lines_page(text: str, name: str) -> str:
    """Return a text as a page whose lines have addresses: `#L12`."""
    lines = [
        f'<li id="L{number}">{html.escape(line) or " "}</li>'
        for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1)
    ]
    title = html.escape(name)
    return (
        f'<!doctype html><html lang=""><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f'<main aria-label="{title}"><ol>{"".join(lines)}</ol></main></html>'
    )


def _disposition(kind: str, name: str) -> str:
    return f"{kind}; filename*=UTF-8''{quote(name, safe='')}"


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=FILES,
        handle=get_file,
        summary="The file of a cited document, if the caller may see it",
        media="application/octet-stream",
        errors=(404, 409, 422, 429, 502, 503, 504),
    ),
)
