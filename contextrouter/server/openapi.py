"""The OpenAPI document: the table of endpoints, with the schemas of the very types that validate."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from contextrouter.model import SourceReport
from contextrouter.server.endpoints import EVENTS, Endpoint, Exchange, answered
from contextrouter.server.error_responses import MEDIA, ChatProblem, Problem
from contextrouter.server.request_schema import described

_REF = "#/components/schemas/{name}"
_ABOUT = (
    "Questions in, numbered context out. Where keys are set every path but /healthz, /readyz, /openapi.json"
    " and /explorer needs one. Each answer carries X-Request-Id; send one of your own to find it in the logs."
)


_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string", "description": "JSON, or [DONE]"}},
}


async def described_all(exchange: Exchange) -> web.StreamResponse:
    """GET /openapi.json."""
    return answered(document(exchange.server.endpoints))


DESCRIPTION = Endpoint(
    method="GET",
    path="/openapi.json",
    handle=described_all,
    summary="This document",
    guarded=False,
    media="application/json",
)


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document of these endpoints."""
    from contextrouter import __version__  # not at the top: the package need not know its own server

    types = [item for each in endpoints for item in (each.body, each.answer) if item is not None]
    types += [Problem, ChatProblem, described(SourceReport)]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(types), ref_template=_REF)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "contextrouter", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    made: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _name(endpoint),
        "responses": _responses(endpoint),
    }
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": _ref(endpoint.body)}
        if endpoint.example:
            content["example"] = endpoint.example
        made["requestBody"] = {"required": True, "content": {"application/json": content}}
    if endpoint.guarded:
        made["security"] = [{}, {"key": []}]
    return made


def _name(endpoint: Endpoint) -> str:
    return endpoint.method.lower() + "".join(
        part.title() for part in endpoint.path.replace(".", "/").split("/")
    )


def _ref(of: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REF.format(name=of.__name__)}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {
        endpoint.media: {"schema": _ref(endpoint.answer) if endpoint.answer else _any(endpoint)}
    }
    description = endpoint.summary
    if endpoint.streams:
        content[EVENTS] = {"schema": _EVENT}
        description += f". With stream: {endpoint.streams}"
    made: dict[str, Any] = {"200": {"description": description, "content": content}}
    for status in sorted({*endpoint.errors, *((401, 403) if endpoint.guarded else ()), 500}):
        made[str(status)] = {"description": HTTPStatus(status).phrase, "content": _error(endpoint, status)}
    return made


def _any(endpoint: Endpoint) -> dict[str, str]:
    return {"type": "object" if endpoint.media == "application/json" else "string"}


def _error(endpoint: Endpoint, status: int) -> dict[str, Any]:
    if status == HTTPStatus.SERVICE_UNAVAILABLE and not endpoint.guarded:
        return {"application/json": {"schema": _ref(endpoint.answer) if endpoint.answer else {}}}
    if endpoint.openai:
        return {"application/json": {"schema": _ref(ChatProblem)}}
    return {MEDIA: {"schema": _ref(Problem)}}
