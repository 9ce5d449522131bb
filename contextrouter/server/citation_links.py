"""Links of citations: the addresses at which callers of the server can open what is cited."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from contextrouter.model import Citation, Context, Document
from contextrouter.server.auth import Caller
from contextrouter.server.endpoints import Exchange
from contextrouter.settings import Serve

FILES = "/v1/files"
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def follow(context: Context, caller: Caller, origin: str = "") -> Context:
    """Return a context with citations that the caller can follow. `origin` is the address of this server if
    it serves cited files; "": it does not. A caller with a scope learns no path of this machine.
    """
    if not any([citation.file or is_local(citation.url) for citation in context.citations]):
        return context
    pairs = zip(context.citations, context.envelopes, strict=True)
    return context.replace(
        citations=tuple(
            [follow_citation(citation, envelope.document, caller, origin) for citation, envelope in pairs]
        )
    )


def origin_of(exchange: Exchange) -> str:
    """Return the address of this server as the caller knows it, if it serves cited files; else ""."""
    return origin_in(exchange.request.headers, exchange.server.settings.serve)


def origin_in(headers: Mapping[str, str], serve: Serve) -> str:
    """Return the address of a server by the headers of a request, if it serves cited files; else ""."""
    host = headers.get("Host") or headers.get("host", "")
    if not _HOST.fullmatch(host):
        return ""
    secure = (headers.get("X-Forwarded-Proto") or headers.get("x-forwarded-proto")) == "https"
    return f"{'https' if secure else 'http'}://{host}" if serve.files else ""


def follow_citation(citation: Citation, document: Document, caller: Caller, origin: str = "") -> Citation:
    """Return a citation of a document that the caller can follow, as `follow` does."""
    if citation.file and not is_local(citation.url):  # a page of the web opens better
        return citation.replace(file="")
    if citation.file and origin and (caller.scope is None or not is_part(document)):
        citation = citation.replace(url=origin + _file_address(citation, document))
    elif caller.scope is not None and is_local(citation.url):
        citation = citation.replace(url="" if is_local(document.url) else document.url)
    return citation if caller.scope is None else citation.replace(file="")


def is_local(url: str) -> bool:
    """Whether an address is that of a file of some machine."""
    return url.lstrip()[:5].lower() == "file:"


def _file_address(citation: Citation, document: Document) -> str:
    """Return the address of a cited file on this server, at its page, its line or its heading."""
    query = urlencode({"source": citation.source, "id": document.parent or document.id}, quote_via=quote)
    if citation.page is not None:
        fragment = f"#page={citation.page}"
    elif citation.line is not None:
        fragment = f"#L{citation.line}"
    else:
        fragment = f"#:~:text={quote(citation.path[-1], safe='')}" if citation.path else ""
    return f"{FILES}?{query}{fragment}"


def is_part(document: Document) -> bool:
    """Whether the file of a document holds other documents, which may have other labels."""
    return "part" in document.metadata
